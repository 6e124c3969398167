// The messages of Execute: batches that run from the bytes of a message to those of its reply, like `run_quick` of the
// server, and by the same commands (batch.hpp).
//
//     message -> begin -> may it run? -> run_quick -> write_reply -> the stream
//                unusual, or refused: Python's, nothing has happened
//                                       a command is not quick, or the reply is long: Python goes on with the batch
#include "../arguments.hpp"
#include "hot_calls.hpp"

namespace pequod::http2 {

namespace {

// A reply is not added to as many bytes that its client has not let in: Python's writer waits there.
constexpr size_t UNSENT_BYTES_MAX = 64 << 10;

size_t bucket_of(size_t commands) {
    size_t at = 0;
    while (at + 1 < BATCH_BUCKETS && commands > BATCH_BOUNDS[at]) ++at;
    return at;
}

// Whether the next message of a stream may be taken here at all.
bool is_takeable(const Stream* stream, const Incoming& message) {
    return !stream->lengthy && !message.is_compressed && message.size <= HOT_BYTES_MAX && !stream->first_out &&
           stream->unsent_bytes <= UNSENT_BYTES_MAX;
}

// What a batch uses of its caller's quotas at the most.
Use use_of(const Batch* batch, size_t message_bytes) {
    long long puts = 0;
    for (size_t at = 0; at < batch->kinds.size; ++at) {
        const unsigned char kind = static_cast<unsigned char>(batch->kinds.start[at]);
        puts += kind == PUT || kind == PUT_IF || kind == PUT_TTL || kind == ADD;
    }
    // The message has all keys and values, but for the sums that adds may make.
    const long long size = static_cast<long long>(message_bytes) + puts * static_cast<long long>(SUM_BYTES);
    return {static_cast<long long>(batch->kinds.size), puts, puts ? size : 0};
}

// Whether all judges of `run_quick` let a batch pass.
bool may_run(const HotTurn& turn, const HotRights& rights, const Batch* batch) {
    return turn.may_read && turn.token.size <= TOKEN_MAX && !batch->freshness.size &&
           is_within(batch, rights.readable, rights.writable) && is_within(batch, nullptr, turn.homes);
}

void tally_batch(HotCalls* calls, const Batch* batch, double seconds) {
    add_to(&calls->batches, seconds);
    ++calls->batch_sizes[bucket_of(batch->kinds.size)];
    calls->batch_commands += batch->kinds.size;
    for (size_t at = 0; at < batch->kinds.size; ++at) {
        ++calls->commands[static_cast<unsigned char>(batch->kinds.start[at])];
    }
}

// What Python logs of a slow batch: seconds, kinds, first argument or None, rows.
bool tell_slow_batch(PyObject** slow, const Batch* batch, double seconds) {
    if (!*slow && !(*slow = PyList_New(0))) return false;
    const Piece first = batch->argument_count ? batch->arguments[0] : Piece{nullptr, 0};
    return append(*slow, Py_BuildValue("(dy#y#n)", seconds, batch->kinds.start, Py_ssize_t(batch->kinds.size),
                                       first.start, Py_ssize_t(first.size), batch->row_count));
}

// Add the reply of a batch that has run to what goes; false: an error is set.
bool send_reply(Session* self, const HotTurn& turn, Stream* stream, Batch* batch) {
    char state[TOKEN_MAX + 4 * VARINT_MAX];
    const size_t size = size_t(write_state(state, turn, TOKEN, AGE_MS) - state);
    if (!write_reply(batch, turn.calls->server_id, uint64_t(turn.engine->revision), {state, size})) return false;
    const size_t length = batch->rows.size;
    unsigned char head[HEAD_BYTES] = {0};
    for (unsigned at = 1; at < HEAD_BYTES; ++at) head[at] = static_cast<unsigned char>(length >> (32 - 8 * at));
    if (!stream->reply.reserve(HEAD_BYTES + length)) return PyErr_NoMemory(), false;
    stream->reply.add(head, HEAD_BYTES);
    stream->reply.add(batch->rows.start(), length);
    stream->unsent_bytes += HEAD_BYTES + length;
    self->unsent_bytes += HEAD_BYTES + length;
    return push(self, stream);
}

// Go on behind the message that has run; false: an error is set.
bool go_on(Session* self, Stream* stream, const Incoming& message) {
    stream->in.skip(HEAD_BYTES + message.size);
    stream->unread_bytes -= HEAD_BYTES + message.size;
    self->unread_bytes -= HEAD_BYTES + message.size;
    return (give_back_of(self, stream, HEAD_BYTES + message.size) && set_window(self, stream, self->window)) ||
           (PyErr_NoMemory(), false);
}

// Wait for the next message of a stream, or say that none will come.
bool await_next(Session* self, Stream* stream) {
    return (want(self, stream) || (PyErr_NoMemory(), false)) && note_readable(self, stream);
}

// Give a batch to Python that has run up to a command, or has a long reply.
bool hand_batch(HotCalls* calls, Stream* stream, Piece message, Done* done) {
    if (!own_message(calls->batch, message)) return false;
    done->begun = Py_BuildValue("(iN)", int(stream->id), reinterpret_cast<PyObject*>(calls->batch));
    calls->batch = nullptr;
    return done->begun;
}

// A batch has run to its end: its reply goes, and it is counted.
bool end_batch(Session* self, const HotTurn& turn, Stream* stream, double* at_s, Done* done) {
    Batch* batch = turn.calls->batch;
    if (!send_reply(self, turn, stream, batch)) return false;
    const double now = monotonic(), seconds = now - *at_s;
    *at_s = now;
    tally_batch(turn.calls, batch, seconds);
    Samples* samples = &turn.calls->samples;
    if (samples->is_due(seconds) && !sample_batch(samples, batch, seconds)) return false;
    if (seconds >= turn.calls->slow_s && !tell_slow_batch(&done->slow_batches, batch, seconds)) return false;
    ++turn.calls->reads;
    if (done->last_stream == stream->id) return true;
    done->last_stream = stream->id;
    if (!done->streams && !(done->streams = PyList_New(0))) return false;
    return append(done->streams, PyLong_FromLong(stream->id));
}

}  // namespace

bool run_batch(Session* self, const HotTurn& turn, Stream* stream, double* at_s, Done* done) {
    const Incoming next = stream->next();
    // Its handler has ended meanwhile, and takes nothing more.
    if (!next.is_begun) return true;
    HotRights may;
    KeyRanges readable, writable;
    bool is_known = true;
    if (self->has_guard && !take_rights(self, stream, &readable, &writable, &may, &is_known)) return false;
    if (!is_known || !is_takeable(stream, next)) return leave(self, stream);
    const Piece message = {reinterpret_cast<const char*>(stream->in.front()) + HEAD_BYTES, next.size};
    HotCalls* calls = turn.calls;
    if (!calls->batch && !(calls->batch = new_batch())) return false;
    const Parsed parsed = begin(calls->batch, message, {calls->commands_max, (long long)calls->rows_max, turn.room});
    if (parsed == Parsed::NO_MEMORY) return PyErr_NoMemory(), false;
    if (parsed != Parsed::RIGHT || !may_run(turn, may, calls->batch)) return leave(self, stream);
    const Use use = may.lease ? use_of(calls->batch, message.size) : Use{0, 0, 0};
    if (!has(may.lease, use)) return leave(self, stream);
    const Piece batch_id = calls->batch->batch_id;
    const int are_new = batch_id.size ? is_new(calls, batch_id) : 1;
    // What some of its commands gave before is Python's to tell.
    if (are_new <= 0) return are_new == 0 && leave(self, stream);
    const Ran ran = run_quick(calls->batch, turn.engine, turn.now);
    if (ran == Ran::FAILED) return false;
    take(may.lease, use);
    const bool is_long = turn.room - calls->batch->room > static_cast<long long>(HOT_BYTES_MAX);
    const bool is_whole = ran == Ran::DONE && !is_long;
    // Python remembers those of a batch with which it goes on.
    if (is_whole && calls->batch->outcomes.count && !remember(calls, batch_id, calls->batch->outcomes)) return false;
    if (is_whole ? !end_batch(self, turn, stream, at_s, done) : !hand_batch(calls, stream, message, done)) return false;
    return go_on(self, stream, next) && (!is_whole || await_next(self, stream));
}

// batch_tallies(): how many batches ran, their seconds, how many fell into each bucket; how many had up to as many
// commands, and all their commands; the commands by kind.
PyObject* hot_batch_tallies(PyObject* object, PyObject*) {
    const HotCalls* calls = reinterpret_cast<HotCalls*>(object);
    PyObject* sizes = list_of_counts(calls->batch_sizes, BATCH_BUCKETS);
    PyObject* commands = sizes ? list_of_counts(calls->commands, std::size(calls->commands)) : nullptr;
    PyObject* tally = commands ? tally_of(calls->batches) : nullptr;
    if (tally) return Py_BuildValue("(NNKN)", tally, sizes, calls->batch_commands, commands);
    Py_XDECREF(sizes);
    Py_XDECREF(commands);
    return nullptr;
}

}  // namespace pequod::http2
