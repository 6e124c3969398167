#include "contents.hpp"

namespace pequod {

namespace {

constexpr uint64_t ODD = 0x9E3779B97F4A7C15;
// What is added to a word for its place in a text.
constexpr uint64_t PLACE = 0xD1B54A32D192ED03;

// Each bit depends on all bits: the finalizer of SplitMix64.
inline uint64_t mixed(uint64_t value) {
    value += ODD;
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
    return value ^ (value >> 31);
}

inline uint64_t text_hash(const char* start, size_t size) {
    uint64_t sum = 0, place = PLACE;
    const char* at = start;
    for (const char* stop = start + (size & ~size_t(7)); at < stop; at += 8, place += PLACE) {
        sum += mixed(word_at(at) + place);
    }
    const size_t left = size & 7;
    if (left) {
        // The last eight bytes at once, if the text has as many.
        const uint64_t word = size > 8 ? word_at(start + size - 8) >> (64 - 8 * left) : last_word(at, left);
        sum += mixed(word + place);
    }
    return mixed(sum + size * ODD);
}

// The buffers of a call, which end with it.
struct Buffers {
    Py_buffer sums = {}, values = {}, data = {}, nulls = {};

    ~Buffers() {
        for (Py_buffer* one : {&sums, &values, &data, &nulls}) {
            if (one->obj) PyBuffer_Release(one);
        }
    }
    size_t count() const { return size_t(sums.len) / 8; }
    bool is_null(size_t row) const { return nulls.obj && static_cast<const char*>(nulls.buf)[row]; }
    bool has_nulls_of_all() const { return !nulls.obj || size_t(nulls.len) == count(); }
    void add(size_t row, uint64_t hash) { static_cast<uint64_t*>(sums.buf)[row] += hash; }
};

PyObject* misfit() {
    PyErr_SetString(PyExc_ValueError, "the buffers of a column are of different numbers of rows");
    return nullptr;
}

// add_numbers(sums, values, name, nulls): add the hash of each number to its row's sum.
PyObject* add_numbers(PyObject*, PyObject* arguments) {
    Buffers given;
    unsigned long long name;
    if (!PyArg_ParseTuple(arguments, "w*y*Kz*", &given.sums, &given.values, &name, &given.nulls)) return nullptr;
    if (given.values.len != given.sums.len || !given.has_nulls_of_all()) return misfit();
    const auto* values = static_cast<const uint64_t*>(given.values.buf);
    for (size_t row = 0; row < given.count(); ++row) {
        if (!given.is_null(row)) given.add(row, mixed(values[row] + name));
    }
    Py_RETURN_NONE;
}

// Whether offsets never fall, and stay inside the data.
bool are_within(const int32_t* ends, size_t count, size_t size) {
    if (ends[0] < 0 || size_t(ends[count]) > size) return false;
    for (size_t row = 0; row < count; ++row) {
        if (ends[row + 1] < ends[row]) return false;
    }
    return true;
}

// add_texts(sums, offsets, data, name, nulls): add the hash of each text, of which Arrow's offsets say where it is.
PyObject* add_texts(PyObject*, PyObject* arguments) {
    Buffers given;
    unsigned long long name;
    if (!PyArg_ParseTuple(arguments, "w*y*z*Kz*", &given.sums, &given.values, &given.data, &name, &given.nulls)) {
        return nullptr;
    }
    const size_t count = given.count();
    if (size_t(given.values.len) != (count + 1) * sizeof(int32_t) || !given.has_nulls_of_all()) return misfit();
    const auto* ends = static_cast<const int32_t*>(given.values.buf);
    if (!are_within(ends, count, size_t(given.data.len))) return misfit();
    const auto* data = static_cast<const char*>(given.data.buf);
    for (size_t row = 0; row < count; ++row) {
        if (given.is_null(row)) continue;
        given.add(row, mixed(text_hash(data + ends[row], size_t(ends[row + 1] - ends[row])) + name));
    }
    Py_RETURN_NONE;
}

// content_sums(sums): the sums over all rows of two hashes of their sums.
PyObject* content_sums(PyObject*, PyObject* sums) {
    Buffers given;
    if (PyObject_GetBuffer(sums, &given.sums, PyBUF_SIMPLE) < 0) return nullptr;
    const auto* values = static_cast<const uint64_t*>(given.sums.buf);
    uint64_t high = 0, low = 0;
    for (size_t row = 0; row < given.count(); ++row) {
        high += mixed(values[row]);
        low += mixed(values[row] ^ PLACE);
    }
    return Py_BuildValue("KK", (unsigned long long)high, (unsigned long long)low);
}

PyMethodDef functions[] = {
    {"add_numbers", add_numbers, METH_VARARGS, "Add the hash of each number of a column to its row's sum."},
    {"add_texts", add_texts, METH_VARARGS, "Add the hash of each text of a column to its row's sum."},
    {"content_sums", content_sums, METH_O, "The sums of two hashes of each row's sum."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_content_functions(PyObject* module) { return PyModule_AddFunctions(module, functions); }

}  // namespace pequod
