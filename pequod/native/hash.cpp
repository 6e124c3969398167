#include "hash.hpp"

namespace pequod {

Secret secret;

namespace {

// The secret, from the machine's source of random bytes. False: an error is set.
bool draw_secret() {
    PyObject* os = PyImport_ImportModule("os");
    PyObject* drawn = os ? PyObject_CallMethod(os, "urandom", "i", int(sizeof secret)) : nullptr;
    Py_XDECREF(os);
    if (!drawn) return false;
    std::memcpy(&secret, PyBytes_AS_STRING(drawn), sizeof secret);
    Py_DECREF(drawn);
    return true;
}

// hash_of(data, secret=None): for tests, which compare it with Python's own.
PyObject* hash_of_bytes(PyObject*, PyObject* arguments) {
    Py_buffer data;
    unsigned long long first, second;
    const bool is_own = PyTuple_GET_SIZE(arguments) == 1;
    if (!PyArg_ParseTuple(arguments, is_own ? "y*" : "y*(KK)", &data, &first, &second)) return nullptr;
    const Secret key = is_own ? secret : Secret{first, second};
    const size_t hash = hash_with(key, {static_cast<const char*>(data.buf), size_t(data.len)});
    PyBuffer_Release(&data);
    return PyLong_FromSize_t(hash);
}

PyMethodDef functions[] = {
    {"hash_of", hash_of_bytes, METH_VARARGS, "The hash of bytes with the process's secret, or with another one."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_hash(PyObject* module) { return draw_secret() ? PyModule_AddFunctions(module, functions) : -1; }

}  // namespace pequod
