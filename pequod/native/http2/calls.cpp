// What Python calls of a connection; pequod/native/_hot.pyi has the types.
#include "hot_calls.hpp"

#include <structmember.h>

#include <cstddef>

#include "../arguments.hpp"
#include "fields.hpp"
#include "output.hpp"

namespace pequod::http2 {

namespace {

Session* as_session(PyObject* object) { return reinterpret_cast<Session*>(object); }

// The stream of a number that Python gives; null: it is gone, or an error is set.
Stream* stream_of_number(Session* self, PyObject* number) {
    const long id = PyLong_AsLong(number);
    return id == -1 && PyErr_Occurred() ? nullptr : stream_of(self, int32_t(id));
}

PyObject* wrong(const char* text) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, text);
    return nullptr;
}

PyObject* session_new(PyTypeObject* type, PyObject* arguments, PyObject*) {
    Py_ssize_t message_bytes_max, header_bytes_max, streams_max;
    int window;
    if (!PyArg_ParseTuple(arguments, "nnni", &message_bytes_max, &header_bytes_max, &streams_max, &window)) {
        return nullptr;
    }
    if (!nghttp2.session_del) return PyErr_SetString(PyExc_RuntimeError, "load_nghttp2 comes first"), nullptr;
    PyObject* object = type->tp_alloc(type, 0);
    if (!object) return nullptr;
    Session* self = as_session(object);
    self->message_bytes_max = size_t(message_bytes_max);
    self->header_bytes_max = size_t(header_bytes_max);
    self->own_window = window;
    self->events = PyList_New(0);
    if (self->events && start(self, size_t(streams_max))) return object;
    Py_DECREF(object);
    return nullptr;
}

void session_dealloc(PyObject* object) {
    Session* self = as_session(object);
    PyTypeObject* type = Py_TYPE(object);
    detach(self);
    stop(self);
    Py_XDECREF(self->events);
    drop_hot(self);
    type->tp_free(object);
    Py_DECREF(type);
}

// events(): those since the last call.
PyObject* session_events(PyObject* object, PyObject*) {
    Session* self = as_session(object);
    PyObject* empty = PyList_New(0);
    if (!empty) return nullptr;
    PyObject* events = self->events;
    self->events = empty;
    ++self->event_round;
    return events;
}

// receive(data): the events that follow.
PyObject* session_receive(PyObject* object, PyObject* data) {
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) return nullptr;
    const bool is_taken = take_in(as_session(object), view.buf, size_t(view.len));
    PyBuffer_Release(&view);
    return is_taken ? session_events(object, nullptr) : nullptr;
}

// output(most): bytes for the socket, some more than as many at the most; none: there is nothing.
PyObject* session_output(PyObject* object, PyObject* argument) {
    const size_t most = PyLong_AsSize_t(argument);
    return most == size_t(-1) && PyErr_Occurred() ? nullptr : take_output(as_session(object)->session, most);
}

// take(id): see _hot.pyi.
PyObject* session_take(PyObject* object, PyObject* argument) {
    Session* self = as_session(object);
    Stream* stream = stream_of_number(self, argument);
    const bool is_over = !stream || stream->is_ended || stream->is_ignored;
    if (is_over) return PyErr_Occurred() ? nullptr : Py_NewRef(Py_False);
    const Incoming message = stream->next();
    if (message.is_begun && message.size > self->message_bytes_max) return PyLong_FromSize_t(message.size);
    if (!message.is_begun || message.received < message.size) {
        if (stream->is_half_closed) Py_RETURN_FALSE;
        return want(self, stream) ? Py_NewRef(Py_None) : PyErr_NoMemory();
    }
    if (stream->is_of_batches && self->hot && !stream->is_left)
        return add_hot(self, stream) ? Py_NewRef(Py_None) : nullptr;
    stream->is_left = false;
    PyObject* taken = stream->take(message);
    if (!taken) return nullptr;
    self->unread_bytes -= HEAD_BYTES + message.size;
    stream->is_of_batches = stream->takes_batches;
    if (!give_back_of(self, stream, HEAD_BYTES + message.size) || !set_window(self, stream, self->window)) {
        Py_DECREF(taken);
        return PyErr_NoMemory();
    }
    if (!message.is_compressed) return taken;
    PyObject* compressed = PyTuple_Pack(1, taken);
    Py_DECREF(taken);
    return compressed;
}

bool add_message(Session* self, Stream* stream, PyObject* message) {
    const size_t before = stream->unsent_bytes;
    if (!stream->send(message)) return PyErr_NoMemory(), false;
    self->unsent_bytes += stream->unsent_bytes - before;
    return true;
}

// send(id, message): how many bytes of the stream wait; -1: it is over.
PyObject* session_send(PyObject* object, PyObject* const* arguments, Py_ssize_t count) {
    Session* self = as_session(object);
    if (count != 2 || !PyBytes_CheckExact(arguments[1])) return wrong("send takes a stream and bytes");
    Stream* stream = stream_of_number(self, arguments[0]);
    if (!stream || stream->is_ended) return PyErr_Occurred() ? nullptr : PyLong_FromLong(-1);
    if (!add_message(self, stream, arguments[1]) || !push(self, stream)) return nullptr;
    return PyLong_FromSize_t(stream->unsent_bytes);
}

// begin(id, fields): begin a response.
PyObject* session_begin(PyObject* object, PyObject* const* arguments, Py_ssize_t count) {
    Session* self = as_session(object);
    if (count != 2 || !is_list_of_pairs(arguments[1]))
        return wrong("begin takes a stream and a list of pairs of bytes");
    Stream* stream = stream_of_number(self, arguments[0]);
    if (!stream || stream->is_response_begun) return PyErr_Occurred() ? nullptr : Py_NewRef(Py_False);
    stream->first_fields = Py_NewRef(arguments[1]);
    return push(self, stream) ? Py_NewRef(Py_True) : nullptr;
}

// finish(id, trailers, message): see _hot.pyi.
PyObject* session_finish(PyObject* object, PyObject* const* arguments, Py_ssize_t count) {
    Session* self = as_session(object);
    if (count != 3 || (arguments[1] != Py_None && !is_list_of_pairs(arguments[1])) ||
        (arguments[2] != Py_None && !PyBytes_CheckExact(arguments[2]))) {
        return wrong("finish takes a stream, a list of pairs of bytes or None, and bytes or None");
    }
    Stream* stream = stream_of_number(self, arguments[0]);
    if (!stream || stream->is_ended) return PyErr_Occurred() ? nullptr : PyLong_FromLong(-1);
    if (arguments[2] != Py_None && !add_message(self, stream, arguments[2])) return nullptr;
    if (arguments[1] != Py_None) stream->trailers = Py_NewRef(arguments[1]);
    return end_response(self, stream) ? PyLong_FromSize_t(stream->unsent_bytes) : nullptr;
}

// ignore(id): see _hot.pyi.
PyObject* session_ignore(PyObject* object, PyObject* argument) {
    Session* self = as_session(object);
    Stream* stream = stream_of_number(self, argument);
    if (!stream) return PyErr_Occurred() ? nullptr : Py_NewRef(Py_None);
    stream->is_ignored = true;
    return drop_unread(self, stream) ? Py_NewRef(Py_None) : PyErr_NoMemory();
}

// is_half_closed(id): whether its client has sent everything; of a stream that is over, too.
PyObject* session_is_half_closed(PyObject* object, PyObject* argument) {
    Stream* stream = stream_of_number(as_session(object), argument);
    return PyErr_Occurred() ? nullptr : PyBool_FromLong(!stream || stream->is_half_closed);
}

// when_drained(id): whether an event will come.
PyObject* session_when_drained(PyObject* object, PyObject* argument) {
    Stream* stream = stream_of_number(as_session(object), argument);
    if (!stream || !stream->has_out()) return PyErr_Occurred() ? nullptr : Py_NewRef(Py_False);
    stream->wants_drained = true;
    Py_RETURN_TRUE;
}

// reset(id, code): end a stream at once; what was not sent is dropped.
PyObject* session_reset(PyObject* object, PyObject* const* arguments, Py_ssize_t count) {
    Session* self = as_session(object);
    if (count != 2) return wrong("reset takes a stream and a code");
    const unsigned long code = PyLong_AsUnsignedLong(arguments[1]);
    if (PyErr_Occurred()) return nullptr;
    Stream* stream = stream_of_number(self, arguments[0]);
    if (!stream) return PyErr_Occurred() ? nullptr : Py_NewRef(Py_None);
    self->unsent_bytes -= stream->drop_out();
    if (!drop_unread(self, stream)) return PyErr_NoMemory();
    if (nghttp2.submit_rst_stream(self->session, FLAG_NONE, stream->id, uint32_t(code))) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

// waited_s(id): how long a call was on its way to another worker that has not answered it, in seconds.
PyObject* session_waited_s(PyObject* object, PyObject* argument) {
    const Stream* stream = stream_of_number(as_session(object), argument);
    if (PyErr_Occurred()) return nullptr;
    return PyFloat_FromDouble(stream && stream->passed_s > 0 ? monotonic() - stream->passed_s : 0);
}

PyObject* session_ping(PyObject* object, PyObject*) {
    Session* self = as_session(object);
    if (self->session && nghttp2.submit_ping(self->session, FLAG_NONE, nullptr)) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

// say_last(is_notice): take no more streams; a notice says that this will come.
PyObject* session_say_last(PyObject* object, PyObject* argument) {
    Session* self = as_session(object);
    if (!self->session) Py_RETURN_NONE;
    const int32_t last = nghttp2.session_get_last_proc_stream_id(self->session);
    const int code = argument == Py_True ? nghttp2.submit_shutdown_notice(self->session)
                                         : nghttp2.submit_goaway(self->session, FLAG_NONE, last, NO_ERROR, nullptr, 0);
    return code ? failed(code) : Py_NewRef(Py_None);
}

PyObject* session_close(PyObject* object, PyObject*) {
    detach(as_session(object));
    stop(as_session(object));
    Py_RETURN_NONE;
}

PyObject* session_has_output(PyObject* object, void*) {
    Session* self = as_session(object);
    return PyBool_FromLong(self->session && nghttp2.session_want_write(self->session));
}

PyObject* session_total_bytes(PyObject* object, void*) {
    const Session* self = as_session(object);
    return PyLong_FromSize_t(self->unread_bytes + self->unsent_bytes + self->header_bytes);
}

PyObject* session_is_over(PyObject* object, void*) {
    Session* self = as_session(object);
    return PyBool_FromLong(!self->session ||
                           (!nghttp2.session_want_read(self->session) && !nghttp2.session_want_write(self->session)));
}

PyMethodDef methods[] = {
    {"receive", session_receive, METH_O, nullptr},
    {"events", session_events, METH_NOARGS, nullptr},
    {"output", session_output, METH_O, nullptr},
    {"take", session_take, METH_O, nullptr},
    {"send", as_function(session_send), METH_FASTCALL, nullptr},
    {"begin", as_function(session_begin), METH_FASTCALL, nullptr},
    {"finish", as_function(session_finish), METH_FASTCALL, nullptr},
    {"ignore", session_ignore, METH_O, nullptr},
    {"is_half_closed", session_is_half_closed, METH_O, nullptr},
    {"when_drained", session_when_drained, METH_O, nullptr},
    {"reset", as_function(session_reset), METH_FASTCALL, nullptr},
    {"waited_s", session_waited_s, METH_O, nullptr},
    {"ping", session_ping, METH_NOARGS, nullptr},
    {"say_last", session_say_last, METH_O, nullptr},
    {"close", session_close, METH_NOARGS, nullptr},
    {"attach", as_function(session_attach), METH_FASTCALL, nullptr},
    {"buffer", session_buffer, METH_O, nullptr},
    {"updated", session_updated, METH_O, nullptr},
    {"use_hot", as_function(session_use_hot), METH_FASTCALL, nullptr},
    {"run_hot", as_function(session_run_hot), METH_FASTCALL, nullptr},
    {"hand_over", session_hand_over, METH_NOARGS, nullptr},
    {"stranger", session_stranger, METH_NOARGS, nullptr},
    {"admit", as_function(session_admit), METH_FASTCALL, nullptr},
    {"forget_rights", session_forget_rights, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef getters[] = {
    {"has_output", session_has_output, nullptr, nullptr, nullptr},
    {"hot_count", session_hot_count, nullptr, nullptr, nullptr},
    {"total_bytes", session_total_bytes, nullptr, nullptr, nullptr},
    {"is_over", session_is_over, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyMemberDef members[] = {
    {"unread_bytes", T_PYSSIZET, offsetof(Session, unread_bytes), READONLY, nullptr},
    {"unsent_bytes", T_PYSSIZET, offsetof(Session, unsent_bytes), READONLY, nullptr},
    {"held_bytes", T_PYSSIZET, offsetof(Session, held_bytes), READONLY, nullptr},
    {"header_bytes", T_PYSSIZET, offsetof(Session, header_bytes), READONLY, nullptr},
    {"read_s", T_DOUBLE, offsetof(Session, reads.at_s), READONLY, nullptr},
    {"is_calm", T_BOOL, offsetof(Session, reads.is_calm), 0, nullptr},
    {"noted_bytes", T_PYSSIZET, offsetof(Session, reads.noted_bytes), 0, nullptr},
    {"hot_answered", T_PYSSIZET, offsetof(Session, hot_answered), READONLY, nullptr},
    {"stream_count", T_PYSSIZET, offsetof(Session, stream_count), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(session_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(session_dealloc)},
    {Py_tp_methods, methods},
    {Py_tp_getset, getters},
    {Py_tp_members, members},
    {0, nullptr},
};
PyType_Spec spec = {"pequod.native._hot.Session", sizeof(Session), 0, Py_TPFLAGS_DEFAULT, slots};

// load_nghttp2(path): None, or why it is not there.
PyObject* load_nghttp2(PyObject*, PyObject* path) {
    const char* text = PyUnicode_AsUTF8(path);
    if (!text) return nullptr;
    const char* reason = load(text);
    return reason ? PyUnicode_DecodeLocale(reason, "surrogateescape") : Py_NewRef(Py_None);
}

PyMethodDef functions[] = {
    {"load_nghttp2", load_nghttp2, METH_O, "Find the library; return None, or why it is not there."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool take_in(Session* self, const void* data, size_t size) {
    if (!self->session) return true;
    const ssize_t code = nghttp2.session_mem_recv(self->session, static_cast<const uint8_t*>(data), size);
    return code < 0 || PyErr_Occurred() ? (failed(int(code)), false) : sort_hot(self);
}

bool has_news(const Session* self) {
    return PyList_GET_SIZE(self->events) || !self->session || nghttp2.session_want_write(self->session) ||
           !nghttp2.session_want_read(self->session);
}

int add_session_type(PyObject* module) {
    PyObject* type = PyType_FromSpec(&spec);
    const int added = type ? PyModule_AddObjectRef(module, "Session", type) : -1;
    Py_XDECREF(type);
    return added < 0 ? added : PyModule_AddFunctions(module, functions);
}

}  // namespace pequod::http2
