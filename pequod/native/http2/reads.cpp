// A read of a socket: the one way on which the native core calls Python for a connection, outside of nghttp2.
//
//     the event loop -> buffer, updated -> take_in -> hot calls alone, and Python has nothing to do for the connection:
//                                                     turn() -> run_all -> write(replies)
//                                                     anything else, or more than that: rest(what is to be noted)
#include "../arguments.hpp"
#include "hot_calls.hpp"
#include "output.hpp"

namespace pequod::http2 {

bool call(PyObject* function, PyObject* argument) {
    Py_INCREF(function);
    PyObject* result = PyObject_CallOneArg(function, argument);
    Py_DECREF(function);
    Py_XDECREF(result);
    return result;
}

bool tell_error(const Session* self) {
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    PyErr_NormalizeException(&type, &error, &trace);
    if (trace) PyException_SetTraceback(error, trace);
    const bool is_told = self->reads.rest && call(self->reads.rest, error);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(trace);
    return is_told;
}

bool is_done(const Session* self) {
    const size_t total = self->unread_bytes + self->unsent_bytes + self->header_bytes;
    return self->reads.is_calm && !self->hot_size && total == self->reads.noted_bytes && !has_news(self);
}

namespace {

Session* session_of(PyObject* object) { return reinterpret_cast<Session*>(object); }

// Run the hot calls, and write their replies; `noted` becomes what Python has to note. False: an error is set.
bool answer(Session* self, PyObject* said, PyObject** noted) {
    KeyRanges homes;
    HotTurn turn = {};
    if (!take_turn(self->hot, said, &homes, &turn)) return false;
    const Reads& reads = self->reads;
    Done done;
    if (!run_all(self, turn, reads.most, reads.unsent_max, &done)) return dropped(done), false;
    // What is left of the queue has its turn behind other connections.
    if (!done.is_quiet() || self->hot_size) return (*noted = told(done));
    PyObject* replies = take_output(self->session, reads.output_max);
    const bool is_written = replies && (!PyBytes_GET_SIZE(replies) || !reads.write || call(reads.write, replies));
    Py_XDECREF(replies);
    return is_written;
}

}  // namespace

// attach(buffer, turn, write, rest, most, unsent_max, output_max): see NativeSession.
PyObject* session_attach(PyObject* object, PyObject* const* arguments, Py_ssize_t count) {
    Session* self = session_of(object);
    if (!check_count("attach", count, 7)) return nullptr;
    Reads& reads = self->reads;
    detach(self);
    reads.most = PyLong_AsSize_t(arguments[4]);
    reads.unsent_max = PyLong_AsSize_t(arguments[5]);
    reads.output_max = PyLong_AsSize_t(arguments[6]);
    if (PyErr_Occurred() || PyObject_GetBuffer(arguments[0], &reads.from, PyBUF_SIMPLE) < 0) return nullptr;
    reads.turn = Py_NewRef(arguments[1]);
    reads.write = Py_NewRef(arguments[2]);
    reads.rest = Py_NewRef(arguments[3]);
    Py_RETURN_NONE;
}

void detach(Session* self) {
    Reads& reads = self->reads;
    if (reads.from.obj) PyBuffer_Release(&reads.from);
    Py_CLEAR(reads.turn);
    Py_CLEAR(reads.write);
    Py_CLEAR(reads.rest);
}

// buffer(size): where the next bytes go, however many are expected.
PyObject* session_buffer(PyObject* object, PyObject*) {
    PyObject* buffer = session_of(object)->reads.from.obj;
    return buffer ? Py_NewRef(buffer) : PyErr_Format(PyExc_RuntimeError, "the connection does not stand");
}

// updated(size): as many bytes are in the buffer.
PyObject* session_updated(PyObject* object, PyObject* argument) {
    Session* self = session_of(object);
    Reads& reads = self->reads;
    const size_t size = PyLong_AsSize_t(argument);
    if (PyErr_Occurred()) return nullptr;
    if (!reads.rest || size > size_t(reads.from.len)) Py_RETURN_NONE;
    reads.at_s = monotonic();
    if (!take_in(self, reads.from.buf, size)) return tell_error(self) ? Py_NewRef(Py_None) : nullptr;
    PyObject* noted = nullptr;
    const bool is_hot = reads.is_calm && self->hot_at < self->hot_size && !PyList_GET_SIZE(self->events) &&
                        self->unsent_bytes < reads.unsent_max && reads.turn != Py_None;
    if (is_hot) {
        PyObject* said = PyObject_CallNoArgs(reads.turn);
        if (!said) return nullptr;
        const bool is_answered = said == Py_None || answer(self, said, &noted);
        Py_DECREF(said);
        if (!is_answered) return tell_error(self) ? Py_NewRef(Py_None) : nullptr;
    }
    if (!noted && is_done(self)) Py_RETURN_NONE;
    const bool is_told = !reads.rest || call(reads.rest, noted ? noted : Py_None);
    Py_XDECREF(noted);
    return is_told ? Py_NewRef(Py_None) : nullptr;
}

}  // namespace pequod::http2
