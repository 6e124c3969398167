#include "samples.hpp"

#include "../arguments.hpp"

namespace pequod::http2 {

namespace {

// The first field of all requests of hot calls: a key, or where a range starts.
constexpr unsigned char FIRST_KEY = 0x0a;

bool note(Samples* samples, Piece key, bool is_write, double seconds) {
    const double stands_for_s = samples->due_s;
    samples->due_s = 0;
    if (!samples->list && !(samples->list = PyList_New(0))) return false;
    if (PyList_GET_SIZE(samples->list) >= SAMPLES_MAX) return true;
    return append(samples->list, Py_BuildValue("(y#Odd)", key.start, Py_ssize_t(key.size),
                                               is_write ? Py_True : Py_False, stands_for_s, seconds));
}

}  // namespace

bool sample_call(Samples* samples, Piece message, bool is_write, double seconds) {
    const unsigned char* start = reinterpret_cast<const unsigned char*>(message.start);
    if (!message.size || *start != FIRST_KEY) return true;
    Reader reader = {start + 1, start + message.size};
    const Piece key = reader.piece();
    return !reader.is_right || note(samples, key, is_write, seconds);
}

bool sample_batch(Samples* samples, const Batch* batch, double seconds) {
    if (!batch->kinds.size) return true;
    samples->random = samples->random * 6364136223846793005U + 1442695040888963407U;
    const size_t chosen = size_t(samples->random >> 33) % batch->kinds.size;
    const unsigned char* kinds = reinterpret_cast<const unsigned char*>(batch->kinds.start);
    size_t at = 0;
    for (size_t one = 0; one < chosen; ++one) at += KIND_ROWS[kinds[one]].argument_count;
    if (at >= batch->argument_count) return true;
    const bool is_write = KIND_ROWS[kinds[chosen]].is_write;
    return note(samples, batch->arguments[at], is_write, seconds / double(batch->kinds.size));
}

}  // namespace pequod::http2
