// A batch of commands from the bytes of its message to those of its reply: `ExecuteRequest`, `ExecuteReply` of
// proto/pequod/v1/pequod.proto.
//
//     batch = Batch.parse(message, ...)              None: what is unusual is protobuf's to read
//     while batch.run(engine, now):                  runs what is quick, up to a command that is not
//         kind, first, second, number, third, ttl_ms = batch.command()
//         batch.rows(keys, values), .value(value), .unmet(value), .count(count), .done(), .absent() or .failed(error)
//     batch.reply(server_id, revision)
//
// Which commands are quick is said in batch_commands.cpp. Everything else is done by Python, in the order of the
// commands.
#include "batch.hpp"

#include <structmember.h>

#include <algorithm>
#include <cstddef>

#include "arguments.hpp"

namespace pequod {

namespace {

// About as many bytes as outputs had of late: the longest one, and a little less after each that is shorter.
size_t usual_size = 0;
constexpr size_t USUAL_MAX = size_t(1) << 20;

}  // namespace

bool Output::begin(size_t most) {
    room = usual_size < most ? usual_size : most;
    bytes = PyBytes_FromStringAndSize(nullptr, Py_ssize_t(room));
    return bytes;
}

bool Output::grow(size_t more) {
    const size_t roomy = more > SIZE_MAX / 4 || size > SIZE_MAX / 4 ? SIZE_MAX / 2 : (size + more) * 2 + 256;
    PyObject* own = PyBytes_FromStringAndSize(nullptr, Py_ssize_t(roomy));
    if (!own) return false;
    std::memcpy(PyBytes_AS_STRING(own), start(), size);
    Py_SETREF(bytes, own);
    room = roomy;
    return true;
}

PyObject* Output::give_out(size_t kept) {
    usual_size = std::min(std::max(size + size / 8, usual_size - usual_size / 16), USUAL_MAX);
    if (_PyBytes_Resize(&bytes, Py_ssize_t(size)) < 0) return nullptr;
    // There is no room in it for more.
    size = room = kept;
    return Py_NewRef(bytes);
}

namespace {

PyTypeObject* batch_type = nullptr;

// parse(message, commands_max, rows_max, piece_bytes_max): a batch, or None if its message is unusual, or refused.
PyObject* parse(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
    if (count != 4 || !PyBytes_CheckExact(arguments[0])) {
        PyErr_SetString(PyExc_TypeError, "parse takes a message and three limits");
        return nullptr;
    }
    const size_t commands_max = PyLong_AsSize_t(arguments[1]);
    const long long rows_max = PyLong_AsLongLong(arguments[2]);
    const long long piece_bytes_max = PyLong_AsLongLong(arguments[3]);
    if (PyErr_Occurred()) return nullptr;
    Batch* batch = new_batch();
    if (!batch) return nullptr;
    PyObject* self = reinterpret_cast<PyObject*>(batch);
    batch->message = Py_NewRef(arguments[0]);
    const Parsed parsed = begin(batch, piece_of(arguments[0]), {commands_max, rows_max, piece_bytes_max});
    if (parsed == Parsed::RIGHT) return self;
    Py_DECREF(self);
    return parsed == Parsed::NO_MEMORY ? PyErr_NoMemory() : Py_NewRef(Py_None);
}

// is_within(readable, writable): whether all keys that commands read, and all that they write, lie in ranges.
PyObject* are_within(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "is_within takes two pairs of lists of bytes");
        return nullptr;
    }
    KeyRanges readable, writable;
    if (!read_ranges(arguments[0], &readable) || !read_ranges(arguments[1], &writable)) {
        PyErr_SetString(PyExc_TypeError, "ranges are pairs of lists of bytes");
        return nullptr;
    }
    return PyBool_FromLong(is_within(batch_of(self), &readable, &writable));
}

// run(engine, now): return whether it has stopped before a command that is not quick.
PyObject* run(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    if (count != 2 || !PyObject_TypeCheck(arguments[0], engine_type) || !engine_of(arguments[0])->is_sound()) {
        PyErr_SetString(PyExc_TypeError, "run takes an engine and the time");
        return nullptr;
    }
    const double now = PyFloat_AsDouble(arguments[1]);
    if (now == -1.0 && PyErr_Occurred()) return nullptr;
    const Ran ran = run_quick(batch_of(self), engine_of(arguments[0]), now);
    return ran == Ran::FAILED ? nullptr : PyBool_FromLong(ran == Ran::NOT_QUICK);
}

bool is_at_command(Batch* batch) {
    if (size_t(batch->index) < batch->kinds.size) return true;
    PyErr_SetString(PyExc_IndexError, "all commands of the batch have run");
    return false;
}

// command(): kind, first and second argument, number, third argument, and second number of the next command; empty, or
// 0, is what it does not take.
PyObject* command(PyObject* self, PyObject*) {
    Batch* batch = batch_of(self);
    if (!is_at_command(batch)) return nullptr;
    const unsigned char kind = kind_of(batch);
    const Piece* argument = batch->arguments + batch->argument_at;
    const Piece first = argument[0];
    const Piece second = KIND_ROWS[kind].argument_count > 1 ? argument[1] : Piece{"", 0};
    const Piece third = KIND_ROWS[kind].argument_count > 2 ? argument[2] : Piece{"", 0};
    const uint64_t number = KIND_ROWS[kind].number_count ? batch->numbers[batch->number_at] : 0;
    const uint64_t second_number = KIND_ROWS[kind].number_count > 1 ? batch->numbers[batch->number_at + 1] : 0;
    return Py_BuildValue("(iy#y#Ky#K)", int(kind), first.start, Py_ssize_t(first.size), second.start,
                         Py_ssize_t(second.size), static_cast<unsigned long long>(number), third.start,
                         Py_ssize_t(third.size), static_cast<unsigned long long>(second_number));
}

// rows(keys, values): a scan gave these; False, and nothing is changed, if there is no room for them.
PyObject* take_rows(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    Batch* batch = batch_of(self);
    if (!is_at_command(batch)) return nullptr;
    if (count != 2 || !PyList_CheckExact(arguments[0]) || !PyList_CheckExact(arguments[1]) ||
        PyList_GET_SIZE(arguments[0]) != PyList_GET_SIZE(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "rows takes two lists of one length");
        return nullptr;
    }
    const Py_ssize_t found = PyList_GET_SIZE(arguments[0]);
    const size_t before = batch->rows.size;
    long long room = batch->room;
    for (Py_ssize_t at = 0; at < found; ++at) {
        PyObject *key = PyList_GET_ITEM(arguments[0], at), *value = PyList_GET_ITEM(arguments[1], at);
        if (!PyBytes_Check(key) || !PyBytes_Check(value)) {
            batch->rows.size = before;
            PyErr_SetString(PyExc_TypeError, "rows are of bytes");
            return nullptr;
        }
        const Ran ran = write_row(batch, {"", 0}, piece_of(key), piece_of(value), &room);
        if (ran != Ran::DONE) {
            batch->rows.size = before;
            if (ran == Ran::NOT_QUICK) Py_RETURN_FALSE;
            return nullptr;
        }
    }
    if (!write_count(batch, uint64_t(found))) {
        batch->rows.size = before;
        return nullptr;
    }
    batch->room = room;
    batch->row_count += found;
    advance(batch);
    Py_RETURN_TRUE;
}

// The value that the next command gives, with its status. False, and nothing is changed, if there is no room for it.
PyObject* take_with_status(PyObject* self, PyObject* value, char status) {
    Batch* batch = batch_of(self);
    if (!is_at_command(batch)) return nullptr;
    if (!PyBytes_Check(value)) {
        PyErr_SetString(PyExc_TypeError, "a value is bytes");
        return nullptr;
    }
    // It is done, whether the reply has room for it or not.
    if (!note_outcome(batch, static_cast<unsigned char>(status), piece_of(value))) return nullptr;
    const Ran ran = write_value(batch, piece_of(value));
    if (ran == Ran::FAILED) return nullptr;
    if (ran == Ran::NOT_QUICK) Py_RETURN_FALSE;
    batch->statuses[batch->index] = status;
    advance(batch);
    Py_RETURN_TRUE;
}

// value(value): a GET gave this; see take_with_status.
PyObject* take_value(PyObject* self, PyObject* value) { return take_with_status(self, value, 0); }

// unmet(value): the condition of a write did not hold, since this is the present value; see take_with_status.
PyObject* take_unmet(PyObject* self, PyObject* value) { return take_with_status(self, value, UNMET); }

// count(count): a COUNT gave this, or a TTL.
PyObject* take_count(PyObject* self, PyObject* argument) {
    Batch* batch = batch_of(self);
    const unsigned long long count = PyLong_AsUnsignedLongLong(argument);
    if (PyErr_Occurred() || !is_at_command(batch) || !write_count(batch, count)) return nullptr;
    advance(batch);
    Py_RETURN_NONE;
}

// done(): a PUT was done, a REMOVE of a key that was there, or a write whose condition held.
PyObject* done(PyObject* self, PyObject*) {
    Batch* batch = batch_of(self);
    if (!is_at_command(batch) || !note_outcome(batch, MET_STATUS, {"", 0})) return nullptr;
    advance(batch);
    Py_RETURN_NONE;
}

// absent(): the key of a GET, a TTL, a REMOVE, an EXPIRE or a condition that did not hold is not there.
PyObject* absent(PyObject* self, PyObject*) {
    Batch* batch = batch_of(self);
    if (!is_at_command(batch) || !note_outcome(batch, ABSENT, {"", 0})) return nullptr;
    batch->statuses[batch->index] = ABSENT;
    advance(batch);
    Py_RETURN_NONE;
}

// failed(error): a command failed; the bytes are a `CommandError`. Returns whether the reply has room for more.
PyObject* failed(PyObject* self, PyObject* error) {
    Batch* batch = batch_of(self);
    if (!is_at_command(batch)) return nullptr;
    if (!PyBytes_Check(error)) {
        PyErr_SetString(PyExc_TypeError, "an error is bytes");
        return nullptr;
    }
    char* to = batch->errors.reserve(piece_of(error).size + 1 + VARINT_MAX);
    if (!to) return nullptr;
    batch->errors.size = size_t(write_piece(to, ERROR, piece_of(error)) - batch->errors.start);
    batch->statuses[batch->index] = FAILED;
    batch->room -= static_cast<long long>(piece_of(error).size) + ROW_BYTES;
    advance(batch);
    return PyBool_FromLong(batch->room > 0);
}

// reply(server_id, revision, rest): the bytes of the reply, with what has run so far. The rest, which may be left out,
// is the bytes of further fields.
PyObject* reply(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    Batch* batch = batch_of(self);
    if ((count != 2 && count != 3) || (count == 3 && !PyBytes_Check(arguments[2]))) {
        PyErr_SetString(PyExc_TypeError, "reply takes the server's id, a revision, and bytes");
        return nullptr;
    }
    const Piece rest = count == 3 ? piece_of(arguments[2]) : Piece{"", 0};
    const uint64_t server_id = PyLong_AsUnsignedLongLong(arguments[0]);
    const uint64_t revision = PyErr_Occurred() ? 0 : PyLong_AsUnsignedLongLong(arguments[1]);
    if (PyErr_Occurred()) return nullptr;
    const size_t row_bytes = batch->rows.size;
    return write_reply(batch, server_id, revision, rest) ? batch->rows.give_out(row_bytes) : nullptr;
}

PyObject* bytes_of(Piece piece) { return PyBytes_FromStringAndSize(piece.start, Py_ssize_t(piece.size)); }

PyObject* argument(PyObject* self, PyObject* at) {
    const Batch* batch = batch_of(self);
    const size_t place = PyLong_AsSize_t(at);
    if (PyErr_Occurred()) return nullptr;
    if (place < batch->argument_count) return bytes_of(batch->arguments[place]);
    PyErr_SetString(PyExc_IndexError, "the batch has no such argument");
    return nullptr;
}

PyObject* get_freshness(PyObject* self, void*) { return bytes_of(batch_of(self)->freshness); }

PyObject* get_trace_parent(PyObject* self, void*) { return bytes_of(batch_of(self)->trace_parent); }

PyObject* get_trace_state(PyObject* self, void*) { return bytes_of(batch_of(self)->trace_state); }

PyObject* get_batch_id(PyObject* self, void*) { return bytes_of(batch_of(self)->batch_id); }

PyObject* get_outcomes(PyObject* self, void*) {
    const Outcomes& outcomes = batch_of(self)->outcomes;
    return bytes_of({outcomes.bytes.start, outcomes.bytes.size});
}

PyObject* get_outcome_count(PyObject* self, void*) { return PyLong_FromSize_t(batch_of(self)->outcomes.count); }

PyObject* get_reply_bytes(PyObject* self, void*) {
    return PyLong_FromLongLong(batch_of(self)->bytes_max - batch_of(self)->room);
}

PyObject* get_argument_count(PyObject* self, void*) { return PyLong_FromSize_t(batch_of(self)->argument_count); }

PyObject* get_kinds(PyObject* self, void*) {
    const Batch* batch = batch_of(self);
    return PyBytes_FromStringAndSize(batch->kinds.start, Py_ssize_t(batch->kinds.size));
}

void dealloc(PyObject* self) {
    Batch* batch = batch_of(self);
    PyTypeObject* type = Py_TYPE(self);
    Py_XDECREF(batch->message);
    PyMem_Free(batch->arguments);
    PyMem_Free(batch->numbers);
    PyMem_Free(batch->positions);
    PyMem_Free(batch->outcomes.bytes.start);
    PyMem_Free(batch->statuses);
    Py_XDECREF(batch->rows.bytes);
    PyMem_Free(batch->counts.start);
    PyMem_Free(batch->errors.start);
    type->tp_free(self);
    Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"parse", as_function(parse), METH_FASTCALL | METH_STATIC, "Return the batch of a message, None if it is unusual."},
    {"is_within", as_function(are_within), METH_FASTCALL, "Return whether all commands keep to ranges of keys."},
    {"run", as_function(run), METH_FASTCALL, "Run quick commands; tell whether there is one that is not."},
    {"command", command, METH_NOARGS, "Return kind, arguments and number of the next command."},
    {"argument", argument, METH_O, "Return the argument at a place."},
    {"rows", as_function(take_rows), METH_FASTCALL, "Take what a scan gave."},
    {"value", take_value, METH_O, "Take what a GET gave."},
    {"unmet", take_unmet, METH_O, "Take the present value, which does not meet a condition."},
    {"count", take_count, METH_O, "Take what a COUNT gave."},
    {"done", done, METH_NOARGS, "Note that a write was done."},
    {"absent", absent, METH_NOARGS, "Note that there is no such key."},
    {"failed", failed, METH_O, "Take why a command failed."},
    {"reply", as_function(reply), METH_FASTCALL, "Return the bytes of the reply."},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef members[] = {
    {"message", T_OBJECT, offsetof(Batch, message), READONLY, "The message that it is made of."},
    {"index", T_PYSSIZET, offsetof(Batch, index), READONLY, "The next command."},
    {"argument_at", T_PYSSIZET, offsetof(Batch, argument_at), READONLY, "Where its arguments are."},
    {"number_at", T_PYSSIZET, offsetof(Batch, number_at), READONLY, "Where its number is."},
    {"room", T_LONGLONG, offsetof(Batch, room), READONLY, "How many bytes the reply still has room for."},
    {"row_count", T_PYSSIZET, offsetof(Batch, row_count), READONLY, "How many rows scans gave."},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef getters[] = {
    {"freshness", get_freshness, nullptr, "How fresh the reads have to be, as bytes.", nullptr},
    {"reply_bytes", get_reply_bytes, nullptr, "How many bytes of rows and errors the reply has.", nullptr},
    {"batch_id", get_batch_id, nullptr, "That of the commands' request ids, empty: they have none.", nullptr},
    {"outcomes", get_outcomes, nullptr, "What commands with request ids have given.", nullptr},
    {"outcome_count", get_outcome_count, nullptr, "How many outcomes these are.", nullptr},
    {"argument_count", get_argument_count, nullptr, "How many arguments the commands have.", nullptr},
    {"kinds", get_kinds, nullptr, "The kinds of the commands.", nullptr},
    {"trace_parent", get_trace_parent, nullptr, "The span of the caller, as bytes.", nullptr},
    {"trace_state", get_trace_state, nullptr, "What its tracing system says of it, as bytes.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("A batch of commands under way.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_getset, getters},
    {0, nullptr},
};

PyType_Spec spec = {"pequod.native._hot.Batch", sizeof(Batch), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE, slots};

}  // namespace

Batch* new_batch() { return batch_of(batch_type->tp_alloc(batch_type, 0)); }

bool write_reply(Batch* batch, uint64_t server_id, uint64_t revision, Piece rest) {
    const size_t most = batch->kinds.size + batch->counts.size + batch->errors.size + rest.size + 6 * (1 + VARINT_MAX);
    char* to = batch->rows.reserve(most);
    if (!to) return false;
    *to++ = REPLY_BATCH;
    to = write_varint(to, batch->number);
    to = write_piece(to, STATUSES, {batch->statuses, batch->kinds.size});
    if (batch->counts.size) to = write_piece(to, COUNTS, {batch->counts.start, batch->counts.size});
    if (batch->errors.size) std::memcpy(to, batch->errors.start, batch->errors.size);
    to += batch->errors.size;
    *to++ = SERVER_ID;
    for (unsigned shift = 0; shift < 64; shift += 8) *to++ = char(server_id >> shift);
    *to++ = REVISION;
    to = write_varint(to, revision);
    std::memcpy(to, rest.start, rest.size);
    batch->rows.write_up_to(to + rest.size);
    return true;
}

int add_batch_type(PyObject* module) {
    batch_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
    if (!batch_type) return -1;
    return PyModule_AddObjectRef(module, "Batch", reinterpret_cast<PyObject*>(batch_type));
}

}  // namespace pequod
