// The other end of a link: calls that another worker passes on, answered from the bytes of a read to those of a write.
//
//     receive -> in -> run: STATE, ROLE -> Python says whether it is reached, and what the role may read
//                           CALL -> hot_answer -> ANSWERED;  not quick: RETURNED -> out -> output
#include "../arguments.hpp"
#include "relay.hpp"

#include <structmember.h>

#include <cstddef>

namespace pequod::http2 {

namespace {

// What `run` says: all that has come is done; Python has to say whether the state is reached; what the role may read.
enum Lack : long { NOTHING = 0, REACHED = 1, RIGHTS = 2 };

enum class Known : unsigned char { NO, YES, UNKNOWN };

// `RelayEnd`.
struct RelayEnd {
    PyObject_HEAD
    HotCalls* calls;
    Bytes in, out, token, role;
    // Whether the state is reached, and the role known.
    Known reached, known;
    // A pair of lists, as `KeyRanges` takes them; null: all keys.
    PyObject* readable;
    // The stream on which each call runs.
    Stream* stream;
    PyObject* slow;
};

RelayEnd* end_of(PyObject* object) { return reinterpret_cast<RelayEnd*>(object); }

bool set(Bytes* bytes, Piece piece) {
    bytes->at = bytes->size = 0;
    return bytes->add(piece.start, piece.size) || (PyErr_NoMemory(), false);
}

// Write what becomes of a call; false: an error is set.
bool tell(RelayEnd* self, const RelayHead& call, RelayKind kind, Piece reply) {
    const RelayHead head = {uint32_t(reply.size), call.id, kind, call.method, {0, 0}};
    return (self->out.add(&head, sizeof(head)) && self->out.add(reply.start, reply.size)) || (PyErr_NoMemory(), false);
}

// Put the message of a call where `hot_answer` looks for it; false: an error is set.
bool fill(Stream* stream, const RelayHead& call, Piece message) {
    unsigned char head[HEAD_BYTES] = {0};
    for (unsigned at = 1; at < HEAD_BYTES; ++at) head[at] = static_cast<unsigned char>(message.size >> (32 - 8 * at));
    stream->hot_method = call.method;
    stream->in.at = stream->in.size = stream->reply.at = stream->reply.size = 0;
    return (stream->in.add(head, HEAD_BYTES) && stream->in.add(message.start, message.size)) ||
           (PyErr_NoMemory(), false);
}

// Answer a call, or have it go back; false: an error is set.
bool answer(RelayEnd* self, const HotTurn& turn, const RelayHead& call, Piece message, double* at_s) {
    HotRights rights;
    KeyRanges readable;
    if (self->readable && !take_ranges(self->readable, &readable, &rights.readable)) return false;
    if (!fill(self->stream, call, message)) return false;
    const Ran ran = hot_answer(turn, rights, self->stream);
    if (ran == Ran::FAILED) return false;
    if (ran != Ran::DONE) return tell(self, call, RETURNED, {"", 0});
    HotCalls* calls = turn.calls;
    const double now = monotonic(), seconds = now - *at_s;
    *at_s = calls->answered_s = now;
    add_to(calls->tallies + call.method, seconds);
    ++calls->answered;
    ++calls->reads;
    if (seconds >= calls->slow_s && !tell_slow(&self->slow, self->stream, seconds)) return false;
    if (calls->samples.is_due(seconds) && !sample_call(&calls->samples, message, false, seconds)) return false;
    const Bytes& reply = self->stream->reply;
    return tell(self, call, ANSWERED, {reinterpret_cast<const char*>(reply.front()), reply.left()});
}

// What is lacking for a call to be judged.
Lack lack_of(const RelayEnd* self) {
    if (self->reached == Known::UNKNOWN) return REACHED;
    return self->known == Known::UNKNOWN ? RIGHTS : NOTHING;
}

bool is_read(unsigned char method) {
    return method == HOT_GET || method == HOT_COUNT || method == HOT_SCAN || method == HOT_MULTI_GET ||
           method == HOT_TTL;
}

// Take the next part; without a turn, calls go back. False: an error is set.
bool take_part(RelayEnd* self, const HotTurn* turn, const RelayHead& head, Piece content, double* at_s) {
    switch (head.kind) {
        case STATE:
            self->reached = content.size ? Known::UNKNOWN : Known::YES;
            return set(&self->token, content);
        case ROLE:
            self->known = Known::UNKNOWN;
            return set(&self->role, content);
        case CALL: {
            const bool is_taken =
                turn && self->reached == Known::YES && self->known == Known::YES && is_read(head.method);
            return is_taken ? answer(self, *turn, head, content, at_s) : tell(self, head, RETURNED, {"", 0});
        }
        default:
            PyErr_SetString(PyExc_ConnectionError, "a part of a link is of no kind");
            return false;
    }
}

// Take what has come, up to a call that something is lacking for; below zero: an error is set.
long take_all(RelayEnd* self, const HotTurn* turn) {
    double at_s = monotonic();
    RelayHead head;
    while (self->in.left() >= sizeof(head)) {
        std::memcpy(&head, self->in.front(), sizeof(head));
        if (head.size > HOT_BYTES_MAX) {
            PyErr_SetString(PyExc_ConnectionError, "a part of a link is too long");
            return -1;
        }
        if (self->in.left() < sizeof(head) + head.size) break;
        if (turn && head.kind == CALL && lack_of(self) != NOTHING) return lack_of(self);
        const Piece content = {reinterpret_cast<const char*>(self->in.front()) + sizeof(head), head.size};
        if (!take_part(self, turn, head, content, &at_s)) return -1;
        self->in.skip(sizeof(head) + head.size);
    }
    return NOTHING;
}

PyObject* end_new(PyTypeObject* type, PyObject* arguments, PyObject*) {
    PyObject* calls;
    if (!PyArg_ParseTuple(arguments, "O!", hot_calls_type, &calls)) return nullptr;
    PyObject* object = type->tp_alloc(type, 0);
    if (!object) return nullptr;
    RelayEnd* self = end_of(object);
    self->calls = reinterpret_cast<HotCalls*>(Py_NewRef(calls));
    self->reached = Known::YES;
    self->known = Known::UNKNOWN;
    self->stream = new_stream(1);
    if (self->stream) return object;
    Py_DECREF(object);
    return PyErr_NoMemory();
}

void end_dealloc(PyObject* object) {
    PyTypeObject* type = Py_TYPE(object);
    RelayEnd* self = end_of(object);
    for (Bytes* one : {&self->in, &self->out, &self->token, &self->role}) one->free();
    Py_XDECREF(self->readable);
    Py_XDECREF(self->slow);
    if (self->stream) free_stream(self->stream);
    Py_DECREF(self->calls);
    type->tp_free(object);
    Py_DECREF(type);
}

// receive(data): it has come.
PyObject* end_receive(PyObject* object, PyObject* data) {
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) return nullptr;
    const bool is_taken = end_of(object)->in.add(view.buf, size_t(view.len));
    PyBuffer_Release(&view);
    return is_taken ? Py_NewRef(Py_None) : PyErr_NoMemory();
}

// run(turn): take what has come, and return what is lacking; None has all calls go back.
PyObject* end_run(PyObject* object, PyObject* said) {
    RelayEnd* self = end_of(object);
    KeyRanges homes;
    HotTurn turn = {};
    if (said != Py_None && !take_turn(reinterpret_cast<PyObject*>(self->calls), said, &homes, &turn)) return nullptr;
    const long lack = take_all(self, said == Py_None ? nullptr : &turn);
    return lack < 0 ? nullptr : PyLong_FromLong(lack);
}

// reach(is_reached): whether the state `token` is.
PyObject* end_reach(PyObject* object, PyObject* argument) {
    end_of(object)->reached = argument == Py_True ? Known::YES : Known::NO;
    Py_RETURN_NONE;
}

// admit(readable): what the role may read; False: it is none.
PyObject* end_admit(PyObject* object, PyObject* argument) {
    RelayEnd* self = end_of(object);
    KeyRanges ranges;
    const KeyRanges* found;
    if (argument != Py_False && !take_ranges(argument, &ranges, &found)) {
        return check_all(false, "admit takes a pair of lists, None or False"), nullptr;
    }
    self->known = argument == Py_False ? Known::NO : Known::YES;
    Py_XSETREF(self->readable, argument == Py_None || argument == Py_False ? nullptr : Py_NewRef(argument));
    Py_RETURN_NONE;
}

// forget(): the role has to be asked for anew.
PyObject* end_forget(PyObject* object, PyObject*) {
    end_of(object)->known = Known::UNKNOWN;
    Py_RETURN_NONE;
}

// output(): bytes for the socket.
PyObject* end_output(PyObject* object, PyObject*) {
    Bytes& out = end_of(object)->out;
    PyObject* bytes =
        out.left() ? PyBytes_FromStringAndSize(out.start + out.at, Py_ssize_t(out.left())) : PyBytes_FromString("");
    if (bytes) out.skip(out.left());
    return bytes;
}

PyObject* bytes_from(const Bytes& bytes) {
    return PyBytes_FromStringAndSize(bytes.left() ? bytes.start + bytes.at : "", Py_ssize_t(bytes.left()));
}

PyObject* end_token(PyObject* object, void*) { return bytes_from(end_of(object)->token); }
PyObject* end_role(PyObject* object, void*) { return bytes_from(end_of(object)->role); }

// take_slow(): the calls that were slow since the last time, or None.
PyObject* end_take_slow(PyObject* object, PyObject*) {
    PyObject* slow = end_of(object)->slow;
    end_of(object)->slow = nullptr;
    return slow ? slow : Py_NewRef(Py_None);
}

PyMethodDef methods[] = {
    {"receive", end_receive, METH_O, nullptr},
    {"run", end_run, METH_O, nullptr},
    {"reach", end_reach, METH_O, nullptr},
    {"admit", end_admit, METH_O, nullptr},
    {"forget", end_forget, METH_NOARGS, nullptr},
    {"output", end_output, METH_NOARGS, nullptr},
    {"take_slow", end_take_slow, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef getters[] = {
    {"token", end_token, nullptr, nullptr, nullptr},
    {"role", end_role, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(end_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(end_dealloc)},
    {Py_tp_methods, methods},
    {Py_tp_getset, getters},
    {0, nullptr},
};
PyType_Spec spec = {"pequod.native._hot.RelayEnd", sizeof(RelayEnd), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

int add_relay_end_type(PyObject* module) {
    PyObject* type = PyType_FromSpec(&spec);
    const int added = type ? PyModule_AddObjectRef(module, "RelayEnd", type) : -1;
    Py_XDECREF(type);
    return added;
}

}  // namespace pequod::http2
