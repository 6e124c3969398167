#include "numerals.hpp"

namespace pequod {

namespace {

// A double keeps this number of digits; a number of more characters may have more.
constexpr size_t KEPT_DIGITS = 15;
// Each positive integer of this number of digits is below 2**64, each negative one of a digit less above -2**63.
constexpr size_t INTEGER_DIGITS = 19;
// A double has each exponent of fewer digits.
constexpr size_t EXPONENT_DIGITS = 3;

bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }

// Whether a number may begin after a byte.
bool is_before_number(char byte) {
    return byte == ',' || byte == ':' || byte == '[' || byte == ' ' || (byte >= '\t' && byte <= '\r');
}

// Whether an exponent that begins at `at` has many digits.
bool is_large_exponent(const char* text, size_t size, size_t at) {
    if (at < size && (text[at] == '+' || text[at] == '-')) ++at;
    const size_t start = at;
    while (at < size && is_digit(text[at])) ++at;
    return at - start >= EXPONENT_DIGITS;
}

}  // namespace

bool may_lose(const char* text, size_t size) {
    for (size_t at = 0; at < size; ++at) {
        if (!is_digit(text[at])) continue;
        const size_t start = at;
        bool has_point = false;
        for (; at < size && (is_digit(text[at]) || text[at] == '.'); ++at) has_point |= text[at] == '.';
        const bool has_exponent = at < size && (text[at] | 0x20) == 'e';
        const size_t run = at - start;
        if (run <= KEPT_DIGITS && !has_exponent) continue;
        const bool is_negative = start && text[start - 1] == '-';
        const size_t first = start - is_negative;
        if (first && !is_before_number(text[first - 1])) continue;
        if (has_exponent && is_large_exponent(text, size, at + 1)) return true;
        if ((has_point || has_exponent) && run > KEPT_DIGITS) return true;
        if (run > INTEGER_DIGITS - is_negative) return true;
    }
    return false;
}

namespace {

// may_lose(value)
PyObject* may_lose_of(PyObject*, PyObject* value) {
    if (!PyBytes_Check(value)) {
        PyErr_SetString(PyExc_TypeError, "may_lose takes bytes");
        return nullptr;
    }
    return PyBool_FromLong(may_lose(PyBytes_AS_STRING(value), size_t(PyBytes_GET_SIZE(value))));
}

PyMethodDef functions[] = {
    {"may_lose", may_lose_of, METH_O, "Return whether a JSON text may hold a number of which a double loses digits."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_numeral_functions(PyObject* module) { return PyModule_AddFunctions(module, functions); }

}  // namespace pequod
