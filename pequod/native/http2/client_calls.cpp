// What Python calls of a client's connection; pequod/native/_hot.pyi has the types.
#include "../arguments.hpp"
#include "client.hpp"

#include <structmember.h>

#include <cstddef>

#include "fields.hpp"
#include "output.hpp"

namespace pequod::http2 {

namespace {

ClientSession* as_session(PyObject* object) { return reinterpret_cast<ClientSession*>(object); }

// The call of a stream that Python gives; null: it is over, or an error is set.
Call* call_of_number(ClientSession* self, PyObject* number) {
    const long id = PyLong_AsLong(number);
    if (id == -1 && PyErr_Occurred()) return nullptr;
    Call* call = call_of(self, int32_t(id));
    return call && !call->is_over && !call->is_let_go ? call : nullptr;
}

PyObject* client_new(PyTypeObject* type, PyObject* arguments, PyObject*) {
    Py_ssize_t message_bytes_max, header_bytes_max;
    int window, is_secure;
    PyObject *authority, *agent;
    if (!PyArg_ParseTuple(arguments, "nniSSp", &message_bytes_max, &header_bytes_max, &window, &authority, &agent,
                          &is_secure)) {
        return nullptr;
    }
    if (!nghttp2.session_del) return PyErr_SetString(PyExc_RuntimeError, "load_nghttp2 comes first"), nullptr;
    PyObject* object = type->tp_alloc(type, 0);
    if (!object) return nullptr;
    ClientSession* self = as_session(object);
    self->message_bytes_max = size_t(message_bytes_max);
    self->header_bytes_max = size_t(header_bytes_max);
    self->authority = Py_NewRef(authority);
    self->agent = Py_NewRef(agent);
    self->is_secure = is_secure;
    self->events = PyList_New(0);
    if (self->events && start(self, window)) return object;
    Py_DECREF(object);
    return nullptr;
}

void client_dealloc(PyObject* object) {
    ClientSession* self = as_session(object);
    PyTypeObject* type = Py_TYPE(object);
    stop(self);
    Py_XDECREF(self->events);
    Py_XDECREF(self->authority);
    Py_XDECREF(self->agent);
    type->tp_free(object);
    Py_DECREF(type);
}

// events(): those since the last call.
PyObject* client_events(PyObject* object, PyObject*) {
    ClientSession* self = as_session(object);
    PyObject* empty = PyList_New(0);
    if (!empty) return nullptr;
    PyObject* events = self->events;
    self->events = empty;
    return events;
}

// receive(data): the events that follow.
PyObject* client_receive(PyObject* object, PyObject* data) {
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) return nullptr;
    NgSession* session = as_session(object)->session;
    const ssize_t code =
        session ? nghttp2.session_mem_recv(session, static_cast<const uint8_t*>(view.buf), size_t(view.len)) : 0;
    PyBuffer_Release(&view);
    return code < 0 || PyErr_Occurred() ? failed(int(code)) : client_events(object, nullptr);
}

// output(most): bytes for the socket, some more than as many at the most; none: there is nothing.
PyObject* client_output(PyObject* object, PyObject* argument) {
    const size_t most = PyLong_AsSize_t(argument);
    return most == size_t(-1) && PyErr_Occurred() ? nullptr : take_output(as_session(object)->session, most);
}

// open(path, timeout, metadata, message, is_unary): see _hot.pyi.
PyObject* client_open(PyObject* object, PyObject* const* arguments, Py_ssize_t count) {
    if (!check_count("open", count, 5)) return nullptr;
    PyObject *path = arguments[0], *timeout = arguments[1], *metadata = arguments[2], *message = arguments[3];
    const bool is_right = PyBytes_CheckExact(path) && (timeout == Py_None || PyBytes_CheckExact(timeout)) &&
                          (metadata == Py_None || is_list_of_pairs(metadata)) &&
                          (message == Py_None || PyBytes_CheckExact(message));
    if (!is_right) {
        PyErr_SetString(PyExc_TypeError, "open takes a path, a timeout, pairs of bytes, and a message, all as bytes");
        return nullptr;
    }
    const int32_t id =
        open(as_session(object), path, timeout == Py_None ? nullptr : timeout, metadata == Py_None ? nullptr : metadata,
             message == Py_None ? nullptr : message, arguments[4] == Py_True);
    return id < 0 ? nullptr : PyLong_FromLong(id);
}

// send(id, message): how many bytes of the stream wait; -1: it is over, or was finished.
PyObject* client_send(PyObject* object, PyObject* const* arguments, Py_ssize_t count) {
    ClientSession* self = as_session(object);
    if (!check_count("send", count, 2)) return nullptr;
    if (!PyBytes_CheckExact(arguments[1])) return PyErr_Format(PyExc_TypeError, "send takes a stream and bytes");
    Call* call = call_of_number(self, arguments[0]);
    if (!call || call->is_ended) return PyErr_Occurred() ? nullptr : PyLong_FromLong(-1);
    const size_t before = call->unsent_bytes;
    if (!call->send(arguments[1])) return PyErr_NoMemory();
    self->unsent_bytes += call->unsent_bytes - before;
    return push(self, call) ? PyLong_FromSize_t(call->unsent_bytes) : nullptr;
}

// finish(id): nothing more will be sent.
PyObject* client_finish(PyObject* object, PyObject* argument) {
    ClientSession* self = as_session(object);
    Call* call = call_of_number(self, argument);
    if (!call) return PyErr_Occurred() ? nullptr : Py_NewRef(Py_None);
    call->is_ended = true;
    return push(self, call) ? Py_NewRef(Py_None) : nullptr;
}

// take(id): see _hot.pyi.
PyObject* client_take(PyObject* object, PyObject* argument) {
    ClientSession* self = as_session(object);
    Call* call = call_of_number(self, argument);
    if (!call) return PyErr_Occurred() ? nullptr : Py_NewRef(Py_False);
    const Incoming message = call->next();
    if (message.is_begun && message.size > self->message_bytes_max) return PyLong_FromSize_t(message.size);
    if (!message.is_begun || message.received < message.size)
        return want(self, call) ? Py_NewRef(Py_None) : PyErr_NoMemory();
    PyObject* taken = take_message(self, call, message);
    if (!taken) return nullptr;
    const size_t size = HEAD_BYTES + message.size;
    const size_t given_back = size < call->held_bytes ? size : call->held_bytes;
    call->held_bytes -= given_back;
    if (!given_back || !nghttp2.session_consume_stream(self->session, call->id, given_back)) return taken;
    Py_DECREF(taken);
    return PyErr_NoMemory();
}

// when_emptied(id): whether an event will come.
PyObject* client_when_emptied(PyObject* object, PyObject* argument) {
    Call* call = call_of_number(as_session(object), argument);
    if (!call || !call->has_out()) return PyErr_Occurred() ? nullptr : Py_NewRef(Py_False);
    call->wants_drained = true;
    Py_RETURN_TRUE;
}

// reset(id, code): end a stream at once, without an event.
PyObject* client_reset(PyObject* object, PyObject* const* arguments, Py_ssize_t count) {
    ClientSession* self = as_session(object);
    if (!check_count("reset", count, 2)) return nullptr;
    const unsigned long code = PyLong_AsUnsignedLong(arguments[1]);
    if (PyErr_Occurred()) return nullptr;
    Call* call = call_of_number(self, arguments[0]);
    if (!call) return PyErr_Occurred() ? nullptr : Py_NewRef(Py_None);
    let_go(self, call);
    if (nghttp2.submit_rst_stream(self->session, FLAG_NONE, call->id, uint32_t(code))) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

PyObject* client_ping(PyObject* object, PyObject*) {
    ClientSession* self = as_session(object);
    if (self->session && nghttp2.submit_ping(self->session, FLAG_NONE, nullptr)) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

// terminate(): end the connection, once `output` has told the server.
PyObject* client_terminate(PyObject* object, PyObject*) {
    ClientSession* self = as_session(object);
    if (self->session && nghttp2.session_terminate_session(self->session, NO_ERROR)) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

PyObject* client_close(PyObject* object, PyObject*) {
    stop(as_session(object));
    Py_RETURN_NONE;
}

PyObject* client_has_output(PyObject* object, void*) {
    NgSession* session = as_session(object)->session;
    return PyBool_FromLong(session && nghttp2.session_want_write(session));
}

PyObject* client_is_over(PyObject* object, void*) {
    NgSession* session = as_session(object)->session;
    return PyBool_FromLong(!session || (!nghttp2.session_want_read(session) && !nghttp2.session_want_write(session)));
}

PyMethodDef methods[] = {
    {"receive", client_receive, METH_O, nullptr},
    {"events", client_events, METH_NOARGS, nullptr},
    {"output", client_output, METH_O, nullptr},
    {"open", as_function(client_open), METH_FASTCALL, nullptr},
    {"send", as_function(client_send), METH_FASTCALL, nullptr},
    {"finish", client_finish, METH_O, nullptr},
    {"take", client_take, METH_O, nullptr},
    {"when_emptied", client_when_emptied, METH_O, nullptr},
    {"reset", as_function(client_reset), METH_FASTCALL, nullptr},
    {"ping", client_ping, METH_NOARGS, nullptr},
    {"terminate", client_terminate, METH_NOARGS, nullptr},
    {"close", client_close, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef getters[] = {
    {"has_output", client_has_output, nullptr, nullptr, nullptr},
    {"is_over", client_is_over, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyMemberDef members[] = {
    {"unread_bytes", T_PYSSIZET, offsetof(ClientSession, unread_bytes), READONLY, nullptr},
    {"unsent_bytes", T_PYSSIZET, offsetof(ClientSession, unsent_bytes), READONLY, nullptr},
    {"stream_count", T_PYSSIZET, offsetof(ClientSession, stream_count), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(client_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(client_dealloc)},
    {Py_tp_methods, methods},
    {Py_tp_getset, getters},
    {Py_tp_members, members},
    {0, nullptr},
};
PyType_Spec spec = {"pequod.native._hot.ClientSession", sizeof(ClientSession), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

int add_client_type(PyObject* module) {
    PyObject* type = PyType_FromSpec(&spec);
    const int added = type ? PyModule_AddObjectRef(module, "ClientSession", type) : -1;
    Py_XDECREF(type);
    return added;
}

}  // namespace pequod::http2
