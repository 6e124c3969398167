// The quick commands of a batch, from its arguments into its reply.
//
// Which commands are quick is said in verbs.hpp; here, a reply has to have room for what they give as well.
#include "batch.hpp"

namespace pequod {

bool write_count(Batch* batch, uint64_t count) {
    char* to = batch->counts.reserve(VARINT_MAX);
    if (!to) return false;
    batch->counts.size = size_t(write_varint(to, count) - batch->counts.start);
    return true;
}

Ran write_row(Batch* batch, Piece prefix, Piece tail, Piece value, long long* room) {
    *room -= static_cast<long long>(prefix.size + tail.size + value.size) + ROW_BYTES;
    if (*room < 0) return Ran::NOT_QUICK;
    char* to = batch->rows.reserve(prefix.size + tail.size + value.size + 2 * (1 + VARINT_MAX));
    if (!to) return Ran::FAILED;
    batch->rows.write_up_to(write_piece(write_piece(to, KEY, prefix, tail), VALUE, value));
    return Ran::DONE;
}

Ran write_value(Batch* batch, Piece value) {
    const long long size = static_cast<long long>(value.size) + ROW_BYTES;
    if (size > batch->room) return Ran::NOT_QUICK;
    char* to = batch->rows.reserve(value.size + 1 + VARINT_MAX);
    if (!to) return Ran::FAILED;
    batch->rows.write_up_to(write_piece(to, VALUE, value));
    batch->room -= size;
    return Ran::DONE;
}

bool note_outcome(Batch* batch, unsigned char status, Piece value) {
    const unsigned char kind = kind_of(batch);
    const KindRow& row = KIND_ROWS[kind];
    if (!batch->batch_id.size || !tells_value(row)) return true;
    const Piece* argument = batch->arguments + batch->argument_at;
    const auto piece_at = [&](unsigned char at) { return row.argument_count > at ? argument[at] : Piece{"", 0}; };
    const uint64_t number = row.number_count ? batch->numbers[batch->number_at] : 0;
    const uint32_t position = batch->position_count ? batch->positions[batch->index] : uint32_t(batch->index);
    return add_outcome(&batch->outcomes, position, {kind, number, piece_at(0), piece_at(1), piece_at(2)}, status,
                       value);
}

namespace {

// How many rows a scan may give; not quick is a scan that gives as many, unless its client asked for no more.
struct Limit {
    long long most;
    bool is_asked;
};

Ran write_entry(Batch* batch, Piece prefix, const Entry& entry, long long* room) {
    return write_row(batch, prefix, piece_of(entry.key), piece_of(entry.value), room);
}

Ran write_up(Batch* batch, const Span& span, long long most, long long* room, long long* found) {
    for (Place place = span.start; place.leaf <= span.stop.leaf && *found < most; place = {place.leaf + 1, 0}) {
        const Leaf& leaf = span.rows->leaf(place.leaf);
        const size_t end = place.leaf == span.stop.leaf ? span.stop.at : leaf.size;
        for (; place.at < end && *found < most; ++place.at, ++*found) {
            const Ran ran = write_entry(batch, span.prefix, leaf.entries[place.at], room);
            if (ran != Ran::DONE) return ran;
        }
    }
    return Ran::DONE;
}

Ran write_down(Batch* batch, const Span& span, long long most, long long* room, long long* found) {
    for (size_t at_leaf = span.stop.leaf + 1; at_leaf > span.start.leaf && *found < most; --at_leaf) {
        const Leaf& leaf = span.rows->leaf(at_leaf - 1);
        const size_t begin = at_leaf - 1 == span.start.leaf ? span.start.at : 0;
        size_t end = at_leaf - 1 == span.stop.leaf ? span.stop.at : leaf.size;
        for (; end > begin && *found < most; --end, ++*found) {
            const Ran ran = write_entry(batch, span.prefix, leaf.entries[end - 1], room);
            if (ran != Ran::DONE) return ran;
        }
    }
    return Ran::DONE;
}

// Write the rows of a scan, unless they are too many; then nothing has changed.
Ran write_rows(Batch* batch, const Span& span, Limit limit, bool is_down) {
    const size_t before = batch->rows.size;
    long long room = batch->room, found = 0;
    Ran ran = span.rows ? (is_down ? write_down : write_up)(batch, span, limit.most, &room, &found) : Ran::DONE;
    if (ran == Ran::DONE && found == limit.most && !limit.is_asked) ran = Ran::NOT_QUICK;
    if (ran == Ran::DONE && !write_count(batch, uint64_t(found))) ran = Ran::FAILED;
    if (ran != Ran::DONE) {
        batch->rows.size = before;
        return ran;
    }
    batch->room = room;
    batch->row_count += Py_ssize_t(found);
    return ran;
}

const Seen& seen_of(const Batch* batch) { return batch->seen[batch->index - batch->ahead_start]; }

Limit limit_of(const Batch* batch, unsigned char kind) {
    const uint64_t asked = KIND_ROWS[kind].number_count ? batch->numbers[batch->number_at] : 0;
    if (!asked || asked > uint64_t(batch->rows_max)) return {batch->rows_max, false};
    return {static_cast<long long>(asked), true};
}

Ran run_scan(Batch* batch, HotEngine* engine, unsigned char kind, double now) {
    const Piece first = batch->arguments[batch->argument_at], last = batch->arguments[batch->argument_at + 1];
    Span span;
    Ran ran = find_span(engine, first, last, seen_of(batch).hash, now, true, &span);
    if (ran == Ran::DONE) ran = write_rows(batch, span, limit_of(batch, kind), kind == SCAN_DOWN);
    if (ran == Ran::DONE) count_hit(engine, span);
    return ran;
}

Ran run_count(Batch* batch, HotEngine* engine) {
    const Piece first = batch->arguments[batch->argument_at], last = batch->arguments[batch->argument_at + 1];
    SortedRows* rows = nullptr;
    const Ran ran = rows_between(engine, first, last, &rows);
    if (ran != Ran::DONE) return ran;
    const size_t count = rows ? count_between(rows, lower_bound(rows, first), lower_bound(rows, last)) : 0;
    return write_count(batch, uint64_t(count)) ? Ran::DONE : Ran::FAILED;
}

Ran run_ttl(Batch* batch, HotEngine* engine, double now) {
    uint64_t left_ms = 0;
    const Ran ran = time_left(engine, batch->arguments[batch->argument_at], now, &left_ms);
    if (ran != Ran::DONE) return ran;
    return write_count(batch, left_ms) ? Ran::DONE : Ran::FAILED;
}

Ran run_get(Batch* batch, HotEngine* engine, double now) {
    PyObject* value = nullptr;
    const Ran ran = get(engine, batch->arguments[batch->argument_at], seen_of(batch), now, &value);
    return ran == Ran::DONE ? write_value(batch, piece_of(value)) : ran;
}

Ran run_write_if(Batch* batch, HotEngine* engine, bool is_put) {
    const Piece* argument = batch->arguments + batch->argument_at;
    const Condition condition = {batch->numbers[batch->number_at], argument[is_put ? 2 : 1]};
    PyObject* present = nullptr;
    const uint64_t ttl_ms = is_put ? batch->numbers[batch->number_at + 1] : 0;
    const Ran ran = is_put ? put_if(engine, argument[0], argument[1], ttl_ms, condition, seen_of(batch), &present)
                           : remove_if(engine, argument[0], condition, seen_of(batch), &present);
    if (ran == Ran::DONE || ran == Ran::ABSENT) {
        const unsigned char status = ran == Ran::DONE ? MET_STATUS : static_cast<unsigned char>(ABSENT);
        return note_outcome(batch, status, {"", 0}) ? ran : Ran::FAILED;
    }
    if (ran != Ran::UNMET) return ran;
    const Ran written = write_value(batch, piece_of(present));
    if (written != Ran::DONE) return written;
    return note_outcome(batch, UNMET, piece_of(present)) ? Ran::UNMET : Ran::FAILED;
}

Ran run_add(Batch* batch, HotEngine* engine) {
    const Piece* argument = batch->arguments + batch->argument_at;
    // Once it is done it must not run again for want of room.
    if (batch->room < static_cast<long long>(INTEGER_BYTES) + ROW_BYTES) return Ran::NOT_QUICK;
    Integer total;
    const Ran ran = add(engine, argument[0], argument[1], seen_of(batch), &total);
    if (ran != Ran::DONE) return ran;
    return note_outcome(batch, OK_STATUS, total.piece()) ? write_value(batch, total.piece()) : Ran::FAILED;
}

Ran run_one(Batch* batch, HotEngine* engine, double now) {
    const unsigned char kind = kind_of(batch);
    switch (kind) {
        case PUT:
            return put(engine, batch->arguments[batch->argument_at], batch->arguments[batch->argument_at + 1]);
        case PUT_TTL:
            return put_for(engine, batch->arguments[batch->argument_at], batch->arguments[batch->argument_at + 1],
                           batch->numbers[batch->number_at]);
        case GET:
            return run_get(batch, engine, now);
        case REMOVE:
            return remove(engine, batch->arguments[batch->argument_at]);
        case PUT_IF:
            return run_write_if(batch, engine, true);
        case REMOVE_IF:
            return run_write_if(batch, engine, false);
        case ADD:
            return run_add(batch, engine);
        case EXPIRE:
            return set_time(engine, batch->arguments[batch->argument_at], batch->numbers[batch->number_at]);
        case TTL:
            return run_ttl(batch, engine, now);
        case COUNT:
            return run_count(batch, engine);
        case SCAN:
        case SCAN_LIMIT:
        case SCAN_DOWN:
            return run_scan(batch, engine, kind, now);
        default:
            // `answer` in Python knows all kinds.
            return Ran::NOT_QUICK;
    }
}

// Fetch what the next commands look at; see ahead.hpp.
void look_ahead(Batch* batch, const HotEngine* engine) {
    const size_t left = batch->kinds.size - size_t(batch->index), count = left < COMMANDS_AHEAD ? left : COMMANDS_AHEAD;
    const unsigned char* kinds = reinterpret_cast<const unsigned char*>(batch->kinds.start) + batch->index;
    batch->ahead_start = batch->index;
    batch->ahead_stop = batch->index + Py_ssize_t(count);
    pequod::look_ahead(engine, {kinds, count, batch->arguments + batch->argument_at}, batch->seen);
}

}  // namespace

Ran run_quick(Batch* batch, HotEngine* engine, double now) {
    while (size_t(batch->index) < batch->kinds.size) {
        if (batch->index >= batch->ahead_stop) look_ahead(batch, engine);
        const Ran ran = run_one(batch, engine, now);
        if (ran == Ran::FAILED || ran == Ran::NOT_QUICK) return ran;
        if (ran == Ran::ABSENT) batch->statuses[batch->index] = ABSENT;
        if (ran == Ran::UNMET) batch->statuses[batch->index] = UNMET;
        advance(batch);
    }
    return Ran::DONE;
}

}  // namespace pequod
