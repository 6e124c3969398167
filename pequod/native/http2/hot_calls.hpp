// Hot calls: calls of one message that the engine answers without a Python object for each.
//
//     headers -> find_hot_method -> add_hot -> the queue of the session
//     end of a read -> sort_hot: a call whose message has not come is Python's
//     run_hot -> hot_answer: message -> commands -> engine -> reply;  not quick: Python's, nothing has happened
//
//     hot_calls.cpp    the queue, and what Python says about it
//     hot_runs.cpp     a run of those in the queue
//     reads.cpp        a read of a socket that brings nothing else
//     hot_answer.cpp   one call: its message, its rights, its command, its reply
//     hot_keys.cpp     one call of many keys
//     hot_batches.cpp  the messages of Execute, once Python has taken the first one of a stream
//     samples.cpp      which keys the time goes to
//     relay.cpp        one call that another worker answers
#pragma once

#include "../batch.hpp"
#include "../key_ranges.hpp"
#include "lease.hpp"
#include "samples.hpp"
#include "session.hpp"

#include <iterator>

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
    HOT_WRITE_IF,
    HOT_ADD,
    HOT_EXPIRE,
    HOT_TTL,
    HOT_METHODS
};

// Whether a call writes what its key's present value decides, which its reply tells.
inline bool is_decided(HotMethod method) { return method == HOT_WRITE_IF || method == HOT_ADD; }
inline bool is_write(HotMethod method) {
    return method == HOT_PUT || method == HOT_REMOVE || method == HOT_MULTI_PUT || method == HOT_EXPIRE ||
           is_decided(method);
}

// Longer requests and replies are counted against memory, which is Python's to do.
constexpr size_t HOT_BYTES_MAX = 16 << 10;
// The bounds of the histogram of durations, in seconds, as metrics have them.
constexpr double HOT_BOUNDS_S[] = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
                                   0.05,   0.1,     0.25,   0.5,   1.0,    2.5,   10.0};
constexpr size_t HOT_BUCKETS = std::size(HOT_BOUNDS_S) + 1;
// Those of the histogram of how many commands batches have.
constexpr size_t BATCH_BOUNDS[] = {1, 4, 16, 64, 256, 1024, 4096, 16384};
constexpr size_t BATCH_BUCKETS = std::size(BATCH_BOUNDS) + 1;
// Longer tokens are Python's to write.
constexpr size_t TOKEN_MAX = 256;

// How many calls of a method were answered, and how long they took.
struct HotTally {
    uint64_t count;
    double seconds;
    uint64_t buckets[HOT_BUCKETS];
};

// The other workers of a server, and the calls that are on their way to them; see relay.hpp.
struct Relay {
    // An `Owners`, ranges of the keys that all workers have, and a `RelayLink` of each server, or None; null: there are
    // no other workers.
    PyObject *owners, *tables, *links;
    // The places of this worker and of the home among the servers.
    Py_ssize_t own, home;
    // Whether rights are looked at; how many calls may be on their way.
    bool has_guard;
    size_t count_max;
    // How many are, and their bytes; how many have gone, and how many of these have come back unanswered.
    size_t count, bytes;
    uint64_t passed, returned;
};

// The hot calls of a server: what they run on, and their counts. Python makes it; only `run_hot` changes the counts.
struct HotCalls {
    PyObject_HEAD
    PyObject* engine;
    // What Python remembers of writes with request ids: whether it knows none of a batch's ids, and what takes
    // outcomes.
    PyObject *is_new, *remember;
    uint64_t server_id;
    size_t rows_max, commands_max, reply_bytes_max, chunk_bytes;
    // Slower calls are told of.
    double slow_s;
    // How many calls were answered; and how many of these, and of the batches, read.
    uint64_t answered, reads;
    // When the last call was answered.
    double answered_s;
    HotTally tallies[HOT_METHODS];
    // Batches of Execute, how many commands they had, and how many of each kind.
    HotTally batches;
    uint64_t batch_sizes[BATCH_BUCKETS], batch_commands, commands[256];
    // The one that runs, or ran last; null: there is none yet.
    Batch* batch;
    Relay relay;
    // Of these, and of batches.
    Samples samples;
};

extern PyTypeObject* hot_calls_type;

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
    // How many bytes of rows the reply of a batch may have.
    long long room;
};

// What the caller may do, and use; null: everything.
struct HotRights {
    const KeyRanges* readable = nullptr;
    const KeyRanges* writable = nullptr;
    Lease* lease = nullptr;
    // By which header `authorization` other workers know the role; null: they do not.
    PyObject* relay_as = nullptr;
};

// What one run did.
struct Done {
    Py_ssize_t answered = 0;
    // Lists of slow calls, of slow batches, and of the streams whose batches ran; null: there are none.
    PyObject *slow = nullptr, *slow_batches = nullptr, *streams = nullptr;
    int32_t last_stream = 0;
    // A stream, and its batch with which Python has to go on at once; null: there is none.
    PyObject* begun = nullptr;

    // Whether there is nothing that Python has to note.
    bool is_quiet() const { return !slow && !slow_batches && !streams && !begun; }
};

double monotonic();
void add_to(HotTally* tally, double seconds);
// Null: an error is set.
PyObject* tally_of(const HotTally& tally);
PyObject* list_of_counts(const uint64_t* counts, size_t count);

// Find what the caller of a stream may do, if that is known; false: an error is set.
bool take_rights(const Session* self, const Stream* stream, KeyRanges* readable, KeyRanges* writable, HotRights* rights,
                 bool* is_known);

// Write the present state as fields of a reply: the token, unless it is empty, and the age if it is known.
inline char* write_state(char* to, const HotTurn& turn, unsigned char token_tag, unsigned char age_tag) {
    if (turn.token.size) {
        char own[VARINT_MAX];
        const size_t size = turn.is_token_own ? size_t(write_varint(own, uint64_t(turn.engine->revision)) - own) : 0;
        to = write_piece(to, token_tag, turn.token, {own, size});
    }
    if (turn.age_ms < 0) return to;
    *to++ = char(age_tag);
    return write_varint(to, uint64_t(turn.age_ms));
}

// The ranges that Python hands over: null stands for all keys. False: they are none.
inline bool take_ranges(PyObject* object, KeyRanges* ranges, const KeyRanges** found) {
    *found = object == Py_None ? nullptr : ranges;
    return object == Py_None || read_ranges(object, ranges);
}

// Give those to Python whose messages have not come as a whole; false: an error is set.
bool sort_hot(Session* self);
// Forget those of the queue that have had their turn. The others are known to have come as a whole.
void rewind(Session* self);
void drop_hot(Session* self);

// Take what Python says of a run, a `HotTurn`, which has to stay; false: an error is set.
bool take_turn(PyObject* calls, PyObject* said, KeyRanges* homes, HotTurn* turn);
// Run what is queued, as far as it may; false: an error is set.
bool run_all(Session* self, const HotTurn& turn, size_t most, size_t unsent_max, Done* done);
// Return what a run did, a `HotRan`; or null, since an error is set.
PyObject* told(const Done& done);
PyObject* dropped(const Done& done);

// Note what Python logs of a slow call; false: an error is set.
bool tell_slow(PyObject** slow, const Stream* stream, double seconds);

// The range that the message of a read asks for, without a last if it is one key; false: it is Python's.
bool range_of(HotMethod method, Piece message, Piece* first, Piece* last);
// The keys that the message of a MultiGet asks for, `KEYS_MAX` at the most; 0: it is Python's.
size_t keys_of(Piece message, Piece* keys);

// Answer one call: DONE, its reply is in the stream; NOT_QUICK, nothing has happened; FAILED, an error is set.
Ran hot_answer(const HotTurn& turn, const HotRights& rights, Stream* stream);

// Whether no write with an id of this batch has come before: 1 or 0; -1: an error is set.
int is_new(const HotCalls* calls, Piece batch_id);
// Remember what writes with ids of a batch have given, in the same turn; false: an error is set.
bool remember(const HotCalls* calls, Piece batch_id, const Outcomes& outcomes);
// The same of one write, unless its id is empty: then it has none.
bool remember(const HotCalls* calls, Piece request_id, const Write& write, unsigned char status, Piece value);

// Have another worker answer a call that is not quick here, if that is possible; false: an error is set.
bool pass_on(Session* self, const HotTurn& turn, const HotRights& rights, Stream* stream, bool* is_passed);
// Send what was passed on; false: an error is set.
bool flush_links(const HotCalls* calls);

// Give a call that was kept back, or the next message of one, to Python; false: an error is set.
bool leave(Session* self, Stream* stream);

// Run the next message of a stream of batches, or give it to Python; false: an error is set.
bool run_batch(Session* self, const HotTurn& turn, Stream* stream, double* at_s, Done* done);
PyObject* hot_batch_tallies(PyObject* object, PyObject*);
PyObject* hot_relay_by(PyObject* object, PyObject* const* arguments, Py_ssize_t count);

PyObject* session_use_hot(PyObject* object, PyObject* const* arguments, Py_ssize_t count);
PyObject* session_run_hot(PyObject* object, PyObject* const* arguments, Py_ssize_t count);
PyObject* session_hand_over(PyObject* object, PyObject*);
PyObject* session_stranger(PyObject* object, PyObject*);
PyObject* session_admit(PyObject* object, PyObject* const* arguments, Py_ssize_t count);
PyObject* session_forget_rights(PyObject* object, PyObject*);
PyObject* session_hot_count(PyObject* object, void*);

int add_hot_type(PyObject* module);

}  // namespace pequod::http2
