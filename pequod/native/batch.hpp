// A batch of commands from the bytes of its message to those of its reply: what its files share.
//
//     batch_message.cpp   begins with a message, which it reads
//     batch_commands.cpp  runs the commands that are quick
//     batch.cpp           the Python type: the other commands, and the reply
#pragma once

#include "ahead.hpp"
#include "key_ranges.hpp"
#include "messages.hpp"
#include "outcomes.hpp"

namespace pequod {

// What a row costs on the wire beside its key and its value, at most: `ROW_BYTES` of the server.
constexpr long long ROW_BYTES = 8;

// The bytes of a reply, which become a Python object without being copied.
struct Output {
    // Exact `bytes` of `room`, of which `size` are written. Others have it as well once it was given out.
    PyObject* bytes;
    size_t size;
    size_t room;

    // Begin with room for about as much as outputs had of late, but no more than `most`; false: an error is set.
    bool begin(size_t most);

    char* start() const { return PyBytes_AS_STRING(bytes); }

    // As `Buffer::reserve`.
    char* reserve(size_t more) { return room - size < more && !grow(more) ? nullptr : start() + size; }

    void write_up_to(const char* end) { size = size_t(end - start()); }

    // A reference to what is written, null with an error set. What is written later is behind the first `kept` bytes,
    // in another object.
    PyObject* give_out(size_t kept);

  private:
    bool grow(size_t more);
};

// What one batch may be asked and may give.
struct BatchBounds {
    size_t commands_max;
    // Rows of one scan, and bytes of rows and errors.
    long long rows_max, bytes_max;
};

struct Batch {
    PyObject_HEAD
    // Its bytes are what the pieces below are of; null: they are somebody else's.
    PyObject* message;
    uint64_t number;
    Piece kinds;
    // How fresh the reads have to be, a message of its own; empty: as the server's settings say.
    Piece freshness;
    // The span of the caller, as W3C's headers say it; empty: none.
    Piece trace_parent;
    Piece trace_state;
    Piece* arguments;
    size_t argument_count, argument_room;
    uint64_t* numbers;
    size_t number_count, number_room;
    // Of its commands' request ids, empty: they have none; and the positions that the commands have in them, ascending,
    // none: those that they have here.
    Piece batch_id;
    uint32_t* positions;
    size_t position_count, position_room;
    // What those with ids have given so far.
    Outcomes outcomes;
    // The next command, and where its arguments and its number are.
    Py_ssize_t index;
    Py_ssize_t argument_at;
    Py_ssize_t number_at;
    // How many bytes of rows and errors the reply still has room for, of as many; and how many rows a scan may give.
    long long room, bytes_max;
    long long rows_max;
    Py_ssize_t row_count;
    char* statuses;
    size_t status_room;
    // The commands from `ahead_start` up to `ahead_stop` have been looked at, and what was seen of them.
    Py_ssize_t ahead_start;
    Py_ssize_t ahead_stop;
    Seen seen[COMMANDS_AHEAD];
    // Keys and values, with which the reply begins.
    Output rows;
    // Counts and errors, as they stand in the reply.
    Buffer counts;
    Buffer errors;
};

inline Batch* batch_of(PyObject* self) { return reinterpret_cast<Batch*>(self); }

inline unsigned char kind_of(const Batch* batch) {
    return static_cast<unsigned char>(batch->kinds.start[batch->index]);
}

// Go on to the next command.
inline void advance(Batch* batch) {
    const KindRow& kind = KIND_ROWS[kind_of(batch)];
    batch->argument_at += kind.argument_count;
    batch->number_at += kind.number_count;
    ++batch->index;
}

enum class Parsed { RIGHT, UNUSUAL, NO_MEMORY };

// A batch without a message, null with an error set.
Batch* new_batch();

// Begin with a message, which has to stay; see parse_message. The batch may have run another one before, if nobody has
// anything of that.
Parsed begin(Batch* batch, Piece message, const BatchBounds& bounds);

// Have a batch keep a copy of its message; false: an error is set.
bool own_message(Batch* batch, Piece message);

// Read a message of at most as many commands into a batch, whose columns fit the kinds then; the message has to stay.
// UNUSUAL is all that protobuf may read in another way, or refuse.
Parsed parse_message(Batch* batch, Piece message, size_t commands_max);

// Whether all keys that commands read, and all that they write, lie in ranges; null: those of all keys.
bool is_within(const Batch* batch, const KeyRanges* readable, const KeyRanges* writable);

// Run quick commands from the next one on. NOT_QUICK: one that is not comes next; FAILED: an error is set.
Ran run_quick(Batch* batch, HotEngine* engine, double now);

// Write the reply with what has run so far, and further fields behind it; `rows` has it then. False: an error is set.
bool write_reply(Batch* batch, uint64_t server_id, uint64_t revision, Piece rest);

bool write_count(Batch* batch, uint64_t count);

// Note what the next command gives, if it has a request id; false: an error is set.
bool note_outcome(Batch* batch, unsigned char status, Piece value);

// Write a row, the key of which is a prefix and a tail, and take what it needs from the room; not quick: there is too
// little. Both may be undone by setting `rows.size` and the room back.
Ran write_row(Batch* batch, Piece prefix, Piece tail, Piece value, long long* room);

// Write the value of a GET; not quick: there is no room for it.
Ran write_value(Batch* batch, Piece value);

int add_batch_type(PyObject* module);

}  // namespace pequod
