// One connection from the client's side, without I/O: bytes of the socket in, events out, bytes for the socket out.
//
//     receive -> nghttp2 -> on_* -> calls, events              client.cpp
//     open, send, finish, take, reset -> calls -> nghttp2      client_calls.cpp
//     output  <- nghttp2 <- read_out <- calls
//
// The end of a call that went well and has one message is an event with that message: for a usual call, Python sees no
// headers. nghttp2's functions call those of client.cpp, and none of these calls Python.
#pragma once

#include "stream.hpp"

namespace pequod::http2 {

// The window of a connection, which is given back as soon as something comes: what streams hold is bounded by theirs.
constexpr int32_t CLIENT_WINDOW = 4 << 20;

enum ClientEvent : int {
    // A call with one reply has ended well; the message.
    DONE = 0,
    // The next message of a stream, which was waited for; see `take`.
    MESSAGE = 1,
    // All that was sent on a stream has gone.
    EMPTIED = 2,
    // A call is over; a tuple: see `NativeClientSession.receive`.
    ENDED = 3,
    // The server has said hello.
    GREETED = 4,
    // The server takes no more calls.
    LEAVING = 5,
};

// INVARIANTS:
// 1. Nothing is told of a call that is over or let go.
// 2. A call with one reply is wanted until it is over: its windows are given back as its message comes.
struct Call : Stream {
    // It has one reply, which comes with its end. All of the request has gone. Its end was told. Python has given it
    // up. The headers of its response are gRPC's.
    bool is_unary, has_sent_all, is_over, is_let_go, is_grpc;
    int http_status;
    // -1: none has come.
    int status;
    // The text of the status; how messages are compressed that are. `head` has the trailing metadata.
    Bytes text, encoding;
};

// INVARIANTS:
// 1. `unread_bytes` and `unsent_bytes` are the sums of those of its calls.
struct ClientSession {
    PyObject_HEAD
    NgSession* session;
    Call* calls;
    size_t stream_count;
    size_t message_bytes_max, header_bytes_max;
    size_t unread_bytes, unsent_bytes;
    // Bytes: what the server is called, and what the client is.
    PyObject* authority;
    PyObject* agent;
    bool is_secure, is_greeted;
    // A list of (kind, stream, detail).
    PyObject* events;
};

// False: an error is set.
bool start(ClientSession* self, int32_t window);
void stop(ClientSession* self);

// The call of a stream; null: it is over, or there is none.
Call* call_of(ClientSession* self, int32_t id);
// Begin a call, with a message that is its only one, or null; returns its stream, 0: the connection takes no more; -1:
// an error is set.
int32_t open(ClientSession* self, PyObject* path, PyObject* timeout, PyObject* metadata, PyObject* message,
             bool is_unary);
// Return a message that is there as a whole: bytes, or a pair of bytes and their encoding; null: an error is set.
PyObject* take_message(ClientSession* self, Call* call, const Incoming& message);
// Wait for the next message; false: there is no memory.
bool want(ClientSession* self, Call* call);
// Go on with what is to be sent; false: an error is set.
bool push(ClientSession* self, Call* call);
// Tell nothing more of a call, and drop what it has.
void let_go(ClientSession* self, Call* call);

int add_client_type(PyObject* module);

}  // namespace pequod::http2
