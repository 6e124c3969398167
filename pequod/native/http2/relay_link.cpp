// The way to another worker: calls that are on it, and what becomes of each.
//
//     send_call -> flights, out -> write        updated -> in -> land: the reply goes to the stream's client
//     late, close -> give_up: a call is Python's, with the time that it has spent here
#include "../arguments.hpp"
#include "output.hpp"
#include "relay.hpp"

#include <structmember.h>

#include <cstddef>

namespace pequod::http2 {

namespace {

Link* link_of(PyObject* object) { return reinterpret_cast<Link*>(object); }

// What a field takes beside its name and value, as HTTP/2 counts it.
constexpr size_t FIELD_BYTES = 32;

bool add_part(Bytes* out, RelayKind kind, unsigned char method, uint32_t id, Piece content) {
    const RelayHead head = {uint32_t(content.size), id, kind, method, {0, 0}};
    return out->add(&head, sizeof(head)) && out->add(content.start, content.size);
}

// Say what holds for the next calls, unless it does already; false: there is no memory.
bool say(Bytes* out, RelayKind kind, Bytes* said, Piece piece) {
    const Piece before = {said->start + said->at, said->left()};
    if (before.size == piece.size && (!piece.size || std::memcmp(before.start, piece.start, piece.size) == 0))
        return true;
    said->at = said->size = 0;
    return said->add(piece.start, piece.size) && add_part(out, kind, 0, 0, piece);
}

// What a stream holds is counted here while it is on its way, and not by its session; false: there is no memory.
bool stow(Session* session, Stream* stream) {
    session->unread_bytes -= stream->unread_bytes;
    session->header_bytes -= stream->header_bytes;
    stream->unread_bytes = stream->header_bytes = 0;
    session->held_bytes -= stream->held_bytes;
    stream->held_bytes = 0;
    return give_back(session);
}

void unstow(Session* session, Stream* stream) {
    stream->unread_bytes = stream->in.left();
    for (Fields fields(stream->head); fields.next();) {
        stream->header_bytes += fields.name.size + fields.value.size + FIELD_BYTES;
    }
    session->unread_bytes += stream->unread_bytes;
    session->header_bytes += stream->header_bytes;
}

// Nothing is expected of a flight any more; the reference to its session is the caller's. Null: nothing was.
Session* end_flight(Link* link, Flight* flight) {
    Session* session = flight->session;
    if (!session) return nullptr;
    Relay& relay = link->calls->relay;
    --relay.count;
    relay.bytes -= flight->size;
    flight->session = nullptr;
    while (link->at < link->size && !link->flights[link->at].session) ++link->at, ++link->base;
    if (link->at == link->size) link->at = link->size = 0;
    return session;
}

// Remember that a session has news; the reference is taken. False: an error is set.
bool touch(Link* link, Session* session) {
    if (session->is_touched) return Py_DECREF(session), true;
    if (!add(&link->touched, &link->touched_size, &link->touched_room, session)) {
        Py_DECREF(session);
        return PyErr_NoMemory(), false;
    }
    session->is_touched = true;
    return true;
}

// The stream of a flight; null: its client has gone.
Stream* open_stream(const Flight& flight) {
    Stream* stream = stream_of(flight.session, flight.stream);
    return stream && !stream->is_ended ? stream : nullptr;
}

// A call is Python's from now on; false: an error is set.
bool give_up(Link* link, Flight* flight) {
    if (!flight->session) return true;
    ++link->calls->relay.returned;
    const double at_s = flight->at_s;
    Stream* stream = open_stream(*flight);
    Session* session = end_flight(link, flight);
    if (!stream) return Py_DECREF(session), true;
    unstow(session, stream);
    stream->passed_s = at_s;
    if (note_opened(session, stream)) return touch(link, session);
    Py_DECREF(session);
    return false;
}

// The reply of a call is there; false: an error is set.
bool land(Link* link, Flight* flight, Piece reply) {
    const double now = monotonic(), seconds = now - flight->at_s;
    Stream* stream = open_stream(*flight);
    Session* session = end_flight(link, flight);
    if (!stream) return Py_DECREF(session), true;
    HotCalls* calls = link->calls;
    add_to(calls->tallies + stream->hot_method, seconds);
    calls->answered_s = now;
    ++calls->answered;
    ++session->hot_answered;
    const bool is_told = seconds < calls->slow_s || tell_slow(&link->slow, stream, seconds);
    if (!is_told || !stream->reply.add(reply.start, reply.size)) {
        Py_DECREF(session);
        return PyErr_Occurred() || PyErr_NoMemory(), false;
    }
    stream->unsent_bytes += reply.size;
    session->unsent_bytes += reply.size;
    stream->head.free();
    if (end_response(session, stream)) return touch(link, session);
    Py_DECREF(session);
    return false;
}

// Take the next part of what has come; false: an error is set. `is_whole` becomes whether there was one.
bool take_part(Link* link, bool* is_whole) {
    Bytes& in = link->in;
    RelayHead head;
    *is_whole = in.left() >= sizeof(head);
    if (!*is_whole) return true;
    std::memcpy(&head, in.front(), sizeof(head));
    *is_whole = in.left() >= sizeof(head) + head.size;
    if (!*is_whole) return true;
    const Piece content = {reinterpret_cast<const char*>(in.front()) + sizeof(head), head.size};
    const uint32_t place = head.id - link->base;
    bool is_done = true;
    // Those that are not expected any more are dropped.
    if (place < link->size - link->at && link->flights[link->at + place].session) {
        Flight* flight = link->flights + link->at + place;
        const bool is_answered = head.kind == ANSWERED;
        link->returned = is_answered ? 0 : link->returned + 1;
        is_done = is_answered ? land(link, flight, content) : give_up(link, flight);
    }
    in.skip(sizeof(head) + head.size);
    return is_done;
}

// Send what a session has, or have Python see to it; false: an error is set.
bool send_news(Session* session) {
    Reads& reads = session->reads;
    if (!reads.rest) return true;
    if (reads.is_calm && reads.write) {
        PyObject* replies = take_output(session->session, reads.output_max);
        const bool is_written = replies && (!PyBytes_GET_SIZE(replies) || call(reads.write, replies));
        Py_XDECREF(replies);
        if (!is_written) return false;
    }
    return !reads.rest || is_done(session) || call(reads.rest, Py_None);
}

// Send what all sessions have that have news.
void send_all_news(Link* link) {
    for (size_t at = 0; at < link->touched_size; ++at) {
        Session* session = link->touched[at];
        session->is_touched = false;
        // What goes wrong with one is not the others'.
        if (!send_news(session) && !tell_error(session)) PyErr_WriteUnraisable(reinterpret_cast<PyObject*>(session));
        Py_DECREF(session);
    }
    link->touched_size = 0;
}

// Give up all calls, or those whose clients do not wait so long; false: an error is set.
bool give_up_all(Link* link, double deadline_s) {
    // Flights that end move the beginning.
    for (size_t at = link->at; at < link->size; ++at) {
        Flight* flight = link->flights + at;
        const bool is_late = deadline_s <= 0 || (flight->deadline_s > 0 && flight->deadline_s < deadline_s);
        if (is_late && !give_up(link, flight)) return false;
    }
    send_all_news(link);
    return true;
}

void lower(Link* link) {
    Py_CLEAR(link->write);
    Py_CLEAR(link->soon);
    if (link->from.obj) PyBuffer_Release(&link->from);
    for (Bytes* one : {&link->in, &link->out, &link->token, &link->role}) one->free();
    link->is_soon = link->is_silent = false;
    link->fresh = 0;
    link->returned = link->spared = 0;
}

PyObject* link_new(PyTypeObject* type, PyObject* arguments, PyObject*) {
    PyObject* calls;
    if (!PyArg_ParseTuple(arguments, "O!", hot_calls_type, &calls)) return nullptr;
    PyObject* object = type->tp_alloc(type, 0);
    if (object) link_of(object)->calls = reinterpret_cast<HotCalls*>(Py_NewRef(calls));
    return object;
}

void link_dealloc(PyObject* object) {
    PyTypeObject* type = Py_TYPE(object);
    Link* link = link_of(object);
    lower(link);
    for (size_t at = link->at; at < link->size; ++at) Py_XDECREF(end_flight(link, link->flights + at));
    PyMem_Free(link->flights);
    PyMem_Free(link->touched);
    Py_XDECREF(link->slow);
    Py_DECREF(link->calls);
    type->tp_free(object);
    Py_DECREF(type);
}

// open(buffer, write, soon): it stands, with nothing on it.
PyObject* link_open(PyObject* object, PyObject* const* arguments, Py_ssize_t count) {
    Link* link = link_of(object);
    if (!check_count("open", count, 3)) return nullptr;
    lower(link);
    if (PyObject_GetBuffer(arguments[0], &link->from, PyBUF_SIMPLE) < 0) return nullptr;
    link->write = Py_NewRef(arguments[1]);
    link->soon = Py_NewRef(arguments[2]);
    link->heard_s = monotonic();
    Py_RETURN_NONE;
}

// close(): it does not stand any more; what is on it is Python's.
PyObject* link_close(PyObject* object, PyObject*) {
    Link* link = link_of(object);
    lower(link);
    return give_up_all(link, 0) ? Py_NewRef(Py_None) : nullptr;
}

PyObject* link_buffer(PyObject* object, PyObject*) {
    PyObject* buffer = link_of(object)->from.obj;
    return buffer ? Py_NewRef(buffer) : PyErr_Format(PyExc_RuntimeError, "the link does not stand");
}

// updated(size): as many bytes are in the buffer; returns the calls that were slow, or None.
PyObject* link_updated(PyObject* object, PyObject* argument) {
    Link* link = link_of(object);
    const size_t size = PyLong_AsSize_t(argument);
    if (PyErr_Occurred()) return nullptr;
    if (!link->from.obj || size > size_t(link->from.len)) Py_RETURN_NONE;
    link->heard_s = monotonic();
    link->is_silent = false;
    bool is_whole = link->in.add(link->from.buf, size);
    if (!is_whole) return PyErr_NoMemory();
    bool is_done = true;
    while (is_whole && is_done) is_done = take_part(link, &is_whole);
    if (!is_done) return nullptr;
    send_all_news(link);
    PyObject* slow = link->slow ? link->slow : Py_NewRef(Py_None);
    link->slow = nullptr;
    return slow;
}

// flush(): send what there is.
PyObject* link_flush(PyObject* object, PyObject*) {
    link_of(object)->is_soon = false;
    return flush(link_of(object)) ? Py_NewRef(Py_None) : nullptr;
}

// look(margin, silence): give up the calls whose clients wait no longer than the margin, in seconds; and all, if
// nothing has come for the silence. Returns how many are left.
PyObject* link_look(PyObject* object, PyObject* const* arguments, Py_ssize_t count) {
    Link* link = link_of(object);
    if (!check_count("look", count, 2)) return nullptr;
    const double now = monotonic(), margin = PyFloat_AsDouble(arguments[0]), silence = PyFloat_AsDouble(arguments[1]);
    if (PyErr_Occurred()) return nullptr;
    if (link->at < link->size) {
        const Flight& oldest = link->flights[link->at];
        link->is_silent = now - link->heard_s > silence && now - oldest.at_s > silence;
        if (!give_up_all(link, link->is_silent ? 0 : now + margin)) return nullptr;
    }
    return PyLong_FromSize_t(link->size - link->at);
}

PyObject* link_is_up(PyObject* object, void*) { return PyBool_FromLong(link_of(object)->write != nullptr); }

PyMethodDef methods[] = {
    {"open", as_function(link_open), METH_FASTCALL, nullptr},
    {"close", link_close, METH_NOARGS, nullptr},
    {"buffer", link_buffer, METH_O, nullptr},
    {"updated", link_updated, METH_O, nullptr},
    {"flush", link_flush, METH_NOARGS, nullptr},
    {"look", as_function(link_look), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef getters[] = {
    {"is_up", link_is_up, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyMemberDef members[] = {
    {"is_silent", T_BOOL, offsetof(Link, is_silent), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(link_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(link_dealloc)},
    {Py_tp_methods, methods},
    {Py_tp_getset, getters},
    {Py_tp_members, members},
    {0, nullptr},
};
PyType_Spec spec = {"pequod.native._hot.RelayLink", sizeof(Link), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

PyTypeObject* link_type = nullptr;

bool send_call(Link* link, Session* session, Stream* stream, Piece message, Piece token, Piece role,
               double deadline_s) {
    if (!say(&link->out, STATE, &link->token, token) || !say(&link->out, ROLE, &link->role, role)) return false;
    if (link->at && link->size == link->room) {
        std::memmove(link->flights, link->flights + link->at, (link->size - link->at) * sizeof(Flight));
        link->size -= link->at;
        link->at = 0;
    }
    const uint32_t id = link->base + uint32_t(link->size - link->at);
    const Flight flight = {session, stream->id, monotonic(), deadline_s, message.size};
    if (!add_part(&link->out, CALL, stream->hot_method, id, message)) return false;
    if (!add(&link->flights, &link->size, &link->room, flight)) return false;
    Py_INCREF(session);
    Relay& relay = link->calls->relay;
    ++relay.count;
    ++relay.passed;
    relay.bytes += message.size;
    ++link->fresh;
    return stow(session, stream);
}

bool flush(Link* link) {
    Bytes& out = link->out;
    link->fresh = 0;
    if (!out.left() || !link->write) return true;
    PyObject* bytes = PyBytes_FromStringAndSize(out.start + out.at, Py_ssize_t(out.left()));
    if (!bytes) return false;
    out.skip(out.left());
    const bool is_written = call(link->write, bytes);
    Py_DECREF(bytes);
    return is_written;
}

int add_link_type(PyObject* module) {
    link_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
    return link_type ? PyModule_AddObjectRef(module, "RelayLink", reinterpret_cast<PyObject*>(link_type)) : -1;
}

}  // namespace pequod::http2
