// Batches of clients: the twins of `encode_request` and `decode_whole` in pequod/client/columns.py.
//
// A reply in which anything is unusual is left to Python: a command failed, the rows go on in another message, the
// columns do not fit the kinds, or a field is not known here.
#include "columns.hpp"

#include "row_lists.hpp"

#include <utility>

namespace pequod {

namespace {

// `Reply`, a named tuple.
PyTypeObject* reply_type = nullptr;
// What a write under a condition gives: `MET`, or an `Unmet` of the present value.
PyObject* met = nullptr;
PyObject* unmet_type = nullptr;

size_t varint_size(uint64_t value) {
    size_t size = 1;
    while (value >>= 7) ++size;
    return size;
}

size_t field_size(size_t size) { return 1 + varint_size(size) + size; }

// The bytes of arguments in a message; -1: an error is set.
Py_ssize_t size_of_arguments(PyObject* arguments) {
    size_t size = 0;
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(arguments); ++at) {
        PyObject* argument = PyList_GET_ITEM(arguments, at);
        if (!PyBytes_Check(argument)) {
            PyErr_SetString(PyExc_TypeError, "arguments are bytes");
            return -1;
        }
        size += field_size(piece_of(argument).size);
    }
    return Py_ssize_t(size);
}

// The bytes of numbers as one packed field, without its tag and length; -1: an error is set.
Py_ssize_t size_of_numbers(PyObject* numbers) {
    size_t size = 0;
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(numbers); ++at) {
        const uint64_t number = PyLong_AsUnsignedLongLong(PyList_GET_ITEM(numbers, at));
        if (number == uint64_t(-1) && PyErr_Occurred()) return -1;
        size += varint_size(number);
    }
    return Py_ssize_t(size);
}

PyObject* encode(uint64_t batch, Piece kinds, PyObject* arguments, PyObject* numbers) {
    const Py_ssize_t argument_bytes = size_of_arguments(arguments);
    const Py_ssize_t number_bytes = argument_bytes < 0 ? -1 : size_of_numbers(numbers);
    if (number_bytes < 0) return nullptr;
    const size_t size = (batch ? 1 + varint_size(batch) : 0) + (kinds.size ? field_size(kinds.size) : 0) +
                        size_t(argument_bytes) + (number_bytes ? field_size(size_t(number_bytes)) : 0);
    PyObject* message = PyBytes_FromStringAndSize(nullptr, Py_ssize_t(size));
    if (!message) return nullptr;
    char* to = PyBytes_AS_STRING(message);
    if (batch) {
        *to++ = BATCH;
        to = write_varint(to, batch);
    }
    if (kinds.size) to = write_piece(to, KINDS, kinds);
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(arguments); ++at) {
        to = write_piece(to, ARGUMENT, piece_of(PyList_GET_ITEM(arguments, at)));
    }
    if (number_bytes) {
        *to++ = NUMBERS;
        to = write_varint(to, uint64_t(number_bytes));
        for (Py_ssize_t at = 0; at < PyList_GET_SIZE(numbers); ++at) {
            to = write_varint(to, PyLong_AsUnsignedLongLong(PyList_GET_ITEM(numbers, at)));
        }
    }
    return message;
}

// encode_request(batch, kinds, arguments, numbers): bytes.
PyObject* encode_request(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
    if (count != 4 || !PyList_Check(arguments[2]) || !PyList_Check(arguments[3])) {
        PyErr_SetString(PyExc_TypeError, "encode_request takes a number, kinds, and lists of arguments and of numbers");
        return nullptr;
    }
    const uint64_t batch = PyLong_AsUnsignedLongLong(arguments[0]);
    if (batch == uint64_t(-1) && PyErr_Occurred()) return nullptr;
    Py_buffer kinds;
    if (PyObject_GetBuffer(arguments[1], &kinds, PyBUF_SIMPLE) < 0) return nullptr;
    PyObject* message =
        encode(batch, {static_cast<const char*>(kinds.buf), size_t(kinds.len)}, arguments[2], arguments[3]);
    PyBuffer_Release(&kinds);
    return message;
}

// An array that is freed with its owner.
template <typename Item>
struct Array {
    Item* items = nullptr;
    size_t count = 0;
    size_t room = 0;
    // How many have been taken.
    size_t taken = 0;

    ~Array() { PyMem_Free(items); }
    bool add(Item item) { return pequod::add(&items, &count, &room, item); }
    size_t left() const { return count - taken; }
};

// The columns of a reply; the pieces are of its message.
struct ReplyColumns {
    uint64_t batch = 0;
    uint64_t server_id = 0;
    uint64_t revision = 0;
    Piece token = {"", 0};
    uint64_t age_ms = 0;
    bool has_age = false;
    Piece statuses = {"", 0};
    Array<Piece> keys;
    Array<Piece> values;
    Array<uint64_t> counts;
};

uint64_t read_fixed(Reader* reader) {
    if (reader->end - reader->at < 8) {
        reader->is_right = false;
        return 0;
    }
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 8) value |= uint64_t(*reader->at++) << shift;
    return value;
}

bool read_counts(Reader* reader, Array<uint64_t>* counts) {
    const Piece packed = reader->piece();
    if (!reader->is_right) return true;
    const unsigned char* start = reinterpret_cast<const unsigned char*>(packed.start);
    Reader inside = {start, start + packed.size};
    while (inside.is_right && inside.at < inside.end) {
        if (!counts->add(inside.varint())) return false;
    }
    reader->is_right = inside.is_right;
    return true;
}

// Return whether there is memory; `is_right` becomes true if the message is as expected.
bool read_columns(Piece message, ReplyColumns* reply, bool* is_right) {
    const unsigned char* start = reinterpret_cast<const unsigned char*>(message.start);
    Reader reader = {start, start + message.size};
    bool has_memory = true;
    while (reader.is_right && has_memory && reader.at < reader.end) {
        switch (*reader.at++) {
            case REPLY_BATCH:
                reply->batch = reader.varint();
                break;
            case STATUSES:
                reply->statuses = reader.piece();
                break;
            case KEY:
                has_memory = reply->keys.add(reader.piece());
                break;
            case VALUE:
                has_memory = reply->values.add(reader.piece());
                break;
            case COUNTS:
                has_memory = read_counts(&reader, &reply->counts);
                break;
            case SERVER_ID:
                reply->server_id = read_fixed(&reader);
                break;
            case REVISION:
                reply->revision = reader.varint();
                break;
            case TOKEN:
                reply->token = reader.piece();
                break;
            case AGE_MS:
                reply->age_ms = reader.varint();
                reply->has_age = true;
                break;
            default:
                reader.is_right = false;
        }
    }
    *is_right = reader.is_right;
    return has_memory;
}

// Whether a command that gives this may have another status than that it is done.
bool may_be(Gives gives, char status) {
    if (status == UNMET) return gives == Gives::MET;
    return status == ABSENT && (gives == Gives::VALUE || gives == Gives::WAS_THERE || gives == Gives::MET);
}

// The columns hold what the statuses of these kinds say, and nothing else.
bool is_fitting(Piece kinds, const ReplyColumns& reply) {
    if (reply.statuses.size != kinds.size) return false;
    size_t values = 0, counts = 0, rows = 0;
    for (size_t at = 0; at < kinds.size; ++at) {
        const unsigned char kind = static_cast<unsigned char>(kinds.start[at]);
        const char status = reply.statuses.start[at];
        if (!is_kind(kind)) return false;
        const Gives gives = KIND_ROWS[kind].gives;
        // Python makes the time that a key has left.
        if (gives == Gives::REMAINING) return false;
        if (status && !may_be(gives, status)) return false;
        if (gives == Gives::VALUE) {
            values += !status;
        } else if (gives == Gives::MET) {
            values += status == UNMET;
        } else if (gives == Gives::ROWS || gives == Gives::COUNT) {
            if (counts == reply.counts.count) return false;
            const uint64_t count = reply.counts.items[counts++];
            if (gives == Gives::COUNT) continue;
            if (count > reply.keys.count - rows) return false;
            rows += size_t(count);
        }
    }
    return counts == reply.counts.count && rows == reply.keys.count && rows + values == reply.values.count;
}

// The next pieces, as a list of bytes.
PyObject* take_list(Array<Piece>* pieces, size_t count) {
    PyObject* list = PyList_New(Py_ssize_t(count));
    for (size_t at = 0; list && at < count; ++at) {
        const Piece piece = pieces->items[pieces->taken++];
        PyObject* bytes = PyBytes_FromStringAndSize(piece.start, Py_ssize_t(piece.size));
        if (bytes) {
            PyList_SET_ITEM(list, Py_ssize_t(at), bytes);
        } else {
            Py_CLEAR(list);
        }
    }
    return list;
}

PyObject* take_value(ReplyColumns* reply) {
    const Piece value = reply->values.items[reply->values.taken++];
    return PyBytes_FromStringAndSize(value.start, Py_ssize_t(value.size));
}

PyObject* take_condition(char status, ReplyColumns* reply) {
    if (!status) return Py_NewRef(met);
    PyObject* present = status == UNMET ? take_value(reply) : Py_NewRef(Py_None);
    PyObject* unmet = present ? PyObject_CallOneArg(unmet_type, present) : nullptr;
    Py_XDECREF(present);
    return unmet;
}

// The result of the next command.
PyObject* take_result(unsigned char kind, char status, ReplyColumns* reply) {
    switch (KIND_ROWS[kind].gives) {
        case Gives::NOTHING:
            return Py_NewRef(Py_None);
        case Gives::WAS_THERE:
            return PyBool_FromLong(status != ABSENT);
        case Gives::COUNT:
            return PyLong_FromUnsignedLongLong(reply->counts.items[reply->counts.taken++]);
        case Gives::VALUE:
            return status == ABSENT ? Py_NewRef(Py_None) : take_value(reply);
        case Gives::MET:
            return take_condition(status, reply);
        default: {  // Gives::ROWS
            const size_t count = size_t(reply->counts.items[reply->counts.taken++]);
            PyObject* keys = take_list(&reply->keys, count);
            return make_rows(keys, keys ? take_list(&reply->values, count) : nullptr);
        }
    }
}

PyObject* take_results(Piece kinds, ReplyColumns* reply) {
    PyObject* results = PyList_New(Py_ssize_t(kinds.size));
    for (size_t at = 0; results && at < kinds.size; ++at) {
        PyObject* result = take_result(static_cast<unsigned char>(kinds.start[at]), reply->statuses.start[at], reply);
        if (result) {
            PyList_SET_ITEM(results, Py_ssize_t(at), result);
        } else {
            Py_CLEAR(results);
        }
    }
    return results;
}

PyObject* decode(Piece kinds, Piece message) {
    ReplyColumns reply;
    bool is_right = false;
    if (!read_columns(message, &reply, &is_right)) return PyErr_NoMemory();
    if (!is_right || !is_fitting(kinds, reply)) Py_RETURN_NONE;
    PyObject* results = take_results(kinds, &reply);
    PyObject* whole = results ? new_tuple(reply_type, 6) : nullptr;
    if (!whole) {
        Py_XDECREF(results);
        return nullptr;
    }
    PyTuple_SET_ITEM(whole, 0, PyLong_FromUnsignedLongLong(reply.batch));
    PyTuple_SET_ITEM(whole, 1, PyLong_FromUnsignedLongLong(reply.server_id));
    PyTuple_SET_ITEM(whole, 2, PyLong_FromUnsignedLongLong(reply.revision));
    PyTuple_SET_ITEM(whole, 3, results);
    PyTuple_SET_ITEM(whole, 4, PyBytes_FromStringAndSize(reply.token.start, Py_ssize_t(reply.token.size)));
    PyTuple_SET_ITEM(whole, 5, reply.has_age ? PyLong_FromUnsignedLongLong(reply.age_ms) : Py_NewRef(Py_None));
    if (PyErr_Occurred()) Py_CLEAR(whole);
    return whole;
}

// decode_whole(kinds, message): a reply, or None if it is unusual.
PyObject* decode_whole(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
    if (count != 2 || !PyBytes_CheckExact(arguments[1]) || !reply_type) {
        PyErr_SetString(PyExc_TypeError, "decode_whole takes kinds and a message, after use_reply was called");
        return nullptr;
    }
    Py_buffer kinds;
    if (PyObject_GetBuffer(arguments[0], &kinds, PyBUF_SIMPLE) < 0) return nullptr;
    PyObject* reply = decode({static_cast<const char*>(kinds.buf), size_t(kinds.len)}, piece_of(arguments[1]));
    PyBuffer_Release(&kinds);
    return reply;
}

// use_reply(type, met, unmet_type)
PyObject* use_reply(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
    PyObject* type = count == 3 ? arguments[0] : nullptr;
    if (!type || !PyType_Check(type) || !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(type), &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "replies are tuples");
        return nullptr;
    }
    Py_XDECREF(std::exchange(reply_type, reinterpret_cast<PyTypeObject*>(Py_NewRef(type))));
    Py_XDECREF(std::exchange(met, Py_NewRef(arguments[1])));
    Py_XDECREF(std::exchange(unmet_type, Py_NewRef(arguments[2])));
    Py_RETURN_NONE;
}

template <typename Function>
PyCFunction as_function(Function function) {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)(void)>(function));
}

PyMethodDef functions[] = {
    {"encode_request", as_function(encode_request), METH_FASTCALL, "Return the bytes of a batch of commands."},
    {"decode_whole", as_function(decode_whole), METH_FASTCALL, "Take the bytes of a whole reply apart."},
    {"use_reply", as_function(use_reply), METH_FASTCALL, "Return replies as this class of named tuples from now on."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_column_functions(PyObject* module) { return PyModule_AddFunctions(module, functions); }

}  // namespace pequod
