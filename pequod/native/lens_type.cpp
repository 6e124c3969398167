// The Python type of quick lenses.
#include "lens.hpp"
#include "numerals.hpp"

namespace pequod {

PyTypeObject* lens_type = nullptr;

namespace {

QuickLens* lens_of(PyObject* self) { return reinterpret_cast<QuickLens*>(self); }

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

// show(key, value): the plain key and its value; None: something is not as usual.
PyObject* lens_show(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    if (count != 2 || !PyBytes_CheckExact(arguments[0]) || !PyBytes_CheckExact(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "show takes a key and a value");
        return nullptr;
    }
    Shown shown;
    if (show(lens_of(self), arguments[0], arguments[1], &shown)) return Py_BuildValue("(NN)", shown.key, shown.value);
    if (PyErr_Occurred()) return nullptr;
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
bool read_binds(QuickLens* lens, PyObject* tuple) {
    if (PyTuple_GET_SIZE(tuple) > Py_ssize_t(PARTS_MAX)) return refuse("a lens has few fields");
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(tuple); ++at) {
        PyObject *name, *width;
        int is_i64;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(tuple, at), "OOp", &name, &width, &is_i64)) return false;
        if (name != Py_None && !PyUnicode_CheckExact(name)) return refuse("a field has a name");
        Bind& bind = lens->binds[lens->bind_count++];
        bind.name = name == Py_None ? nullptr : Py_NewRef(name);
        bind.is_i64 = is_i64;
        if (width == Py_None) continue;
        bind.width = PyLong_AsSize_t(width);
        if (PyErr_Occurred() || !bind.width) return refuse("a slot has a width");
    }
    return true;
}

// Of each field what begins it in an object, None of one that is given by itself, its name, and that of one within it.
bool read_given(QuickLens* lens, PyObject* tuple) {
    if (PyTuple_GET_SIZE(tuple) > Py_ssize_t(PARTS_MAX)) return refuse("a lens gives few fields");
    lens->gives = QuickLens::SOME_FIELDS;
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(tuple); ++at) {
        PyObject *begin, *name, *inner = nullptr;
        PyObject* pair = PyTuple_GET_ITEM(tuple, at);
        if (!PyTuple_CheckExact(pair)) return refuse("a field has a beginning and a name");
        if (!PyArg_ParseTuple(pair, "OU|U", &begin, &name, &inner)) return false;
        if (begin == Py_None) lens->gives = QuickLens::ONE_FIELD;
        if (begin != Py_None && !PyBytes_CheckExact(begin)) return refuse("a field begins with bytes");
        lens->given[lens->given_count++] = {begin == Py_None ? nullptr : Py_NewRef(begin), Py_NewRef(name),
                                            Py_XNewRef(inner), Piece{nullptr, 0}};
    }
    return lens->gives == QuickLens::SOME_FIELDS || lens->given_count == 1 ? true : refuse("one field is given alone");
}

// None: the table's own value; no bytes; the fields that are given; False: Python makes it.
bool read_gives(QuickLens* lens, PyObject* gives) {
    lens->gives = gives == Py_None ? QuickLens::OWN : gives == Py_False ? QuickLens::PYTHON : QuickLens::EMPTY;
    if (PyTuple_CheckExact(gives)) return read_given(lens, gives);
    const bool is_empty = PyBytes_CheckExact(gives) && !PyBytes_GET_SIZE(gives);
    return lens->gives != QuickLens::EMPTY || is_empty ? true : refuse("a lens gives a value");
}

// The bytes of a name; false: an error is set.
bool read_name(PyObject* name, Piece* piece) {
    Py_ssize_t size = 0;
    const char* text = name ? PyUnicode_AsUTF8AndSize(name, &size) : "";
    *piece = {text, size_t(size)};
    return text;
}

// Have the names of all fields at hand.
bool read_names(QuickLens* lens) {
    for (size_t at = 0; at < lens->bind_count; ++at) {
        if (!read_name(lens->binds[at].name, lens->names + at)) return false;
    }
    for (size_t at = 0; at < lens->given_count; ++at) {
        Given& given = lens->given[at];
        if (!read_name(given.name, lens->names + lens->bind_count + at)) return false;
        if (given.inner && !read_name(given.inner, &given.inner_name)) return false;
    }
    return true;
}

// QuickLens(parts, fields, plain, text_bytes_max, gives)
PyObject* lens_new(PyTypeObject* type, PyObject* arguments, PyObject*) {
    PyObject *parts, *fields, *plain, *gives;
    Py_ssize_t text_bytes_max;
    if (!PyArg_ParseTuple(arguments, "O!O!O!nO", &PyTuple_Type, &parts, &PyTuple_Type, &fields, &PyTuple_Type, &plain,
                          &text_bytes_max, &gives)) {
        return nullptr;
    }
    PyObject* self = type->tp_alloc(type, 0);
    if (!self) return nullptr;
    QuickLens* lens = lens_of(self);
    lens->text_bytes_max = size_t(text_bytes_max);
    if (!read_parts(parts, lens->parts, &lens->part_count) || !read_binds(lens, fields) ||
        !read_pieces(plain, lens->part_count + lens->bind_count, lens->plain, &lens->plain_count) ||
        !read_gives(lens, gives) || !read_names(lens)) {
        Py_CLEAR(self);
    }
    return self;
}

void lens_dealloc(PyObject* self) {
    QuickLens* lens = lens_of(self);
    PyTypeObject* type = Py_TYPE(self);
    clear_literals(lens->parts, lens->part_count);
    clear_literals(lens->plain, lens->plain_count);
    for (size_t at = 0; at < lens->bind_count; ++at) Py_XDECREF(lens->binds[at].name);
    for (size_t at = 0; at < lens->given_count; ++at) {
        Py_XDECREF(lens->given[at].begin);
        Py_XDECREF(lens->given[at].name);
        Py_XDECREF(lens->given[at].inner);
    }
    type->tp_free(self);
    Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"look", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)(void)>(look)), METH_FASTCALL,
     "Return the plain key and the record of a row of the table, None if something is not as usual."},
    {"show", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)(void)>(lens_show)), METH_FASTCALL,
     "Return the plain row of a row of the table, None if something is not as usual."},
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
    lens_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
    if (!lens_type) return -1;
    return PyModule_AddObjectRef(module, "QuickLens", reinterpret_cast<PyObject*>(lens_type));
}

}  // namespace pequod
