// A run of hot calls: what holds for it, one call after the other, and what Python has to know of it.
//
//     HotTurn -> take_turn -> run_all: run_next ... -> Done -> told: a HotRan
#include "../arguments.hpp"
#include "hot_calls.hpp"

namespace pequod::http2 {

namespace {

// As many parts has a `HotTurn`.
constexpr Py_ssize_t TURN_SIZE = 7;
// So many of a queue that have run are forgotten, though others wait behind them.
constexpr size_t RUN_MAX = 256;

bool sample_one(Samples* samples, const Stream* stream, double seconds) {
    const Piece message = {reinterpret_cast<const char*>(stream->in.front()) + HEAD_BYTES, stream->next().size};
    return sample_call(samples, message, is_write(HotMethod(stream->hot_method)), seconds);
}

// Answer one call, or give it to Python; false: an error is set.
bool run_one(Session* self, const HotTurn& turn, Stream* stream, double* at_s, Done* done) {
    HotRights may;
    KeyRanges readable, writable;
    bool is_known = true;
    if (self->has_guard && !take_rights(self, stream, &readable, &writable, &may, &is_known)) return false;
    if (!is_known) return note_opened(self, stream);
    const Ran ran = hot_answer(turn, may, stream);
    if (ran == Ran::FAILED) return false;
    if (ran != Ran::DONE) {
        stream->reply.free();
        bool is_passed;
        if (!pass_on(self, turn, may, stream, &is_passed)) return false;
        return is_passed || note_opened(self, stream);
    }
    const double now = monotonic(), seconds = now - *at_s;
    *at_s = turn.calls->answered_s = now;
    add_to(turn.calls->tallies + stream->hot_method, seconds);
    if (seconds >= turn.calls->slow_s && !tell_slow(&done->slow, stream, seconds)) return false;
    if (turn.calls->samples.is_due(seconds) && !sample_one(&turn.calls->samples, stream, seconds)) return false;
    ++done->answered;
    ++self->hot_answered;
    ++turn.calls->answered;
    turn.calls->reads += !is_write(HotMethod(stream->hot_method));
    stream->unsent_bytes += stream->reply.left();
    self->unsent_bytes += stream->reply.left();
    stream->head.free();
    return end_response(self, stream);
}

// Run what comes next in the queue; false: an error is set.
bool run_next(Session* self, const HotTurn& turn, double* at_s, Done* done) {
    Stream* stream = stream_of(self, self->hot_streams[self->hot_at++]);
    if (!stream) return true;
    return (stream->is_of_batches ? run_batch : run_one)(self, turn, stream, at_s, done);
}

}  // namespace

// What Python logs of a slow call: method, seconds, headers, request.
bool tell_slow(PyObject** slow, const Stream* stream, double seconds) {
    if (!*slow && !(*slow = PyList_New(0))) return false;
    const Incoming message = stream->next();
    PyObject* headers = stream->headers();
    PyObject* told = headers ? Py_BuildValue("(idNy#)", int(stream->hot_method), seconds, headers,
                                             reinterpret_cast<const char*>(stream->in.front()) + HEAD_BYTES,
                                             Py_ssize_t(message.size))
                             : nullptr;
    return append(*slow, told);
}

PyObject* told(const Done& done) {
    const auto or_none = [](PyObject* object) { return object ? object : Py_NewRef(Py_None); };
    return Py_BuildValue("(nNNNN)", done.answered, or_none(done.slow), or_none(done.streams),
                         or_none(done.slow_batches), or_none(done.begun));
}

PyObject* dropped(const Done& done) {
    for (PyObject* one : {done.slow, done.streams, done.slow_batches, done.begun}) Py_XDECREF(one);
    return nullptr;
}

bool take_turn(PyObject* calls, PyObject* said, KeyRanges* homes, HotTurn* turn) {
    if (!check_all(PyTuple_Check(said) && PyTuple_GET_SIZE(said) == TURN_SIZE && calls, "a turn has seven parts")) {
        return false;
    }
    PyObject* const* parts = reinterpret_cast<PyTupleObject*>(said)->ob_item;
    turn->now = PyFloat_AsDouble(parts[0]);
    turn->age_ms = parts[3] == Py_None ? -1 : PyLong_AsLongLong(parts[3]);
    turn->room = PyLong_AsLongLong(parts[6]);
    if (PyErr_Occurred()) return false;
    if (!check_all(PyBytes_CheckExact(parts[1]) && take_ranges(parts[5], homes, &turn->homes),
                   "a turn has a token as bytes, and ranges of keys")) {
        return false;
    }
    turn->calls = reinterpret_cast<HotCalls*>(calls);
    turn->engine = engine_of(turn->calls->engine);
    turn->token = piece_of(parts[1]);
    turn->is_token_own = parts[2] == Py_True;
    turn->may_read = parts[4] == Py_True;
    return check_all(turn->engine->is_sound(), "the engine is none");
}

void rewind(Session* self) {
    const size_t left = self->hot_size - self->hot_at;
    self->hot_seen = self->hot_size;
    if (left && self->hot_at < RUN_MAX) return;
    if (left) std::memmove(self->hot_streams, self->hot_streams + self->hot_at, left * sizeof(*self->hot_streams));
    self->hot_at = 0;
    self->hot_seen = self->hot_size = left;
}

bool run_all(Session* self, const HotTurn& turn, size_t most, size_t unsent_max, Done* done) {
    double at_s = monotonic();
    for (size_t left = most; self->hot_at < self->hot_size && left && self->unsent_bytes < unsent_max; --left) {
        if (!run_next(self, turn, &at_s, done)) return false;
        if (done->begun) break;
    }
    rewind(self);
    return !turn.calls->relay.links || flush_links(turn.calls);
}

// run_hot(most, unsent_max, turn): see NativeSession.
PyObject* session_run_hot(PyObject* object, PyObject* const* arguments, Py_ssize_t count) {
    Session* self = reinterpret_cast<Session*>(object);
    if (!check_count("run_hot", count, 3)) return nullptr;
    const size_t most = PyLong_AsSize_t(arguments[0]), unsent_max = PyLong_AsSize_t(arguments[1]);
    KeyRanges homes;
    HotTurn turn = {};
    if (PyErr_Occurred() || !take_turn(self->hot, arguments[2], &homes, &turn)) return nullptr;
    Done done;
    return run_all(self, turn, most, unsent_max, &done) ? told(done) : dropped(done);
}

}  // namespace pequod::http2
