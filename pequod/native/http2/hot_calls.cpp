#include "hot_calls.hpp"

#include "../arguments.hpp"

#include <structmember.h>

#include <cstddef>
#include <ctime>
#include <utility>

namespace pequod::http2 {

namespace {

constexpr char SERVICE[] = "/pequod.v1.Pequod/", EXECUTE[] = "/pequod.v1.Pequod/Execute";
constexpr const char* NAMES[HOT_METHODS] = {"",         "Get",      "Put",     "Remove", "Count",  "Scan",
                                            "MultiGet", "MultiPut", "WriteIf", "Add",    "Expire", "Ttl"};

template <size_t N>
bool is_text(Piece piece, const char (&text)[N]) {
    return piece.size == N - 1 && std::memcmp(piece.start, text, N - 1) == 0;
}

template <size_t N>
bool begins(Piece piece, const char (&text)[N]) {
    return piece.size >= N - 1 && std::memcmp(piece.start, text, N - 1) == 0;
}

HotMethod method_of(Piece path) {
    if (!begins(path, SERVICE)) return NOT_HOT;
    const Piece name = {path.start + sizeof(SERVICE) - 1, path.size - (sizeof(SERVICE) - 1)};
    for (unsigned char method = HOT_GET; method < HOT_METHODS; ++method) {
        if (is_equal(name, {NAMES[method], std::strlen(NAMES[method])})) return HotMethod(method);
    }
    return NOT_HOT;
}

// Whether a field leaves a call hot: those that Python has to look at do not.
bool is_plain(Piece name, Piece value) {
    if (is_text(name, "content-type"))
        return begins(value, "application/grpc") && !begins(value, "application/grpc-web");
    // A deadline that is over is Python's to say.
    if (is_text(name, "grpc-timeout")) return value.size && value.start[0] != '0';
    return name.size < 4 || std::memcmp(name.start + name.size - 4, "-bin", 4) != 0;
}

// Whether two secrets are equal, in a time that does not tell where they differ.
bool is_same_secret(Piece a, Piece b) {
    if (a.size != b.size) return false;
    unsigned difference = 0;
    for (size_t at = 0; at < a.size; ++at) difference |= static_cast<unsigned char>(a.start[at] ^ b.start[at]);
    return !difference;
}

const Rights* rights_of(const Session* self, Piece authorization) {
    for (const Rights& one : self->rights) {
        if (one.authorization && is_same_secret(piece_of(one.authorization), authorization)) return &one;
    }
    return nullptr;
}

HotCalls* hot_of(PyObject* object) { return reinterpret_cast<HotCalls*>(object); }
Session* session_of(PyObject* object) { return reinterpret_cast<Session*>(object); }

// Whether the one message of a call is there as a whole, and nothing else.
bool is_whole(const Stream* stream) {
    const Incoming message = stream->next();
    return stream->is_half_closed && message.is_begun && !message.is_compressed && !stream->lengthy &&
           message.size <= HOT_BYTES_MAX && stream->in.left() == HEAD_BYTES + message.size;
}

PyObject* hot_new(PyTypeObject* type, PyObject* arguments, PyObject*) {
    PyObject *engine, *is_new, *remember;
    unsigned long long server_id;
    Py_ssize_t rows_max, commands_max, reply_bytes_max, chunk_bytes;
    double slow_s;
    if (!PyArg_ParseTuple(arguments, "O!KnnnndOO", engine_type, &engine, &server_id, &rows_max, &commands_max,
                          &reply_bytes_max, &chunk_bytes, &slow_s, &is_new, &remember)) {
        return nullptr;
    }
    PyObject* object = type->tp_alloc(type, 0);
    if (!object) return nullptr;
    HotCalls* calls = hot_of(object);
    calls->engine = Py_NewRef(engine);
    calls->is_new = Py_NewRef(is_new);
    calls->remember = Py_NewRef(remember);
    calls->server_id = server_id;
    calls->rows_max = size_t(rows_max);
    calls->commands_max = size_t(commands_max);
    calls->reply_bytes_max = size_t(reply_bytes_max);
    calls->chunk_bytes = size_t(chunk_bytes);
    calls->slow_s = slow_s;
    calls->samples.every_s = SAMPLE_S;
    return object;
}

void hot_dealloc(PyObject* object) {
    PyTypeObject* type = Py_TYPE(object);
    const HotCalls* calls = hot_of(object);
    const Relay& relay = calls->relay;
    for (PyObject* one : {calls->engine, calls->is_new, calls->remember, reinterpret_cast<PyObject*>(calls->batch),
                          relay.owners, relay.tables, relay.links, calls->samples.list}) {
        Py_XDECREF(one);
    }
    type->tp_free(object);
    Py_DECREF(type);
}

// tallies(): of each method how many calls were answered, their seconds, and how many fell into each bucket.
PyObject* hot_tallies(PyObject* object, PyObject*) {
    PyObject* found = PyList_New(0);
    for (const HotTally& tally : hot_of(object)->tallies) {
        if (found && !append(found, tally_of(tally))) Py_CLEAR(found);
    }
    return found;
}

// samples(): what the time went to since the last look: a key, whether it was written, how much time it stands for, and
// how much of it one command took.
PyObject* hot_samples(PyObject* object, PyObject*) {
    PyObject** list = &hot_of(object)->samples.list;
    return *list ? std::exchange(*list, nullptr) : PyList_New(0);
}

PyMethodDef methods[] = {
    {"samples", hot_samples, METH_NOARGS, nullptr},
    {"tallies", hot_tallies, METH_NOARGS, nullptr},
    {"batch_tallies", hot_batch_tallies, METH_NOARGS, nullptr},
    {"relay_by", as_function(hot_relay_by), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyMemberDef members[] = {
    {"answered", T_ULONGLONG, offsetof(HotCalls, answered), READONLY, nullptr},
    {"answered_s", T_DOUBLE, offsetof(HotCalls, answered_s), READONLY, nullptr},
    {"sample_every_s", T_DOUBLE, offsetof(HotCalls, samples.every_s), 0, nullptr},
    {"reads", T_ULONGLONG, offsetof(HotCalls, reads), READONLY, nullptr},
    {"relayed_count", T_PYSSIZET, offsetof(HotCalls, relay.count), READONLY, nullptr},
    {"passed", T_ULONGLONG, offsetof(HotCalls, relay.passed), READONLY, nullptr},
    {"returned", T_ULONGLONG, offsetof(HotCalls, relay.returned), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(hot_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(hot_dealloc)},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {0, nullptr},
};
PyType_Spec spec = {"pequod.native._hot.HotCalls", sizeof(HotCalls), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

PyTypeObject* hot_calls_type = nullptr;

double monotonic() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
}

void add_to(HotTally* tally, double seconds) {
    size_t at = 0;
    while (at + 1 < HOT_BUCKETS && seconds > HOT_BOUNDS_S[at]) ++at;
    ++tally->count;
    ++tally->buckets[at];
    tally->seconds += seconds;
}

int is_new(const HotCalls* calls, Piece batch_id) {
    PyObject* id = PyBytes_FromStringAndSize(batch_id.start, Py_ssize_t(batch_id.size));
    PyObject* found = id ? PyObject_CallOneArg(calls->is_new, id) : nullptr;
    Py_XDECREF(id);
    const int is_true = found ? PyObject_IsTrue(found) : -1;
    Py_XDECREF(found);
    return is_true;
}

bool remember(const HotCalls* calls, Piece batch_id, const Outcomes& outcomes) {
    const Buffer& bytes = outcomes.bytes;
    PyObject* done = PyObject_CallFunction(calls->remember, "y#y#n", batch_id.start, Py_ssize_t(batch_id.size),
                                           bytes.start, Py_ssize_t(bytes.size), Py_ssize_t(outcomes.count));
    Py_XDECREF(done);
    return done;
}

bool remember(const HotCalls* calls, Piece request_id, const Write& write, unsigned char status, Piece value) {
    if (!request_id.size) return true;
    Outcomes own = {};
    const bool is_kept = add_outcome(&own, number_in(request_id), write, status, value) &&
                         remember(calls, {request_id.start, BATCH_ID_BYTES}, own);
    PyMem_Free(own.bytes.start);
    return is_kept;
}

PyObject* list_of_counts(const uint64_t* counts, size_t count) {
    PyObject* list = PyList_New(0);
    for (size_t at = 0; list && at < count; ++at) {
        if (!append(list, PyLong_FromUnsignedLongLong(counts[at]))) Py_CLEAR(list);
    }
    return list;
}

PyObject* tally_of(const HotTally& tally) {
    PyObject* buckets = list_of_counts(tally.buckets, HOT_BUCKETS);
    return buckets ? Py_BuildValue("(KdN)", tally.count, tally.seconds, buckets) : nullptr;
}

bool take_rights(const Session* self, const Stream* stream, KeyRanges* readable, KeyRanges* writable, HotRights* rights,
                 bool* is_known) {
    const Rights* found = rights_of(self, stream->authorization);
    *is_known = found;
    rights->lease = found ? reinterpret_cast<Lease*>(found->lease) : nullptr;
    rights->relay_as = found ? found->relay_as : nullptr;
    return !found || (take_ranges(found->readable, readable, &rights->readable) &&
                      take_ranges(found->writable, writable, &rights->writable));
}

bool leave(Session* self, Stream* stream) {
    if (!stream->is_of_batches) return note_opened(self, stream);
    stream->is_left = true;
    return note(self, stream, READABLE, nullptr);
}

bool find_hot_method(Stream* stream) {
    HotMethod method = NOT_HOT;
    bool takes_batches = false;
    for (Fields fields(stream->head); fields.next();) {
        if (is_text(fields.name, ":path")) {
            method = method_of(fields.value);
            takes_batches = is_text(fields.value, EXECUTE);
            if (method == NOT_HOT && !takes_batches) return false;
        } else if (is_text(fields.name, "authorization")) {
            // An empty one, or a second one, is the guard's to refuse.
            if (stream->authorization.start || !fields.value.size) return false;
            stream->authorization = fields.value;
        } else if (!is_plain(fields.name, fields.value)) {
            return false;
        }
    }
    stream->hot_method = method;
    stream->takes_batches = takes_batches;
    return method != NOT_HOT;
}

bool add_hot(Session* self, Stream* stream) {
    return add(&self->hot_streams, &self->hot_size, &self->hot_room, stream->id) || (PyErr_NoMemory(), false);
}

bool sort_hot(Session* self) {
    size_t kept = self->hot_seen;
    for (size_t at = self->hot_seen; at < self->hot_size; ++at) {
        Stream* stream = stream_of(self, self->hot_streams[at]);
        if (!stream) continue;
        if (stream->is_of_batches || is_whole(stream)) {
            self->hot_streams[kept++] = stream->id;
        } else if (!note_opened(self, stream)) {
            return false;
        }
    }
    self->hot_seen = self->hot_size = kept;
    return true;
}

void drop_hot(Session* self) {
    Py_CLEAR(self->hot);
    PyMem_Free(self->hot_streams);
    self->hot_streams = nullptr;
    self->hot_at = self->hot_seen = self->hot_size = self->hot_room = 0;
    Py_XDECREF(session_forget_rights(reinterpret_cast<PyObject*>(self), nullptr));
}

// use_hot(calls, has_guard): have calls answered from now on.
PyObject* session_use_hot(PyObject* object, PyObject* const* arguments, Py_ssize_t count) {
    if (count != 2 || !PyObject_TypeCheck(arguments[0], hot_calls_type)) {
        return check_all(false, "use_hot takes hot calls and whether there is a guard"), nullptr;
    }
    Py_XSETREF(session_of(object)->hot, Py_NewRef(arguments[0]));
    session_of(object)->has_guard = arguments[1] == Py_True;
    Py_RETURN_NONE;
}

// hand_over(): give all that wait to Python, by events.
PyObject* session_hand_over(PyObject* object, PyObject*) {
    Session* self = session_of(object);
    while (self->hot_at < self->hot_size) {
        Stream* stream = stream_of(self, self->hot_streams[self->hot_at++]);
        if (stream && !leave(self, stream)) return nullptr;
    }
    rewind(self);
    Py_RETURN_NONE;
}

// stranger(): the `authorization` of a call that waits whose rights are not known; None: there is none.
PyObject* session_stranger(PyObject* object, PyObject*) {
    Session* self = session_of(object);
    for (size_t at = self->hot_at; self->has_guard && at < self->hot_size; ++at) {
        Stream* stream = stream_of(self, self->hot_streams[at]);
        if (!stream || rights_of(self, stream->authorization)) continue;
        return PyBytes_FromStringAndSize(stream->authorization.start, Py_ssize_t(stream->authorization.size));
    }
    Py_RETURN_NONE;
}

// admit(authorization, readable, writable, lease, relay_as): what a caller may do and use, until `forget_rights`.
PyObject* session_admit(PyObject* object, PyObject* const* arguments, Py_ssize_t count) {
    Session* self = session_of(object);
    KeyRanges ranges;
    const KeyRanges* found;
    const bool has_lease = count > 3 && PyObject_TypeCheck(arguments[3], lease_type);
    const bool has_relay_as = count > 4 && PyBytes_CheckExact(arguments[4]);
    if (count < 3 || count > 5 || !PyBytes_CheckExact(arguments[0]) || !take_ranges(arguments[1], &ranges, &found) ||
        !take_ranges(arguments[2], &ranges, &found) || (count > 3 && !has_lease && arguments[3] != Py_None) ||
        (count > 4 && !has_relay_as && arguments[4] != Py_None)) {
        return check_all(false, "admit takes bytes, two pairs of lists, and perhaps a lease and bytes"), nullptr;
    }
    Rights& rights = self->rights[self->rights_at++ % RIGHTS_MAX];
    Py_XSETREF(rights.authorization, Py_NewRef(arguments[0]));
    Py_XSETREF(rights.readable, Py_NewRef(arguments[1]));
    Py_XSETREF(rights.writable, Py_NewRef(arguments[2]));
    Py_XSETREF(rights.lease, has_lease ? Py_NewRef(arguments[3]) : nullptr);
    Py_XSETREF(rights.relay_as, has_relay_as ? Py_NewRef(arguments[4]) : nullptr);
    Py_RETURN_NONE;
}

PyObject* session_forget_rights(PyObject* object, PyObject*) {
    for (Rights& rights : session_of(object)->rights) {
        Py_CLEAR(rights.authorization);
        Py_CLEAR(rights.readable);
        Py_CLEAR(rights.writable);
        Py_CLEAR(rights.lease);
        Py_CLEAR(rights.relay_as);
    }
    Py_RETURN_NONE;
}

PyObject* session_hot_count(PyObject* object, void*) {
    const Session* self = session_of(object);
    return PyLong_FromSize_t(self->hot_size - self->hot_at);
}

int add_hot_type(PyObject* module) {
    hot_calls_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
    return hot_calls_type ? PyModule_AddObjectRef(module, "HotCalls", reinterpret_cast<PyObject*>(hot_calls_type)) : -1;
}

}  // namespace pequod::http2
