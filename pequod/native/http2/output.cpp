#include "output.hpp"

#include "stream.hpp"

namespace pequod::http2 {

namespace {

// What the buffer of `take_output` keeps: what a socket is given at a time, and a frame.
constexpr size_t OUTPUT_BYTES_KEPT = 128 << 10;

// An empty buffer for the next output, of any connection.
Bytes kept = {};

}  // namespace

Memory memory = {nullptr, [](size_t size, void*) { return PyMem_Malloc(size); },
                 [](void* start, void*) { PyMem_Free(start); },
                 [](size_t count, size_t size, void*) { return PyMem_Calloc(count, size); },
                 [](void* start, size_t size, void*) { return PyMem_Realloc(start, size); }};

PyObject* failed(int code) {
    if (!PyErr_Occurred()) {
        PyErr_SetString(code == NO_MEMORY ? PyExc_MemoryError : PyExc_ConnectionError, nghttp2.strerror(code));
    }
    return nullptr;
}

PyObject* take_output(NgSession* session, size_t most) {
    // Taken out meanwhile: an event that is noted may have Python collect garbage, and other threads run then, which
    // may have connections of their own.
    Bytes out = kept;
    kept = {};
    ssize_t size = 1;
    while (session && size > 0 && out.size < most) {
        const uint8_t* data = nullptr;
        size = nghttp2.session_mem_send(session, &data);
        if (size > 0 && !out.add(data, size_t(size))) size = NO_MEMORY;
    }
    PyObject* bytes = nullptr;
    if (size < 0 || PyErr_Occurred()) {
        failed(int(size));
    } else {
        bytes = PyBytes_FromStringAndSize(out.start, Py_ssize_t(out.size));
    }
    out.at = out.size = 0;
    if (kept.room || out.room > OUTPUT_BYTES_KEPT) {
        out.free();
    } else {
        kept = out;
    }
    return bytes;
}

}  // namespace pequod::http2
