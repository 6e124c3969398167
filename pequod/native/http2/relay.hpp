// Hot calls that another worker of this server answers: reads of keys that it computes.
//
//     run_one: not quick here -> pass_on -> Link -> socket -> RelayEnd of the other worker -> hot_answer
//     the client <- Session <-------------- Link <- socket <- ANSWERED, the reply as it goes to the client
//     Python, as any call   <-------------- Link <- socket <- RETURNED: not quick there, or not allowed
//
//     relay.cpp         which worker, and whether a call may go there
//     relay_link.cpp    the way to one worker, and the calls that are on it
//     relay_end.cpp     the other end
//
// Only reads of one message go this way, and what goes wrong on it has them begin anew, as calls that Python passes on.
#pragma once

#include "hot_calls.hpp"

namespace pequod::http2 {

// What stands before each part on a link; both ends are one build on one machine.
struct RelayHead {
    uint32_t size, id;
    unsigned char kind, method, nothing[2];
};

enum RelayKind : unsigned char {
    // To the other worker: the token of what replies have to show at least; whose rights calls have, by a header
    // `authorization`; a call. The first two hold for all calls behind them.
    STATE = 1,
    ROLE = 2,
    CALL = 3,
    // Back: a reply with the head of its message; nothing, since the call is not answered there.
    ANSWERED = 4,
    RETURNED = 5,
};

// A call that is on its way. A session that is null: nothing is expected of it any more.
struct Flight {
    Session* session;
    int32_t stream;
    // When it went, and when its client does not wait any longer; 0: it waits for ever.
    double at_s, deadline_s;
    size_t size;
};

// `RelayLink`, the way to one worker.
//
// INVARIANTS:
// 1. The call `base + n` is `flights[at + n]`; those before `at` are forgotten, and the one at `at` has a session.
// 2. The counts and bytes of `calls->relay` are those of the flights with sessions of all links.
struct Link {
    PyObject_HEAD
    HotCalls* calls;
    // Functions of Python: the way to the socket, and what has `flush` called soon; null: the link is down.
    PyObject *write, *soon;
    Py_buffer from;
    Flight* flights;
    size_t at, size, room;
    uint32_t base;
    // How many of them have not been sent.
    size_t fresh;
    Bytes in, out, token, role;
    // When something came last; whether `flush` will be called; whether the worker has kept silent for too long.
    double heard_s;
    bool is_soon, is_silent;
    // How many calls have come back in a row that it has not answered, and how many were spared it since.
    unsigned returned, spared;
    // Sessions that have news, and the calls among them that were slow.
    Session** touched;
    size_t touched_size, touched_room;
    PyObject* slow;
};

extern PyTypeObject* link_type;

// Send a call on a link, with the state that its reply has to show; false: there is no memory.
bool send_call(Link* link, Session* session, Stream* stream, Piece message, Piece token, Piece role, double deadline_s);
// Send what there is; false: an error is set.
bool flush(Link* link);

int add_link_type(PyObject* module);
int add_relay_end_type(PyObject* module);

}  // namespace pequod::http2
