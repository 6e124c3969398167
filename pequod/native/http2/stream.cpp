#include "stream.hpp"

#include <cstring>

namespace pequod::http2 {

namespace {

// An empty buffer keeps no more memory than this.
constexpr size_t KEPT_BYTES = 4 << 10;

Incoming read_head(const unsigned char* at, size_t received) {
    const size_t size = size_t(at[1]) << 24 | size_t(at[2]) << 16 | size_t(at[3]) << 8 | at[4];
    return {true, at[0] != 0, size, received};
}

size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

}  // namespace

char* Bytes::reserve(size_t length) {
    if (at && room - size < length) {
        std::memmove(start, start + at, size - at);
        size -= at;
        at = 0;
    }
    if (room - size < length) {
        const size_t roomy = size + length + (size + length) / 2;
        char* grown = static_cast<char*>(PyMem_Realloc(start, roomy));
        if (!grown) return nullptr;
        start = grown;
        room = roomy;
    }
    return start + size;
}

bool Bytes::add(const void* data, size_t length) {
    if (!length) return true;
    char* to = reserve(length);
    if (!to) return false;
    std::memcpy(to, data, length);
    size += length;
    return true;
}

void Bytes::skip(size_t length) {
    at += length;
    if (at < size) return;
    at = size = 0;
    if (room > KEPT_BYTES) free();
}

void Bytes::free() {
    PyMem_Free(start);
    start = nullptr;
    at = size = room = 0;
}

PyObject* Stream::headers() const {
    PyObject* list = PyList_New(0);
    for (Fields fields(head); list && fields.next();) {
        PyObject* pair = Py_BuildValue("(y#y#)", fields.name.start, Py_ssize_t(fields.name.size), fields.value.start,
                                       Py_ssize_t(fields.value.size));
        if (!pair || PyList_Append(list, pair) < 0) Py_CLEAR(list);
        Py_XDECREF(pair);
    }
    return list;
}

Incoming Stream::next() const {
    if (lengthy) return {true, is_lengthy_compressed, lengthy_size, lengthy_at};
    if (in.left() < HEAD_BYTES) return {false, false, 0, 0};
    const Incoming begun = read_head(in.front(), in.left() - HEAD_BYTES);
    return {true, begun.is_compressed, begun.size, smaller(begun.received, begun.size)};
}

// Room for all of it at once is memory that a client need not fill: of 40 messages that had begun to come,
// `make soak-memory` saw 60 MiB taken where 6 had come.
bool Stream::lengthen() {
    const size_t room = size_t(PyBytes_GET_SIZE(lengthy));
    return lengthy_at < room || !_PyBytes_Resize(&lengthy, Py_ssize_t(smaller(lengthy_size, 2 * room)));
}

bool Stream::receive(const char* data, size_t length, size_t message_bytes_max) {
    unread_bytes += length;
    while (length) {
        if (lengthy && lengthy_at < lengthy_size) {
            if (!lengthen()) return false;
            const size_t taken = smaller(length, size_t(PyBytes_GET_SIZE(lengthy)) - lengthy_at);
            std::memcpy(PyBytes_AS_STRING(lengthy) + lengthy_at, data, taken);
            lengthy_at += taken;
            data += taken;
            length -= taken;
            continue;
        }
        // The head of a message that is not yet there as a whole is looked at before what follows it.
        const size_t taken = !lengthy && in.left() < HEAD_BYTES ? smaller(length, HEAD_BYTES - in.left()) : length;
        if (!in.add(data, taken)) return false;
        data += taken;
        length -= taken;
        const Incoming message = next();
        if (lengthy || !message.is_begun || message.size <= LONG_BYTES || message.size > message_bytes_max) continue;
        if (message.received == message.size) continue;
        const size_t room = smaller(message.size, 2 * message.received + KEPT_BYTES);
        lengthy = PyBytes_FromStringAndSize(nullptr, Py_ssize_t(room));
        if (!lengthy) return false;
        lengthy_size = message.size;
        std::memcpy(PyBytes_AS_STRING(lengthy), in.front() + HEAD_BYTES, message.received);
        lengthy_at = message.received;
        is_lengthy_compressed = message.is_compressed;
        in.skip(HEAD_BYTES + message.received);
    }
    return true;
}

PyObject* Stream::take(const Incoming& message) {
    PyObject* taken = lengthy;
    lengthy = nullptr;
    if (!taken) {
        const char* start = reinterpret_cast<const char*>(in.front()) + HEAD_BYTES;
        taken = PyBytes_FromStringAndSize(start, Py_ssize_t(message.size));
        if (!taken) return nullptr;
        in.skip(HEAD_BYTES + message.size);
    }
    unread_bytes -= HEAD_BYTES + message.size;
    return taken;
}

size_t Stream::drop_in() {
    const size_t dropped = unread_bytes;
    in.free();
    Py_CLEAR(lengthy);
    unread_bytes = 0;
    return dropped;
}

bool Stream::send(PyObject* message) {
    Outgoing* out = static_cast<Outgoing*>(PyMem_Malloc(sizeof(Outgoing)));
    if (!out) return false;
    const size_t size = size_t(PyBytes_GET_SIZE(message));
    *out = {nullptr, Py_NewRef(message), {0, 0, 0, 0, 0}, 0};
    for (int at = 1; at < 5; ++at) out->head[at] = static_cast<unsigned char>(size >> (32 - 8 * at));
    (last_out ? last_out->next : first_out) = out;
    last_out = out;
    unsent_bytes += out->size();
    return true;
}

size_t Stream::write(char* to, size_t length) {
    size_t written = smaller(reply.left(), length);
    if (written) {
        std::memcpy(to, reply.front(), written);
        reply.skip(written);
    }
    while (first_out && written < length) {
        Outgoing* out = first_out;
        if (out->at < HEAD_BYTES) {
            const size_t part = smaller(HEAD_BYTES - out->at, length - written);
            std::memcpy(to + written, out->head + out->at, part);
            out->at += part;
            written += part;
        }
        const size_t part = smaller(out->size() - out->at, length - written);
        if (out->at >= HEAD_BYTES) {
            std::memcpy(to + written, PyBytes_AS_STRING(out->message) + out->at - HEAD_BYTES, part);
            out->at += part;
            written += part;
        }
        if (out->at < out->size()) break;
        first_out = out->next;
        if (!first_out) last_out = nullptr;
        Py_DECREF(out->message);
        PyMem_Free(out);
    }
    unsent_bytes -= written;
    return written;
}

size_t Stream::drop_out() {
    const size_t dropped = unsent_bytes;
    while (Outgoing* out = first_out) {
        first_out = out->next;
        Py_DECREF(out->message);
        PyMem_Free(out);
    }
    last_out = nullptr;
    reply.free();
    unsent_bytes = 0;
    return dropped;
}

Stream* new_stream(int32_t id) {
    Stream* stream = static_cast<Stream*>(PyMem_Calloc(1, sizeof(Stream)));
    if (stream) stream->id = id;
    return stream;
}

void free_stream(Stream* stream) {
    stream->drop_in();
    stream->drop_out();
    stream->head.free();
    Py_XDECREF(stream->first_fields);
    Py_XDECREF(stream->trailers);
    PyMem_Free(stream);
}

}  // namespace pequod::http2
