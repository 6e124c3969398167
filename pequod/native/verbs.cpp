#include "verbs.hpp"

#include "collect.hpp"
#include "telling.hpp"

namespace pequod {

Ran put(HotEngine* engine, PyObject* key, PyObject* value) {
    HotRelations* relations = written_relations(engine, piece_of(key));
    if (!relations || !has_room(engine, piece_of(value).size)) return not_quick();
    size_t told = 0;
    return put_into(engine, relations, key, value, &told);
}

Ran put(HotEngine* engine, Piece key, Piece value) {
    HotRelations* relations = written_relations(engine, key);
    return relations && has_room(engine, value.size) ? put_into(engine, relations, key, value) : not_quick();
}

namespace {

// A hundred years, as pequod/language/deadlines.py has it.
constexpr uint64_t TTL_MS_MAX = uint64_t(100) * 365 * 86'400'000;

// Whether a time to live is one: what is due is Python's to remove first, as it has no deadline that could be kept, and
// so is a time that is too long.
bool is_quick_time(const HotEngine* engine, uint64_t ttl_ms) {
    return ttl_ms == KEEP_TTL ? !engine->may_be_due() : ttl_ms <= TTL_MS_MAX;
}

// The write and the deadline are a revision each.
size_t revisions_of(uint64_t ttl_ms) { return ttl_ms ? 2 : 1; }

// The instant at which a key will expire that is written now; -1: never.
long long instant_after(const HotEngine* engine, Piece key, uint64_t ttl_ms) {
    const Deadlines* deadlines = deadlines_of(engine->deadlines);
    if (ttl_ms == KEEP_TTL) return deadlines->count ? instant_of(deadlines, key) : -1;
    return ttl_ms ? deadlines->now_ms + static_cast<long long>(ttl_ms) : -1;
}

// The row of a key in its table; null: there is none.
const Entry* own_row(const HotRelations* relations, Piece key) {
    SortedRows* rows = rows_of(table_of(relations->table), key);
    return rows ? row_of(rows, key) : nullptr;
}

// Have a row expire: a change of its own.
Ran expire_row(HotEngine* engine, const Entry* row, long long at_ms) {
    // To hold on to the row's own key takes no memory.
    if (set(deadlines_of(engine->deadlines), row->key, at_ms) < 0) return Ran::FAILED;
    ++engine->revision;
    return note_effect(engine, row->key, row->value) ? Ran::DONE : Ran::FAILED;
}

// The same of a row that was put just now.
Ran expire_at(HotEngine* engine, Piece key, long long at_ms) {
    const HotRelations* relations = relations_at(engine->relations, key);
    const Entry* row = relations ? own_row(relations, key) : nullptr;
    if (row) return expire_row(engine, row, at_ms);
    return PyErr_SetString(PyExc_RuntimeError, "a row is gone while its deadline is set"), Ran::FAILED;
}

// Put a row of a table, and have it expire.
Ran put_until(HotEngine* engine, HotRelations* relations, Piece key, Piece value, uint64_t ttl_ms) {
    const long long at_ms = instant_after(engine, key, ttl_ms);
    const Ran ran = put_into(engine, relations, key, value);
    return ran == Ran::DONE && at_ms >= 0 ? expire_at(engine, key, at_ms) : ran;
}

}  // namespace

Ran put_for(HotEngine* engine, Piece key, Piece value, uint64_t ttl_ms) {
    if (!is_quick_time(engine, ttl_ms)) return Ran::NOT_QUICK;
    HotRelations* relations = written_relations(engine, key);
    if (!relations || !has_room(engine, value.size, revisions_of(ttl_ms))) return not_quick();
    return put_until(engine, relations, key, value, ttl_ms);
}

Ran put_all(HotEngine* engine, const Piece* keys, const Piece* values, size_t count, uint64_t ttl_ms) {
    if (count > KEYS_MAX || !is_quick_time(engine, ttl_ms)) return Ran::NOT_QUICK;
    if (!has_room(engine, 0, count * revisions_of(ttl_ms))) return Ran::NOT_QUICK;
    long long instants[KEYS_MAX];
    for (size_t at = 0; at < count; ++at) {
        if (!written_relations(engine, keys[at]) || !has_room(engine, values[at].size)) return not_quick();
        instants[at] = instant_after(engine, keys[at], ttl_ms);
    }
    // All have been admitted: as in Python, none is asked for again, whatever the rows before it have brought.
    for (size_t at = 0; at < count; ++at) {
        HotRelations* relations = relations_at(engine->relations, keys[at]);
        if (!relations)
            return PyErr_SetString(PyExc_RuntimeError, "a table is gone while its rows are put"), Ran::FAILED;
        if (put_into(engine, relations, keys[at], values[at]) == Ran::FAILED) return Ran::FAILED;
    }
    for (size_t at = 0; at < count; ++at) {
        if (instants[at] >= 0 && expire_at(engine, keys[at], instants[at]) == Ran::FAILED) return Ran::FAILED;
    }
    return Ran::DONE;
}

Ran set_time(HotEngine* engine, Piece key, uint64_t ttl_ms) {
    const HotRelations* relations = ttl_ms <= TTL_MS_MAX ? decided_relations(engine, key) : nullptr;
    if (!relations) return not_quick();
    const Entry* row = own_row(relations, key);
    if (!row) return Ran::ABSENT;
    if (ttl_ms) return expire_row(engine, row, instant_after(engine, key, ttl_ms));
    if (!end_deadline(engine, key)) return Ran::DONE;
    ++engine->revision;
    return note_effect(engine, row->key, row->value) ? Ran::DONE : Ran::FAILED;
}

Ran remove(HotEngine* engine, PyObject* key) {
    HotRelations* relations = decided_relations(engine, piece_of(key));
    return relations ? take_out(engine, relations, key) : not_quick();
}

Ran remove(HotEngine* engine, Piece key) {
    HotRelations* relations = decided_relations(engine, key);
    return relations ? take_out(engine, relations, key) : not_quick();
}

namespace {

// The value of a key among the rows of its table, borrowed; null: it has none there.
PyObject* stored(const HotRelations* relations, Piece key, const Seen& seen) {
    SortedRows* rows = rows_of(table_of(relations->table), key);
    if (!rows) return nullptr;
    PyObject* value = seen.rows ? seen.value_in(rows, key) : nullptr;
    return value ? value : get(rows, key);
}

bool is_met(const Condition& condition, PyObject* present) {
    if (condition.number == IF_ABSENT) return !present;
    return present && (condition.number == IF_PRESENT || is_equal(piece_of(present), condition.expected));
}

// Look whether a key of these relations meets a condition: DONE, or as `put_if` has it.
Ran look(const HotRelations* relations, Piece key, const Condition& condition, const Seen& seen, PyObject** present) {
    if (condition.number < IF_ABSENT || condition.number > IF_VALUE) return Ran::NOT_QUICK;
    // No join computes a key of a table that clients write: its own rows have the value.
    *present = stored(relations, key, seen);
    if (is_met(condition, *present)) return Ran::DONE;
    return *present ? Ran::UNMET : Ran::ABSENT;
}

}  // namespace

Ran put_if(HotEngine* engine, Piece key, Piece value, uint64_t ttl_ms, const Condition& condition, const Seen& seen,
           PyObject** present) {
    // A value or a time that Python refuses is refused whether the condition holds or not.
    if (!is_quick_time(engine, ttl_ms)) return Ran::NOT_QUICK;
    HotRelations* relations = decided_relations(engine, key);
    if (!relations || !has_room(engine, value.size, revisions_of(ttl_ms))) return not_quick();
    const Ran ran = look(relations, key, condition, seen, present);
    return ran == Ran::DONE ? put_until(engine, relations, key, value, ttl_ms) : ran;
}

Ran remove_if(HotEngine* engine, Piece key, const Condition& condition, const Seen& seen, PyObject** present) {
    HotRelations* relations = decided_relations(engine, key);
    if (!relations) return not_quick();
    const Ran ran = look(relations, key, condition, seen, present);
    // What is absent, and has to be, is removed already.
    return ran == Ran::DONE && *present ? take_out(engine, relations, key) : ran;
}

Ran add(HotEngine* engine, Piece key, Piece delta, const Seen& seen, Integer* total) {
    long long before = 0, more = 0;
    HotRelations* relations = decided_relations(engine, key);
    if (!relations || !read_integer(delta, &more)) return not_quick();
    // Its deadline stays, which a put would take away.
    const Deadlines* deadlines = deadlines_of(engine->deadlines);
    if (deadlines->count && instant_of(deadlines, key) >= 0) return Ran::NOT_QUICK;
    PyObject* present = stored(relations, key, seen);
    if (present && !read_integer(piece_of(present), &before)) return Ran::NOT_QUICK;
    total->write(before + more);
    return has_room(engine, total->size) ? put_into(engine, relations, key, total->piece()) : Ran::NOT_QUICK;
}

Ran expire(HotEngine* engine, PyObject** key) {
    Deadlines* deadlines = deadlines_of(engine->deadlines);
    *key = take_due(deadlines);
    if (!*key) {
        deadlines->is_due = false;
        return Ran::ABSENT;
    }
    HotRelations* relations = written_relations(engine, piece_of(*key));
    const Ran ran = relations ? take_out(engine, relations, *key) : not_quick();
    if (ran != Ran::NOT_QUICK) Py_CLEAR(*key);
    return ran;
}

namespace {

// The fresh context of level one in whose one range a key of a table is that one join computes; null: there is none
// that is quick, or an error is set.
Hot* quick_context(const HotRelations* relations, Piece key, double now) {
    PyObject* found = context_at(relations, key);
    if (!found || !is_hot(found)) return nullptr;
    Hot* hot = hot_of(found);
    if (!hot->is_sound() || !hot->is_whole || !(now <= hot->ready_until_s)) return nullptr;
    const Piece tail = {key.start + piece_of(hot->prefix).size, key.size - piece_of(hot->prefix).size};
    if (compare(tail, piece_of(hot->lower)) < 0) return nullptr;
    return hot->upper == Py_None || compare(tail, piece_of(hot->upper)) < 0 ? hot : nullptr;
}

Ran get_computed(HotEngine* engine, const HotRelations* relations, Piece key, double now, PyObject** value) {
    Hot* hot = relations->is_owned ? quick_context(relations, key, now) : nullptr;
    if (!hot) return not_quick();
    SortedRows* rows = rows_of(hot);
    const size_t known = piece_of(hot->prefix).size;
    *value = get(rows, {key.start + known, key.size - known});
    // Whether such a key can be is Python's to say.
    if (!*value) return Ran::NOT_QUICK;
    count_hit(engine, {rows, {0, 0}, {0, 0}, {"", 0}, hot});
    return Ran::DONE;
}

// Whether joins compute keys of a table: none computes keys that a database owns.
bool is_computed(const HotRelations* relations) {
    return relations->is_owned && table_of(relations->table)->loaded == Py_None;
}

// Whether clients write a table, or all keys from the first to the last one are loaded: then a read uses them.
bool are_there(HotEngine* engine, const HotRelations* relations, Piece first, Piece last) {
    const HotTable* table = table_of(relations->table);
    if (table->loaded == Py_None) return true;
    Numbers* reads = reinterpret_cast<Numbers*>(engine->reads);
    if (!use_loaded(table, first, last, reads->number + 1)) return false;
    ++reads->number;
    return true;
}

}  // namespace

Ran get(HotEngine* engine, Piece key, const Seen& seen, double now, PyObject** value) {
    if (engine->may_be_due()) return Ran::NOT_QUICK;
    HotRelations* relations = relations_at(engine->relations, key);
    if (!relations || !are_there(engine, relations, key, key)) return not_quick();
    *value = stored(relations, key, seen);
    if (*value) return Ran::DONE;
    return is_computed(relations) ? get_computed(engine, relations, key, now, value) : Ran::ABSENT;
}

Ran time_left(HotEngine* engine, Piece key, double now, uint64_t* left_ms) {
    const HotRelations* relations = relations_at(engine->relations, key);
    // Whether a database keeps deadlines is Python's to ask.
    if (!relations || table_of(relations->table)->loaded != Py_None) return not_quick();
    PyObject* value = nullptr;
    const Ran ran = get(engine, key, {0, nullptr, 0, 0}, now, &value);
    if (ran != Ran::DONE) return ran;
    const Deadlines* deadlines = deadlines_of(engine->deadlines);
    const long long at_ms = deadlines->count ? instant_of(deadlines, key) : -1;
    *left_ms = at_ms < 0 ? NO_DEADLINE : static_cast<uint64_t>(at_ms - deadlines->now_ms);
    return Ran::DONE;
}

Ran rows_between(HotEngine* engine, Piece first, Piece last, SortedRows** rows) {
    if (engine->may_be_due()) return Ran::NOT_QUICK;
    HotRelations* relations = relations_at(engine->relations, first);
    if (!relations || is_computed(relations)) return not_quick();
    const HotTable* table = table_of(relations->table);
    if (compare(first, last) >= 0 || compare(last, piece_of(table->end)) > 0) return Ran::NOT_QUICK;
    const Found found = rows_within(table, first, last);
    // What counts as a read is done: Python would count it again.
    if (!found.is_quick || !are_there(engine, relations, first, last)) return not_quick();
    *rows = found.rows;
    return Ran::DONE;
}

namespace {

// The place from which on a timeline's rows are new to its reader: mostly the end, or close to it.
Place place_of(SortedRows* rows, Piece tail) {
    const Leaf& last = rows->last;
    const size_t near = last.size > 8 ? last.size - 8 : 0;
    if (last.size && (near || !rows->older_size) && (!near || compare(last.key(near), tail) < 0)) {
        size_t at = last.size;
        while (at > near && compare(last.key(at - 1), tail) >= 0) --at;
        return {rows->older_size, at};
    }
    return lower_bound(rows, tail);
}

// Find the rows of a context from a key on to the end by which it is known.
Ran find_in_context(const End* end, Piece first, Piece last, double now, bool may_refresh, Span* span) {
    Hot* hot = hot_of(end->context);
    if (table_of(end->table)->entry_count || !hot->is_sound() || !hot->is_open()) return Ran::NOT_QUICK;
    const Piece prefix = piece_of(hot->prefix);
    if (!begins_with(first, prefix) || compare(first, last) >= 0) return Ran::NOT_QUICK;
    const Piece tail = {first.start + prefix.size, first.size - prefix.size};
    if (compare(tail, piece_of(hot->lower)) < 0) return Ran::NOT_QUICK;
    if (!(now <= hot->ready_until_s)) {
        const int is_fresh = may_refresh ? refresh(hot, now) : 0;
        if (is_fresh <= 0) return is_fresh ? Ran::FAILED : Ran::NOT_QUICK;
    }
    SortedRows* rows = rows_of(hot);
    *span = {rows, place_of(rows, tail), {rows->older_size, rows->last.size}, prefix, hot};
    return Ran::DONE;
}

// Find the rows of a part of a context; up to its end Python finds them, which remembers the end.
Ran find_inside(const HotRelations* relations, Piece first, Piece last, double now, Span* span) {
    Hot* hot = table_of(relations->table)->entry_count ? nullptr : quick_context(relations, first, now);
    if (!hot) return not_quick();
    const Piece prefix = piece_of(hot->prefix);
    if (!begins_with(last, prefix) || compare(first, last) >= 0) return Ran::NOT_QUICK;
    const Piece low = {first.start + prefix.size, first.size - prefix.size};
    const Piece high = {last.start + prefix.size, last.size - prefix.size};
    if (hot->upper != Py_None && compare(high, piece_of(hot->upper)) > 0) return Ran::NOT_QUICK;
    SortedRows* rows = rows_of(hot);
    *span = {rows, lower_bound(rows, low), lower_bound(rows, high), prefix, hot};
    return Ran::DONE;
}

}  // namespace

Ran find_span(HotEngine* engine, Piece first, Piece last, size_t hash, double now, bool may_refresh, Span* span) {
    const End* end = reinterpret_cast<const Ends*>(engine->ends)->table.find(hash, last);
    if (end) return find_in_context(end, first, last, now, may_refresh, span);
    const HotRelations* relations = relations_at(engine->relations, first);
    if (relations && is_computed(relations)) return find_inside(relations, first, last, now, span);
    SortedRows* rows = nullptr;
    const Ran ran = rows_between(engine, first, last, &rows);
    if (ran != Ran::DONE) return ran;
    *span = {rows, {0, 0}, {0, 0}, {"", 0}, nullptr};
    if (rows) {
        span->start = lower_bound(rows, first);
        span->stop = lower_bound(rows, last);
    }
    return Ran::DONE;
}

void count_hit(HotEngine* engine, const Span& span) {
    Hot* hot = span.context;
    if (!hot) return;
    ++reinterpret_cast<Counters*>(hot->counters)->hits;
    ++hot->hits;
    hot->last_used = ++reinterpret_cast<Numbers*>(engine->reads)->number;
}

Applied apply(HotEngine* engine, PyObject* key, PyObject* value, size_t* told) {
    HotRelations* relations = relations_at(engine->relations, piece_of(key));
    HotTable* table = relations ? table_of(relations->table) : nullptr;
    if (!table || !table->loaded || !is_rows(table->loaded) || !relations->searched ||
        !PyList_CheckExact(relations->searched)) {
        return PyErr_Occurred() ? Applied::FAILED : Applied::NOT_QUICK;
    }
    if (!is_loaded(table, piece_of(key))) {
        // Its row may be of a searched range.
        return PyList_GET_SIZE(relations->searched) ? Applied::NOT_QUICK : Applied::NOT_LOADED;
    }
    if (!PyBytes_CheckExact(value) || !is_quiet(relations) || !has_room(engine, piece_of(value).size)) {
        return Applied::NOT_QUICK;
    }
    return put_into(engine, relations, key, value, told) == Ran::FAILED ? Applied::FAILED : Applied::YES;
}

}  // namespace pequod
