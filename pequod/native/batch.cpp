// A batch of commands from the bytes of its message to those of its reply: `ExecuteRequest`, `ExecuteReply` of
// proto/pequod/v1/pequod.proto.
//
//     batch = Batch.parse(message, ...)              None: what is unusual is protobuf's to read
//     while batch.run(engine, now):                  runs what is quick, up to a command that is not
//         kind, first, second, number = batch.command()
//         batch.rows(keys, values), .value(value), .count(count), .done(), .absent() or .failed(error)
//     batch.reply(server_id, revision)
//
// Quick are the commands of engine.hpp on tables that clients write; and a scan up to an end by which a context is known,
// one range of which goes up to there, that is fresh and has no client-written rows among it: what `Engine.scan` asks
// before it answers without a record. Everything else is done by Python, in the order of the commands.
#include "batch.hpp"

#include "ahead.hpp"
#include "collect.hpp"
#include "engine.hpp"
#include "messages.hpp"

#include <structmember.h>

#include <cstddef>

namespace pequod {

namespace {

PyTypeObject* batch_type = nullptr;

// What a row costs on the wire beside its key and its value, at most: `ROW_BYTES` of the server.
constexpr long long ROW_BYTES = 8;

// Ranges of keys as Python lists of where they start and end, which ascend and do not touch.
struct KeyRanges {
    PyObject* starts;
    PyObject* ends;

    bool is_sound() const {
        if (PyList_GET_SIZE(starts) != PyList_GET_SIZE(ends)) return false;
        for (Py_ssize_t at = 0; at < PyList_GET_SIZE(starts); ++at) {
            PyObject* end = PyList_GET_ITEM(ends, at);
            if (!PyBytes_CheckExact(PyList_GET_ITEM(starts, at))) return false;
            if (end != Py_None && !PyBytes_CheckExact(end)) return false;
        }
        return true;
    }

    // The end of the range in which a key is; null: it is in none.
    PyObject* end_of(Piece key) const {
        Py_ssize_t low = 0, high = PyList_GET_SIZE(starts);
        while (low < high) {
            const Py_ssize_t middle = low + (high - low) / 2;
            if (compare(piece_of(PyList_GET_ITEM(starts, middle)), key) <= 0) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        PyObject* end = low ? PyList_GET_ITEM(ends, low - 1) : nullptr;
        return end && (end == Py_None || compare(key, piece_of(end)) < 0) ? end : nullptr;
    }

    bool holds(Piece key) const { return end_of(key); }

    // A last without bytes is none.
    bool covers(Piece first, Piece last) const {
        if (last.size && compare(last, first) <= 0) return true;
        PyObject* end = end_of(first);
        return end && (end == Py_None || (last.size && compare(last, piece_of(end)) <= 0));
    }
};

// Bytes that grow.
struct Buffer {
    char* start;
    size_t size;
    size_t room;

    // A place for so many bytes more, of which `size` is to be told; null: an error is set.
    char* reserve(size_t more) {
        if (room - size < more) {
            if (more > SIZE_MAX / 4 || size > SIZE_MAX / 4) return static_cast<char*>(nothing());
            const size_t roomy = (size + more) * 2 + 256;
            char* grown = static_cast<char*>(PyMem_Realloc(start, roomy));
            if (!grown) return static_cast<char*>(nothing());
            start = grown;
            room = roomy;
        }
        return start + size;
    }

    static void* nothing() { return PyErr_NoMemory(); }
};

struct Batch {
    PyObject_HEAD
    // Its bytes are what the pieces below are of.
    PyObject* message;
    uint64_t number;
    Piece kinds;
    // How fresh the reads have to be, a message of its own; empty: as the server's settings say.
    Piece freshness;
    Piece* arguments;
    size_t argument_count;
    uint64_t* numbers;
    size_t number_count;
    // The next command, and where its arguments and its number are.
    Py_ssize_t index;
    Py_ssize_t argument_at;
    Py_ssize_t number_at;
    // How many bytes of rows and errors the reply still has room for, and how many rows a scan may give.
    long long room;
    long long rows_max;
    Py_ssize_t row_count;
    char* statuses;
    // The commands from `ahead_start` up to `ahead_stop` have been looked at; the hashes of the ends of their scans.
    Py_ssize_t ahead_start;
    Py_ssize_t ahead_stop;
    size_t hashes[COMMANDS_AHEAD];
    // Keys and values, counts, and errors, as they stand in the reply.
    Buffer rows;
    Buffer counts;
    Buffer errors;
};

Batch* batch_of(PyObject* self) { return reinterpret_cast<Batch*>(self); }

unsigned char kind_of(const Batch* batch) { return static_cast<unsigned char>(batch->kinds.start[batch->index]); }

void advance(Batch* batch) {
    const unsigned char kind = kind_of(batch);
    batch->argument_at += Py_ssize_t(argument_count_of(kind));
    batch->number_at += Py_ssize_t(number_count_of(kind));
    ++batch->index;
}

// The columns fit the kinds: as many arguments and numbers as these take.
bool is_fitting(const Batch* batch) {
    size_t arguments = 0, numbers = 0;
    for (size_t at = 0; at < batch->kinds.size; ++at) {
        const unsigned char kind = static_cast<unsigned char>(batch->kinds.start[at]);
        if (kind < GET || kind > COUNT) return false;
        arguments += argument_count_of(kind);
        numbers += number_count_of(kind);
    }
    return arguments == batch->argument_count && numbers == batch->number_count;
}

enum class Parsed { RIGHT, UNUSUAL, NO_MEMORY };

Parsed parse_message(Batch* batch, Piece message) {
    const unsigned char* start = reinterpret_cast<const unsigned char*>(message.start);
    Reader reader = {start, start + message.size};
    size_t argument_room = 0, number_room = 0;
    bool has_memory = true;
    while (reader.is_right && has_memory && reader.at < reader.end) {
        switch (*reader.at++) {
            case BATCH:
                batch->number = reader.varint();
                break;
            case KINDS:
                batch->kinds = reader.piece();
                break;
            case ARGUMENT:
                has_memory = add(&batch->arguments, &batch->argument_count, &argument_room, reader.piece());
                break;
            case NUMBER:
                has_memory = add(&batch->numbers, &batch->number_count, &number_room, reader.varint());
                break;
            case NUMBERS: {
                const Piece packed = reader.piece();
                const unsigned char* first = reinterpret_cast<const unsigned char*>(packed.start);
                Reader inside = {first, first + packed.size};
                while (reader.is_right && has_memory && inside.at < inside.end) {
                    has_memory = add(&batch->numbers, &batch->number_count, &number_room, inside.varint());
                    reader.is_right = inside.is_right;
                }
                break;
            }
            case FRESHNESS:
                // Of two such fields, protobuf makes one.
                reader.is_right = !batch->freshness.size;
                if (reader.is_right) batch->freshness = reader.piece();
                break;
            default:
                reader.is_right = false;
        }
    }
    if (!has_memory) return Parsed::NO_MEMORY;
    return reader.is_right && is_fitting(batch) ? Parsed::RIGHT : Parsed::UNUSUAL;
}

// parse(message, commands_max, rows_max, piece_bytes_max): a batch, or None if its message is unusual, or refused.
PyObject* parse(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
    if (count != 4 || !PyBytes_CheckExact(arguments[0])) {
        PyErr_SetString(PyExc_TypeError, "parse takes a message and three limits");
        return nullptr;
    }
    const Py_ssize_t commands_max = PyLong_AsSsize_t(arguments[1]);
    const long long rows_max = PyLong_AsLongLong(arguments[2]);
    const long long piece_bytes_max = PyLong_AsLongLong(arguments[3]);
    if (PyErr_Occurred()) return nullptr;
    PyObject* self = batch_type->tp_alloc(batch_type, 0);
    if (!self) return nullptr;
    Batch* batch = batch_of(self);
    batch->message = Py_NewRef(arguments[0]);
    batch->room = piece_bytes_max;
    batch->rows_max = rows_max;
    batch->kinds = batch->freshness = {"", 0};
    const Parsed parsed = parse_message(batch, piece_of(arguments[0]));
    if (parsed == Parsed::RIGHT && Py_ssize_t(batch->kinds.size) <= commands_max && piece_bytes_max > 0) {
        batch->statuses = static_cast<char*>(PyMem_Calloc(batch->kinds.size + 1, 1));
        if (batch->statuses) return self;
    } else if (parsed != Parsed::NO_MEMORY) {
        Py_DECREF(self);
        Py_RETURN_NONE;
    }
    Py_DECREF(self);
    return PyErr_NoMemory();
}

// The rows of a scan: those of [start, stop), with a prefix before their keys.
struct Span {
    SortedRows* rows;
    Place start;
    Place stop;
    Piece prefix;
};

// How many rows a scan may give; not quick is a scan that gives as many, unless its client asked for no more.
struct Limit {
    long long most;
    bool is_asked;
};

bool write_count(Batch* batch, uint64_t count) {
    char* to = batch->counts.reserve(VARINT_MAX);
    if (!to) return false;
    batch->counts.size = size_t(write_varint(to, count) - batch->counts.start);
    return true;
}

// Write a row, and take what it needs from the room; not quick: there is too little.
Ran write_row(Batch* batch, Piece prefix, const Entry& entry, long long* room) {
    const Piece tail = piece_of(entry.key), value = piece_of(entry.value);
    *room -= static_cast<long long>(prefix.size + tail.size + value.size) + ROW_BYTES;
    if (*room < 0) return Ran::NOT_QUICK;
    char* to = batch->rows.reserve(prefix.size + tail.size + value.size + 2 * (1 + VARINT_MAX));
    if (!to) return Ran::FAILED;
    to = write_piece(write_piece(to, KEY, prefix, tail), VALUE, value);
    batch->rows.size = size_t(to - batch->rows.start);
    return Ran::DONE;
}

Ran write_up(Batch* batch, const Span& span, long long most, long long* room, long long* found) {
    for (Place place = span.start; place.leaf <= span.stop.leaf && *found < most; place = {place.leaf + 1, 0}) {
        const Leaf& leaf = span.rows->leaf(place.leaf);
        const size_t end = place.leaf == span.stop.leaf ? span.stop.at : leaf.size;
        for (; place.at < end && *found < most; ++place.at, ++*found) {
            const Ran ran = write_row(batch, span.prefix, leaf.entries[place.at], room);
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
            const Ran ran = write_row(batch, span.prefix, leaf.entries[end - 1], room);
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

Limit limit_of(const Batch* batch, unsigned char kind) {
    const uint64_t asked = number_count_of(kind) ? batch->numbers[batch->number_at] : 0;
    if (!asked || asked > uint64_t(batch->rows_max)) return {batch->rows_max, false};
    return {static_cast<long long>(asked), true};
}

// Scan up to an end by which a context is known, as `Engine.scan` does.
Ran scan_context(Batch* batch, HotEngine* engine, const End* end, Limit limit, double now) {
    const Piece first = batch->arguments[batch->argument_at], last = batch->arguments[batch->argument_at + 1];
    if (table_of(end->table)->entry_count) return Ran::NOT_QUICK;
    Hot* hot = hot_of(end->context);
    if (!hot->is_sound() || !hot->is_open()) return Ran::NOT_QUICK;
    const Piece prefix = piece_of(hot->prefix);
    if (!begins_with(first, prefix) || compare(first, last) >= 0) return Ran::NOT_QUICK;
    const Piece tail = {first.start + prefix.size, first.size - prefix.size};
    if (compare(tail, piece_of(hot->lower)) < 0) return Ran::NOT_QUICK;
    if (!(now <= hot->ready_until_s)) {
        const int is_fresh = refresh(hot, now);
        if (is_fresh <= 0) return is_fresh ? Ran::FAILED : Ran::NOT_QUICK;
    }
    SortedRows* rows = rows_of(hot);
    const Ran ran = write_rows(batch, {rows, place_of(rows, tail), {rows->older_size, rows->last.size}, prefix}, limit, false);
    if (ran == Ran::DONE) {
        ++reinterpret_cast<Counters*>(hot->counters)->hits;
        hot->last_used = ++reinterpret_cast<Numbers*>(engine->reads)->number;
    }
    return ran;
}

Ran run_scan(Batch* batch, HotEngine* engine, unsigned char kind, double now) {
    const Piece first = batch->arguments[batch->argument_at], last = batch->arguments[batch->argument_at + 1];
    const Ends* ends = reinterpret_cast<const Ends*>(engine->ends);
    const Limit limit = limit_of(batch, kind);
    const End* end = ends->table.find(batch->hashes[batch->index - batch->ahead_start], last);
    if (end) return kind == SCAN_DOWN ? Ran::NOT_QUICK : scan_context(batch, engine, end, limit, now);
    SortedRows* rows = nullptr;
    const Ran ran = rows_between(engine, first, last, &rows);
    if (ran != Ran::DONE) return ran;
    Span span = {rows, {0, 0}, {0, 0}, {"", 0}};
    if (rows) {
        span.start = lower_bound(rows, first);
        span.stop = lower_bound(rows, last);
    }
    return write_rows(batch, span, limit, kind == SCAN_DOWN);
}

Ran run_count(Batch* batch, HotEngine* engine) {
    const Piece first = batch->arguments[batch->argument_at], last = batch->arguments[batch->argument_at + 1];
    SortedRows* rows = nullptr;
    const Ran ran = rows_between(engine, first, last, &rows);
    if (ran != Ran::DONE) return ran;
    const size_t count = rows ? count_between(rows, lower_bound(rows, first), lower_bound(rows, last)) : 0;
    return write_count(batch, uint64_t(count)) ? Ran::DONE : Ran::FAILED;
}

// Write the value of a GET; not quick: there is no room for it.
Ran write_value(Batch* batch, Piece value) {
    const long long size = static_cast<long long>(value.size) + ROW_BYTES;
    if (size > batch->room) return Ran::NOT_QUICK;
    char* to = batch->rows.reserve(value.size + 1 + VARINT_MAX);
    if (!to) return Ran::FAILED;
    batch->rows.size = size_t(write_piece(to, VALUE, value) - batch->rows.start);
    batch->room -= size;
    return Ran::DONE;
}

Ran run_get(Batch* batch, HotEngine* engine) {
    PyObject* value = nullptr;
    const Ran ran = get(engine, batch->arguments[batch->argument_at], &value);
    return ran == Ran::DONE ? write_value(batch, piece_of(value)) : ran;
}

Ran run_one(Batch* batch, HotEngine* engine, double now) {
    const unsigned char kind = kind_of(batch);
    switch (kind) {
        case PUT:
            return put(engine, batch->arguments[batch->argument_at], batch->arguments[batch->argument_at + 1]);
        case GET:
            return run_get(batch, engine);
        case REMOVE:
            return remove(engine, batch->arguments[batch->argument_at]);
        case COUNT:
            return run_count(batch, engine);
        default:
            return run_scan(batch, engine, kind, now);
    }
}

bool read_ranges(PyObject* pair, KeyRanges* ranges) {
    return PyTuple_CheckExact(pair) && PyTuple_GET_SIZE(pair) == 2 &&
           PyList_CheckExact(ranges->starts = PyTuple_GET_ITEM(pair, 0)) &&
           PyList_CheckExact(ranges->ends = PyTuple_GET_ITEM(pair, 1)) && ranges->is_sound();
}

// is_within(readable, writable): whether all keys that commands read, and all that they write, lie in ranges.
PyObject* is_within(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    const Batch* batch = batch_of(self);
    KeyRanges readable, writable;
    if (count != 2 || !read_ranges(arguments[0], &readable) || !read_ranges(arguments[1], &writable)) {
        PyErr_SetString(PyExc_TypeError, "is_within takes two pairs of lists of bytes");
        return nullptr;
    }
    const Piece* argument = batch->arguments;
    bool are_within = true;
    for (size_t at = 0; are_within && at < batch->kinds.size; ++at) {
        const unsigned char kind = static_cast<unsigned char>(batch->kinds.start[at]);
        if (kind == PUT || kind == REMOVE) {
            are_within = writable.holds(argument[0]);
        } else {
            are_within = kind == GET ? readable.holds(argument[0]) : readable.covers(argument[0], argument[1]);
        }
        argument += argument_count_of(kind);
    }
    return PyBool_FromLong(are_within);
}

// Fetch what the next commands look at; see ahead.hpp.
void look_ahead(Batch* batch, const HotEngine* engine) {
    const size_t left = batch->kinds.size - size_t(batch->index), count = left < COMMANDS_AHEAD ? left : COMMANDS_AHEAD;
    const unsigned char* kinds = reinterpret_cast<const unsigned char*>(batch->kinds.start) + batch->index;
    batch->ahead_start = batch->index;
    batch->ahead_stop = batch->index + Py_ssize_t(count);
    pequod::look_ahead(engine, {kinds, count, batch->arguments + batch->argument_at}, batch->hashes);
}

// run(engine, now): tell whether there is a command that is not quick, before which it stopped.
PyObject* run(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    Batch* batch = batch_of(self);
    if (count != 2 || !PyObject_TypeCheck(arguments[0], engine_type) || !engine_of(arguments[0])->is_sound()) {
        PyErr_SetString(PyExc_TypeError, "run takes an engine and the time");
        return nullptr;
    }
    const double now = PyFloat_AsDouble(arguments[1]);
    if (now == -1.0 && PyErr_Occurred()) return nullptr;
    while (size_t(batch->index) < batch->kinds.size) {
        if (batch->index >= batch->ahead_stop) look_ahead(batch, engine_of(arguments[0]));
        const Ran ran = run_one(batch, engine_of(arguments[0]), now);
        if (ran == Ran::FAILED) return nullptr;
        if (ran == Ran::NOT_QUICK) Py_RETURN_TRUE;
        if (ran == Ran::ABSENT) batch->statuses[batch->index] = ABSENT;
        advance(batch);
    }
    Py_RETURN_FALSE;
}

bool is_at_command(Batch* batch) {
    if (size_t(batch->index) < batch->kinds.size) return true;
    PyErr_SetString(PyExc_IndexError, "all commands of the batch have run");
    return false;
}

// command(): kind, arguments, the second empty where there is one, and number of the next command.
PyObject* command(PyObject* self, PyObject*) {
    Batch* batch = batch_of(self);
    if (!is_at_command(batch)) return nullptr;
    const unsigned char kind = kind_of(batch);
    const Piece first = batch->arguments[batch->argument_at];
    const Piece second = argument_count_of(kind) == 2 ? batch->arguments[batch->argument_at + 1] : Piece{"", 0};
    const uint64_t number = number_count_of(kind) ? batch->numbers[batch->number_at] : 0;
    return Py_BuildValue("(iy#y#K)", int(kind), first.start, Py_ssize_t(first.size), second.start,
                         Py_ssize_t(second.size), static_cast<unsigned long long>(number));
}

// rows(keys, values): a scan gave these; False, and nothing is changed, if there is no room for them.
PyObject* take_rows(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    Batch* batch = batch_of(self);
    if (!is_at_command(batch)) return nullptr;
    if (count != 2 || !PyList_CheckExact(arguments[0]) || !PyList_CheckExact(arguments[1]) ||
        PyList_GET_SIZE(arguments[0]) != PyList_GET_SIZE(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "rows takes two lists of one length");
        return nullptr;
    }
    const Py_ssize_t found = PyList_GET_SIZE(arguments[0]);
    const size_t before = batch->rows.size;
    long long room = batch->room;
    for (Py_ssize_t at = 0; at < found; ++at) {
        PyObject *key = PyList_GET_ITEM(arguments[0], at), *value = PyList_GET_ITEM(arguments[1], at);
        if (!PyBytes_Check(key) || !PyBytes_Check(value)) {
            batch->rows.size = before;
            PyErr_SetString(PyExc_TypeError, "rows are of bytes");
            return nullptr;
        }
        room -= static_cast<long long>(piece_of(key).size + piece_of(value).size) + ROW_BYTES;
        char* to = room < 0 ? nullptr : batch->rows.reserve(piece_of(key).size + piece_of(value).size + 2 * (1 + VARINT_MAX));
        if (!to) {
            batch->rows.size = before;
            if (room < 0) Py_RETURN_FALSE;
            return nullptr;
        }
        to = write_piece(write_piece(to, KEY, piece_of(key)), VALUE, piece_of(value));
        batch->rows.size = size_t(to - batch->rows.start);
    }
    if (!write_count(batch, uint64_t(found))) {
        batch->rows.size = before;
        return nullptr;
    }
    batch->room = room;
    batch->row_count += found;
    advance(batch);
    Py_RETURN_TRUE;
}

// value(value): a GET gave this. False, and nothing is changed, if there is no room for it.
PyObject* take_value(PyObject* self, PyObject* value) {
    Batch* batch = batch_of(self);
    if (!is_at_command(batch)) return nullptr;
    if (!PyBytes_Check(value)) {
        PyErr_SetString(PyExc_TypeError, "a value is bytes");
        return nullptr;
    }
    const Ran ran = write_value(batch, piece_of(value));
    if (ran == Ran::FAILED) return nullptr;
    if (ran == Ran::NOT_QUICK) Py_RETURN_FALSE;
    advance(batch);
    Py_RETURN_TRUE;
}

// count(count): a COUNT gave this.
PyObject* take_count(PyObject* self, PyObject* argument) {
    Batch* batch = batch_of(self);
    const unsigned long long count = PyLong_AsUnsignedLongLong(argument);
    if (PyErr_Occurred() || !is_at_command(batch) || !write_count(batch, count)) return nullptr;
    advance(batch);
    Py_RETURN_NONE;
}

// done(): a PUT was done, or a REMOVE of a key that was there.
PyObject* done(PyObject* self, PyObject*) {
    if (!is_at_command(batch_of(self))) return nullptr;
    advance(batch_of(self));
    Py_RETURN_NONE;
}

// absent(): the key of a GET or a REMOVE is not there.
PyObject* absent(PyObject* self, PyObject*) {
    Batch* batch = batch_of(self);
    if (!is_at_command(batch)) return nullptr;
    batch->statuses[batch->index] = ABSENT;
    advance(batch);
    Py_RETURN_NONE;
}

// failed(error): a command failed; the bytes are a `CommandError`. Returns whether the reply has room for more.
PyObject* failed(PyObject* self, PyObject* error) {
    Batch* batch = batch_of(self);
    if (!is_at_command(batch)) return nullptr;
    if (!PyBytes_Check(error)) {
        PyErr_SetString(PyExc_TypeError, "an error is bytes");
        return nullptr;
    }
    char* to = batch->errors.reserve(piece_of(error).size + 1 + VARINT_MAX);
    if (!to) return nullptr;
    batch->errors.size = size_t(write_piece(to, ERROR, piece_of(error)) - batch->errors.start);
    batch->statuses[batch->index] = FAILED;
    batch->room -= static_cast<long long>(piece_of(error).size) + ROW_BYTES;
    advance(batch);
    return PyBool_FromLong(batch->room > 0);
}

// reply(server_id, revision, rest): the bytes of the reply, with what has run so far. The rest, which may be left out,
// is the bytes of further fields.
PyObject* reply(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    Batch* batch = batch_of(self);
    if ((count != 2 && count != 3) || (count == 3 && !PyBytes_Check(arguments[2]))) {
        PyErr_SetString(PyExc_TypeError, "reply takes the server's id, a revision, and bytes");
        return nullptr;
    }
    const Piece rest = count == 3 ? piece_of(arguments[2]) : Piece{"", 0};
    const uint64_t server_id = PyLong_AsUnsignedLongLong(arguments[0]);
    const uint64_t revision = PyErr_Occurred() ? 0 : PyLong_AsUnsignedLongLong(arguments[1]);
    if (PyErr_Occurred()) return nullptr;
    const size_t most = batch->kinds.size + batch->rows.size + batch->counts.size + batch->errors.size +
                        rest.size + 6 * (1 + VARINT_MAX);
    PyObject* bytes = PyBytes_FromStringAndSize(nullptr, Py_ssize_t(most));
    if (!bytes) return nullptr;
    char* start = PyBytes_AS_STRING(bytes);
    char* to = start;
    *to++ = REPLY_BATCH;
    to = write_varint(to, batch->number);
    to = write_piece(to, STATUSES, {batch->statuses, batch->kinds.size});
    if (batch->rows.size) std::memcpy(to, batch->rows.start, batch->rows.size);
    to += batch->rows.size;
    if (batch->counts.size) to = write_piece(to, COUNTS, {batch->counts.start, batch->counts.size});
    if (batch->errors.size) std::memcpy(to, batch->errors.start, batch->errors.size);
    to += batch->errors.size;
    *to++ = SERVER_ID;
    for (unsigned shift = 0; shift < 64; shift += 8) *to++ = char(server_id >> shift);
    *to++ = REVISION;
    to = write_varint(to, revision);
    std::memcpy(to, rest.start, rest.size);
    to += rest.size;
    if (_PyBytes_Resize(&bytes, to - start) < 0) return nullptr;
    return bytes;
}

// first_argument(): a tuple of the first argument, empty if there is none.
PyObject* first_argument(PyObject* self, PyObject*) {
    const Batch* batch = batch_of(self);
    if (!batch->argument_count) return PyTuple_New(0);
    return Py_BuildValue("(y#)", batch->arguments[0].start, Py_ssize_t(batch->arguments[0].size));
}

PyObject* get_freshness(PyObject* self, void*) {
    const Batch* batch = batch_of(self);
    return PyBytes_FromStringAndSize(batch->freshness.start, Py_ssize_t(batch->freshness.size));
}

PyObject* get_kinds(PyObject* self, void*) {
    const Batch* batch = batch_of(self);
    return PyBytes_FromStringAndSize(batch->kinds.start, Py_ssize_t(batch->kinds.size));
}

void dealloc(PyObject* self) {
    Batch* batch = batch_of(self);
    PyTypeObject* type = Py_TYPE(self);
    Py_XDECREF(batch->message);
    PyMem_Free(batch->arguments);
    PyMem_Free(batch->numbers);
    PyMem_Free(batch->statuses);
    PyMem_Free(batch->rows.start);
    PyMem_Free(batch->counts.start);
    PyMem_Free(batch->errors.start);
    type->tp_free(self);
    Py_DECREF(type);
}

template <typename Function>
PyCFunction as_method(Function function) {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)(void)>(function));
}

PyMethodDef methods[] = {
    {"parse", as_method(parse), METH_FASTCALL | METH_STATIC, "Return the batch of a message, None if it is unusual."},
    {"is_within", as_method(is_within), METH_FASTCALL, "Return whether all commands keep to ranges of keys."},
    {"run", as_method(run), METH_FASTCALL, "Run quick commands; tell whether there is one that is not."},
    {"command", command, METH_NOARGS, "Return kind, arguments and number of the next command."},
    {"first_argument", first_argument, METH_NOARGS, "Return the first argument, if there is one."},
    {"rows", as_method(take_rows), METH_FASTCALL, "Take what a scan gave."},
    {"value", take_value, METH_O, "Take what a GET gave."},
    {"count", take_count, METH_O, "Take what a COUNT gave."},
    {"done", done, METH_NOARGS, "Note that a write was done."},
    {"absent", absent, METH_NOARGS, "Note that there is no such key."},
    {"failed", failed, METH_O, "Take why a command failed."},
    {"reply", as_method(reply), METH_FASTCALL, "Return the bytes of the reply."},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef members[] = {
    {"index", T_PYSSIZET, offsetof(Batch, index), READONLY, "The next command."},
    {"argument_at", T_PYSSIZET, offsetof(Batch, argument_at), READONLY, "Where its arguments are."},
    {"number_at", T_PYSSIZET, offsetof(Batch, number_at), READONLY, "Where its number is."},
    {"room", T_LONGLONG, offsetof(Batch, room), READONLY, "How many bytes the reply still has room for."},
    {"row_count", T_PYSSIZET, offsetof(Batch, row_count), READONLY, "How many rows scans gave."},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef getters[] = {
    {"freshness", get_freshness, nullptr, "How fresh the reads have to be, as bytes.", nullptr},
    {"kinds", get_kinds, nullptr, "The kinds of the commands.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("A batch of commands under way.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_getset, getters},
    {0, nullptr},
};

PyType_Spec spec = {"pequod.engine._hot.Batch", sizeof(Batch), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE, slots};

}  // namespace

int add_batch_type(PyObject* module) {
    batch_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
    if (!batch_type) return -1;
    return PyModule_AddObjectRef(module, "Batch", reinterpret_cast<PyObject*>(batch_type));
}

}  // namespace pequod
