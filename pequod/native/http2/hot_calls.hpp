// Hot calls: calls of one message that the engine answers without a Python object for each.
//
//     headers -> find_hot_method -> add_hot -> the queue of the session
//     end of a read -> sort_hot: a call whose message has not come is Python's
//     run_hot -> hot_answer: message -> commands -> engine -> reply;  not quick: Python's, nothing has happened
//
//     hot_calls.cpp    the queue, and what Python says about it
//     hot_answer.cpp   one call: its message, its rights, its command, its reply
#pragma once

#include "../batch.hpp"
#include "../key_ranges.hpp"
#include "session.hpp"

namespace pequod::http2 {

// In the order of HOT_METHODS of pequod/native/http2/__init__.py.
enum HotMethod : unsigned char {
    NOT_HOT,
    HOT_GET,
    HOT_PUT,
    HOT_REMOVE,
    HOT_COUNT,
    HOT_SCAN,
    HOT_MULTI_GET,
    HOT_MULTI_PUT,
    HOT_METHODS
};

inline bool is_write(HotMethod method) { return method == HOT_PUT || method == HOT_REMOVE || method == HOT_MULTI_PUT; }

// Longer requests and replies are counted against memory, which is Python's to do.
constexpr size_t HOT_BYTES_MAX = 16 << 10;
// The bounds of the histogram of durations, in seconds, as metrics have them.
constexpr double HOT_BOUNDS_S[] = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
                                   0.05,   0.1,     0.25,   0.5,   1.0,    2.5,   10.0};
constexpr size_t HOT_BUCKETS = sizeof(HOT_BOUNDS_S) / sizeof(*HOT_BOUNDS_S) + 1;

// How many calls of a method were answered, and how long they took.
struct HotTally {
    uint64_t count;
    double seconds;
    uint64_t buckets[HOT_BUCKETS];
};

// The hot calls of a server: what they run on, and their counts. Python makes it; only `run_hot` changes the counts.
struct HotCalls {
    PyObject_HEAD
    PyObject* engine;
    uint64_t server_id;
    size_t rows_max, commands_max, reply_bytes_max, chunk_bytes;
    // Slower calls are told of.
    double slow_s;
    HotTally tallies[HOT_METHODS];
};

// What holds while one run of hot calls lasts.
struct HotTurn {
    HotCalls* calls;
    HotEngine* engine;
    double now;
    // The token of replies; `is_token_own`: the revision goes behind it.
    Piece token;
    bool is_token_own;
    // Whether reads are as fresh as the settings say; what is not is Python's to refuse.
    bool may_read;
    // -1: not known.
    long long age_ms;
    // Whose writes are taken; null: all.
    const KeyRanges* homes;
};

// What the caller may do; null: everything.
struct HotRights {
    const KeyRanges* readable;
    const KeyRanges* writable;
};

// Give those to Python whose messages have not come as a whole; false: an error is set.
bool sort_hot(Session* self);
void drop_hot(Session* self);

// Answer one call: DONE, its reply is in the stream; NOT_QUICK, nothing has happened; FAILED, an error is set.
Ran hot_answer(const HotTurn& turn, const HotRights& rights, Stream* stream);

PyObject* session_use_hot(PyObject* object, PyObject* const* arguments, Py_ssize_t count);
PyObject* session_run_hot(PyObject* object, PyObject* const* arguments, Py_ssize_t count);
PyObject* session_hand_over(PyObject* object, PyObject*);
PyObject* session_stranger(PyObject* object, PyObject*);
PyObject* session_admit(PyObject* object, PyObject* const* arguments, Py_ssize_t count);
PyObject* session_forget_rights(PyObject* object, PyObject*);
PyObject* session_hot_count(PyObject* object, void*);

int add_hot_type(PyObject* module);

}  // namespace pequod::http2
