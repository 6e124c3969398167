// One connection without I/O: bytes of the socket in, events out, bytes for the socket out.
//
//     receive -> nghttp2 -> on_* -> streams, events            session.cpp
//     take, send, finish -> streams -> nghttp2                 calls.cpp
//     output  <- nghttp2 <- read_out <- streams
//     updated -> receive, hot calls, output                    reads.cpp
//
// nghttp2's functions call those of session.cpp, and none of these calls Python: what Python has to know stands in
// `events`, which it fetches. `updated` calls Python behind them.
#pragma once

#include "stream.hpp"

namespace pequod::http2 {

// The window of a connection; that of a stream until its client has heard of ours, which is HTTP/2's own; and that of a
// stream while a longer message is wanted, at most.
constexpr int32_t CONNECTION_WINDOW = 1 << 20, FIRST_WINDOW = 65535, WIDE_WINDOW = 1 << 20;
// While no handler waits for a message, windows are given back up to as many bytes that wait for their handlers.
constexpr size_t HELD_BYTES_MAX = 1 << 20;

enum EventKind : int {
    // A request begins: its headers, pairs of bytes; None: they are too long.
    OPENED = 0,
    // The next message of a stream is there, or none will come: `take` says which.
    READABLE = 1,
    // All that was sent on a stream has gone.
    DRAINED = 2,
    // A stream is over; the code of HTTP/2.
    CLOSED = 3,
};

// What a caller may do, by the header `authorization`.
struct Rights {
    // Bytes; null: none are known.
    PyObject* authorization;
    // Pairs of lists, as `KeyRanges` takes them; None: all keys.
    PyObject* readable;
    PyObject* writable;
    // A `Lease`; null: its role has no quotas.
    PyObject* lease;
    // Bytes: the header `authorization` by which other workers know its role; null: they do not.
    PyObject* relay_as;
};

constexpr size_t RIGHTS_MAX = 4;

// What a read of the socket needs; see reads.cpp.
struct Reads {
    // Where the bytes are, and the object that has it.
    Py_buffer from;
    // Functions of Python: what holds for hot calls, the way to the socket, and whatever else a read brings; null: the
    // connection does not stand.
    PyObject *turn, *write, *rest;
    // See `run_all`, and how many bytes the socket gets at a time.
    size_t most, unsent_max, output_max;
    // When the last one was; 0: there was none.
    double at_s;
    // Whether Python has nothing to do for the connection, and what this one holds by its account.
    bool is_calm;
    size_t noted_bytes;
};

// INVARIANTS:
// 1. `unread_bytes`, `unsent_bytes` and `held_bytes` are the sums of those of its streams, and `header_bytes` is, too.
// 2. `withheld_bytes`, for which the connection's window is not given back, are no more than `held_bytes`.
// 3. `wanted_count` streams are wanted, and their messages are not there as a whole.
struct Session {
    PyObject_HEAD
    NgSession* session;
    Stream* streams;
    size_t stream_count;
    // The one whose headers come; null: those of none do.
    Stream* opening;
    size_t message_bytes_max, header_bytes_max;
    // The window of a stream now, before a longer message is wanted; and once the client has heard of it.
    int32_t window, own_window;
    size_t unread_bytes, unsent_bytes, held_bytes, withheld_bytes, header_bytes;
    size_t wanted_count;
    // A list of (kind, stream, detail); of a stream that was over before anybody knew, None.
    PyObject* events;
    // A `HotCalls`, which answers calls without Python; null: none does.
    PyObject* hot;
    // The streams that may be hot calls, or have a message that may be, in their order; those before `hot_at` are done,
    // those from `hot_seen` on are not known to have come as a whole.
    int32_t* hot_streams;
    size_t hot_at, hot_seen, hot_size, hot_room;
    // How many hot calls were answered.
    size_t hot_answered;
    // Whether calls of it are back from another worker, and it has not been seen to since.
    bool is_touched;
    Reads reads;
    // The rights of those who call by this connection.
    Rights rights[RIGHTS_MAX];
    size_t rights_at;
    bool has_guard;
    // How often the events were handed out.
    size_t event_round;
    // Frames that go on with the present headers.
    unsigned continuation_count;
};

// False: an error is set.
bool start(Session* self, size_t streams_max);
void stop(Session* self);

Stream* stream_of(Session* self, int32_t id);
// Note an event; false: an error is set.
bool note(Session* self, Stream* stream, EventKind kind, PyObject* detail);
// Whether the headers of a stream are those of a hot call, which it then is: `hot_method` and `authorization` are set;
// or `takes_batches` and `authorization`, for one whose messages may be hot.
bool find_hot_method(Stream* stream);
// Queue a hot call; false: an error is set.
bool add_hot(Session* self, Stream* stream);
// Note that a call begins, with its headers.
bool note_opened(Session* self, Stream* stream);
// Note that a wanted message is there, or none will come, if that is so; one that may be hot is queued. False: an error
// is set.
bool note_readable(Session* self, Stream* stream);
// Let a long message in that is wanted, and set a stream's window; false: there is no memory.
bool widen(Session* self, Stream* stream);
bool set_window(Session* self, Stream* stream, int32_t window);
// Give back the windows that may be given back; false: there is no memory.
bool give_back(Session* self);
bool give_back_of(Session* self, Stream* stream, size_t bytes);
// Wait for the next message of a stream, whose windows are given back; false: there is no memory.
bool want(Session* self, Stream* stream);
// A stream's handler takes nothing more.
bool drop_unread(Session* self, Stream* stream);
// Begin a response, or go on with one; false: an error is set.
bool push(Session* self, Stream* stream);

// Take in what the socket brought; false: an error is set.
bool take_in(Session* self, const void* data, size_t size);
// Whether there are events, or bytes for the socket, or the end.
bool has_news(const Session* self);
// All of a response has been given; false: an error is set.
bool end_response(Session* self, Stream* stream);

void detach(Session* self);
// Call a function of Python, which may let go of the session's own reference to it; false: an error is set.
bool call(PyObject* function, PyObject* argument);
// Call `rest` with the error that is set; false: there is none, or an error is set.
bool tell_error(const Session* self);
// Whether nothing is left for Python.
bool is_done(const Session* self);
PyObject* session_attach(PyObject* object, PyObject* const* arguments, Py_ssize_t count);
PyObject* session_buffer(PyObject* object, PyObject* size);
PyObject* session_updated(PyObject* object, PyObject* size);

int add_session_type(PyObject* module);

}  // namespace pequod::http2
