#include "lens.hpp"

#include "numerals.hpp"

#include <cstdint>
#include <cstdio>
#include <cstring>

namespace pequod {

namespace {

// Decimal digits, a sign, and the end.
constexpr size_t NUMBER_SIZE = 24;
// A slot of a greater width has its numbers from Python.
constexpr size_t DIGITS_MAX = 20;
constexpr size_t I64_WIDTH = 16;
// Integers of so many digits have 64 bits.
constexpr int64_t WHOLE_DIGITS_MAX = 18;

// A field that gives a slot its value.
struct Field {
    // A str, owned; null: the value itself.
    PyObject* name;
    // As that of a part.
    size_t width;
    // Whether integers are written as the digits that sort as they do: `<x:i64>`.
    int is_i64;
};

struct QuickLens {
    PyObject_HEAD
    // Of the table's keys.
    Part parts[PARTS_MAX];
    size_t part_count;
    Field fields[PARTS_MAX];
    size_t field_count;
    // Of the plain key; the fields come after the parts.
    MadePiece plain[PARTS_MAX];
    size_t plain_count;
    size_t text_bytes_max;
};

QuickLens* lens_of(PyObject* self) { return reinterpret_cast<QuickLens*>(self); }

// The pieces of a plain key, and room for the digits of numbers.
struct Pieces {
    Piece of[2 * PARTS_MAX];
    char digits[PARTS_MAX][NUMBER_SIZE];
};

// The form of a text in a slot; false: it is Python's to say.
bool text_form(const QuickLens* lens, size_t width, PyObject* text, Piece* piece) {
    Py_ssize_t size;
    const char* bytes = PyUnicode_AsUTF8AndSize(text, &size);
    if (!bytes) {
        PyErr_Clear();
        return false;
    }
    *piece = {bytes, size_t(size)};
    if (width) return piece->size == width;
    return size && piece->size <= lens->text_bytes_max && !std::memchr(bytes, DELIMITER, piece->size);
}

// The same for an integer.
bool integer_form(const Field& field, long long value, char* digits, Piece* piece) {
    if (field.is_i64) {
        unsigned long long left = static_cast<unsigned long long>(value) ^ (1ULL << 63);
        for (size_t at = I64_WIDTH; at--; left >>= 4) digits[at] = "0123456789abcdef"[left & 15];
        *piece = {digits, I64_WIDTH};
        return true;
    }
    if (field.width > DIGITS_MAX || (field.width && value < 0)) return false;
    const int size = std::snprintf(digits, NUMBER_SIZE, "%0*lld", int(field.width), value);
    *piece = {digits, size_t(size)};
    return !field.width || piece->size == field.width;
}

bool number_form(const Field& field, PyObject* number, char* digits, Piece* piece) {
    int overflow;
    const long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
    return !overflow && integer_form(field, value, digits, piece);
}

// The integer that a value is in JSON; false: it is something else, or one for Python.
bool whole_integer(Piece value, long long* integer) {
    const bool is_negative = value.size && *value.start == '-';
    const char *at = value.start + is_negative, *end = value.start + value.size;
    const int64_t digits = end - at;
    // Zero has no sign, and no others begin with one.
    if (digits < 1 || digits > WHOLE_DIGITS_MAX || (*at == '0' && (digits > 1 || is_negative))) return false;
    long long found = 0;
    for (; at < end; ++at) {
        if (*at < '0' || *at > '9') return false;
        found = 10 * found + (*at - '0');
    }
    *integer = is_negative ? -found : found;
    return true;
}

bool take_fields(const QuickLens* lens, PyObject* record, Pieces* pieces) {
    for (size_t at = 0; at < lens->field_count; ++at) {
        const Field& field = lens->fields[at];
        PyObject* value = PyDict_GetItemWithError(record, field.name);
        if (!value) return false;
        Piece* piece = &pieces->of[lens->part_count + at];
        const bool is_taken = PyUnicode_CheckExact(value) ? !field.is_i64 && text_form(lens, field.width, value, piece)
                              : PyLong_CheckExact(value)  ? number_form(field, value, pieces->digits[at], piece)
                                                          : false;
        if (!is_taken) return false;
    }
    return true;
}

// The same for a lens that looks at values themselves.
bool take_whole(const QuickLens* lens, Piece value, Pieces* pieces) {
    long long integer;
    if (!whole_integer(value, &integer)) return false;
    for (size_t at = 0; at < lens->field_count; ++at) {
        Piece* piece = &pieces->of[lens->part_count + at];
        if (!integer_form(lens->fields[at], integer, pieces->digits[at], piece)) return false;
    }
    return true;
}

bool cut_key(const QuickLens* lens, Piece key, Pieces* pieces) {
    for (size_t at = 0; at < lens->part_count; ++at) {
        if (!cut(lens->parts[at], &key, &pieces->of[at])) return false;
    }
    return !key.size;
}

// The plain key of a row, new, and its record, new; null: something is not as usual, or an error is set.
PyObject* plain_key(const QuickLens* lens, PyObject* key, PyObject* value, PyObject* parse, PyObject** record) {
    Pieces pieces;
    if (!cut_key(lens, piece_of(key), &pieces)) return nullptr;
    if (lens->field_count && !lens->fields[0].name) {
        if (!PyBytes_CheckExact(value) || !take_whole(lens, piece_of(value), &pieces)) return nullptr;
        PyObject* plain = put_together(lens->plain, lens->plain_count, pieces.of);
        // What it gives does not depend on it.
        if (plain) *record = Py_NewRef(Py_None);
        return plain;
    }
    *record = PyObject_CallOneArg(parse, value);
    if (!*record) return nullptr;
    PyObject* plain = PyDict_CheckExact(*record) && take_fields(lens, *record, &pieces)
                          ? put_together(lens->plain, lens->plain_count, pieces.of)
                          : nullptr;
    if (!plain) Py_CLEAR(*record);
    return plain;
}

// look(key, value, parse): the plain key and the record; None: something is not as usual.
PyObject* look(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    if (count != 3 || !PyBytes_CheckExact(arguments[0])) {
        PyErr_SetString(PyExc_TypeError, "look takes a key, a value and a parser");
        return nullptr;
    }
    PyObject* record = nullptr;
    PyObject* plain = plain_key(lens_of(self), arguments[0], arguments[1], arguments[2], &record);
    PyObject* seen = plain ? PyTuple_Pack(2, plain, record) : nullptr;
    Py_XDECREF(plain);
    Py_XDECREF(record);
    if (seen || PyErr_Occurred()) return seen;
    Py_RETURN_NONE;
}

// What many rows show: lists of plain keys, of their values, and of the numbers of rows that are not as usual.
struct Seen {
    PyObject* keys = PyList_New(0);
    PyObject* values = PyList_New(0);
    PyObject* others = PyList_New(0);

    ~Seen() {
        for (PyObject* list : {keys, values, others}) Py_XDECREF(list);
    }
};

// Look at one of many rows; false: an error is set.
bool look_at(const QuickLens* lens, PyObject* key, PyObject* value, PyObject* parse, PyObject* give, Py_ssize_t at,
             Seen* seen) {
    PyObject* record = nullptr;
    // The parser is that of doubles.
    const bool is_usual = PyBytes_CheckExact(key) && PyBytes_CheckExact(value) &&
                          !may_lose(PyBytes_AS_STRING(value), size_t(PyBytes_GET_SIZE(value)));
    PyObject* plain = is_usual ? plain_key(lens, key, value, parse, &record) : nullptr;
    PyObject* given = !plain            ? nullptr
                      : give == Py_None ? Py_NewRef(value)
                                        : PyObject_CallFunctionObjArgs(give, value, record, nullptr);
    Py_XDECREF(record);
    // The parser's error of what is no JSON; Python names it.
    if (!plain && PyErr_ExceptionMatches(PyExc_ValueError)) PyErr_Clear();
    bool is_done = !PyErr_Occurred();
    if (is_done && given && PyBytes_CheckExact(given)) {
        is_done = !PyList_Append(seen->keys, plain) && !PyList_Append(seen->values, given);
    } else if (is_done) {
        PyObject* number = PyLong_FromSsize_t(at);
        is_done = number && !PyList_Append(seen->others, number);
        Py_XDECREF(number);
    }
    Py_XDECREF(plain);
    Py_XDECREF(given);
    return is_done;
}

// look_all(keys, values, parse, give): plain keys, their values, and the numbers of rows that are not as usual; give is
// None if values are the table's own.
PyObject* look_all(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    if (count != 4 || !PyList_CheckExact(arguments[0]) || !PyList_CheckExact(arguments[1]) ||
        PyList_GET_SIZE(arguments[0]) != PyList_GET_SIZE(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "look_all takes keys, as many values, a parser and a giver");
        return nullptr;
    }
    Seen seen;
    if (!seen.keys || !seen.values || !seen.others) return nullptr;
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(arguments[0]); ++at) {
        PyObject* key = PyList_GET_ITEM(arguments[0], at);
        PyObject* value = PyList_GET_ITEM(arguments[1], at);
        if (!look_at(lens_of(self), key, value, arguments[2], arguments[3], at, &seen)) return nullptr;
    }
    return PyTuple_Pack(3, seen.keys, seen.values, seen.others);
}

// A tuple of names, None for the value itself, of widths, as those of parts, and of whether they are i64.
bool read_fields(QuickLens* lens, PyObject* tuple) {
    if (PyTuple_GET_SIZE(tuple) > Py_ssize_t(PARTS_MAX)) return refuse("a lens has few fields");
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(tuple); ++at) {
        PyObject *name, *width;
        int is_i64;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(tuple, at), "OOp", &name, &width, &is_i64)) return false;
        if (name != Py_None && !PyUnicode_CheckExact(name)) return refuse("a field has a name");
        Field& field = lens->fields[lens->field_count++];
        field.name = name == Py_None ? nullptr : Py_NewRef(name);
        field.is_i64 = is_i64;
        if (width == Py_None) continue;
        field.width = PyLong_AsSize_t(width);
        if (PyErr_Occurred() || !field.width) return refuse("a slot has a width");
    }
    return true;
}

// QuickLens(parts, fields, plain, text_bytes_max)
PyObject* lens_new(PyTypeObject* type, PyObject* arguments, PyObject*) {
    PyObject *parts, *fields, *plain;
    Py_ssize_t text_bytes_max;
    if (!PyArg_ParseTuple(arguments, "O!O!O!n", &PyTuple_Type, &parts, &PyTuple_Type, &fields, &PyTuple_Type, &plain,
                          &text_bytes_max)) {
        return nullptr;
    }
    PyObject* self = type->tp_alloc(type, 0);
    if (!self) return nullptr;
    QuickLens* lens = lens_of(self);
    lens->text_bytes_max = size_t(text_bytes_max);
    if (!read_parts(parts, lens->parts, &lens->part_count) || !read_fields(lens, fields) ||
        !read_pieces(plain, lens->part_count + lens->field_count, lens->plain, &lens->plain_count)) {
        Py_CLEAR(self);
    }
    return self;
}

void lens_dealloc(PyObject* self) {
    QuickLens* lens = lens_of(self);
    PyTypeObject* type = Py_TYPE(self);
    clear_literals(lens->parts, lens->part_count);
    clear_literals(lens->plain, lens->plain_count);
    for (size_t at = 0; at < lens->field_count; ++at) Py_XDECREF(lens->fields[at].name);
    type->tp_free(self);
    Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"look", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)(void)>(look)), METH_FASTCALL,
     "Return the plain key and the record of a row of the table, None if something is not as usual."},
    {"look_all", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)(void)>(look_all)), METH_FASTCALL,
     "Return the plain keys of rows, their values, and the numbers of rows that are not as usual."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("The quick half of a lens.")},
    {Py_tp_new, reinterpret_cast<void*>(lens_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(lens_dealloc)},
    {Py_tp_methods, methods},
    {0, nullptr},
};

PyType_Spec spec = {"pequod.native._hot.QuickLens", sizeof(QuickLens), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                    slots};

}  // namespace

int add_lens_type(PyObject* module) {
    PyObject* type = PyType_FromSpec(&spec);
    if (!type) return -1;
    const int added = PyModule_AddObjectRef(module, "QuickLens", type);
    Py_DECREF(type);
    return added;
}

}  // namespace pequod
