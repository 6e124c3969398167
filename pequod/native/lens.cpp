#include "lens.hpp"

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

// Whether it looks at values themselves.
bool is_whole(const QuickLens* lens) { return lens->bind_count && !lens->binds[0].name; }

// The pieces of a plain key, and room for the digits of numbers.
struct Pieces {
    Piece of[2 * PARTS_MAX];
    char digits[PARTS_MAX][NUMBER_SIZE];
};

// Whether a text has a form in a slot, which is the text itself; false: it is Python's to say.
bool is_text_form(const QuickLens* lens, size_t width, Piece text) {
    if (width) return text.size == width;
    return text.size && text.size <= lens->text_bytes_max && !std::memchr(text.start, DELIMITER, text.size);
}

bool text_form(const QuickLens* lens, size_t width, PyObject* text, Piece* piece) {
    Py_ssize_t size;
    const char* bytes = PyUnicode_AsUTF8AndSize(text, &size);
    if (!bytes) {
        PyErr_Clear();
        return false;
    }
    *piece = {bytes, size_t(size)};
    return is_text_form(lens, width, *piece);
}

// The same for an integer.
bool integer_form(const Bind& bind, long long value, char* digits, Piece* piece) {
    if (bind.is_i64) {
        unsigned long long left = static_cast<unsigned long long>(value) ^ (1ULL << 63);
        for (size_t at = I64_WIDTH; at--; left >>= 4) digits[at] = "0123456789abcdef"[left & 15];
        *piece = {digits, I64_WIDTH};
        return true;
    }
    if (bind.width > DIGITS_MAX || (bind.width && value < 0)) return false;
    const int size = std::snprintf(digits, NUMBER_SIZE, "%0*lld", int(bind.width), value);
    *piece = {digits, size_t(size)};
    return !bind.width || piece->size == bind.width;
}

bool number_form(const Bind& bind, PyObject* number, char* digits, Piece* piece) {
    int overflow;
    const long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
    return !overflow && integer_form(bind, value, digits, piece);
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
    for (size_t at = 0; at < lens->bind_count; ++at) {
        const Bind& bind = lens->binds[at];
        PyObject* value = PyDict_GetItemWithError(record, bind.name);
        if (!value) return false;
        Piece* piece = &pieces->of[lens->part_count + at];
        const bool is_taken = PyUnicode_CheckExact(value) ? !bind.is_i64 && text_form(lens, bind.width, value, piece)
                              : PyLong_CheckExact(value)  ? number_form(bind, value, pieces->digits[at], piece)
                                                          : false;
        if (!is_taken) return false;
    }
    return true;
}

// The same for a lens that looks at values themselves.
bool take_whole(const QuickLens* lens, Piece value, Pieces* pieces) {
    long long integer;
    if (!whole_integer(value, &integer)) return false;
    for (size_t at = 0; at < lens->bind_count; ++at) {
        Piece* piece = &pieces->of[lens->part_count + at];
        if (!integer_form(lens->binds[at], integer, pieces->digits[at], piece)) return false;
    }
    return true;
}

bool cut_key(const QuickLens* lens, Piece key, Pieces* pieces) {
    for (size_t at = 0; at < lens->part_count; ++at) {
        if (!cut(lens->parts[at], &key, &pieces->of[at])) return false;
    }
    return !key.size;
}

// The same of the fields that were read.
bool take_read(const QuickLens* lens, const Field* found, Pieces* pieces) {
    for (size_t at = 0; at < lens->bind_count; ++at) {
        const Bind& bind = lens->binds[at];
        Piece* piece = &pieces->of[lens->part_count + at];
        long long integer;
        if (found[at].kind == Field::TEXT && !bind.is_i64) {
            *piece = found[at].text;
            if (!is_text_form(lens, bind.width, *piece)) return false;
        } else if (found[at].kind != Field::INTEGER) {
            return false;
        } else if (!bind.is_i64 && !bind.width) {
            *piece = found[at].text;
        } else if (!whole_integer(found[at].text, &integer) ||
                   !integer_form(bind, integer, pieces->digits[at], piece)) {
            return false;
        }
    }
    return true;
}

// What an object has for a field: a name, quotes of a text, the field, and what comes behind it.
size_t member_size(const Given& given, const Field& field) {
    return piece_of(given.begin).size + field.text.size + (field.kind == Field::TEXT ? 3 : 1);
}

char* write_member(char* to, const Given& given, const Field& field) {
    const Piece begin = piece_of(given.begin);
    std::memcpy(to, begin.start, begin.size);
    to += begin.size;
    if (field.kind == Field::TEXT) *to++ = '"';
    std::memcpy(to, field.text.start, field.text.size);
    to += field.text.size;
    if (field.kind == Field::TEXT) *to++ = '"';
    *to++ = ',';
    return to;
}

// The object of the fields that are there, as JSON is printed compactly; null: see `give`.
PyObject* make_object(const QuickLens* lens, const Field* found) {
    size_t size = 1;
    for (size_t at = 0; at < lens->given_count; ++at) {
        if (found[at].kind >= Field::OTHER) return nullptr;
        if (found[at].kind != Field::MISSING) size += member_size(lens->given[at], found[at]);
    }
    const bool is_empty = size == 1;
    PyObject* made = PyBytes_FromStringAndSize(nullptr, Py_ssize_t(is_empty ? 2 : size));
    if (!made) return nullptr;
    char* to = PyBytes_AS_STRING(made);
    *to++ = '{';
    for (size_t at = 0; at < lens->given_count; ++at) {
        if (found[at].kind != Field::MISSING) to = write_member(to, lens->given[at], found[at]);
    }
    // In the place of the last comma.
    to[is_empty ? 0 : -1] = '}';
    return made;
}

// Put fields within fields in the places of these; false: one is not usual.
bool take_inner(const QuickLens* lens, Field* found) {
    for (size_t at = 0; at < lens->given_count; ++at) {
        if (!lens->given[at].inner) continue;
        // What is no object has no fields.
        if (found[at].kind != Field::OBJECT) {
            found[at].kind = Field::MISSING;
        } else if (!read_fields(Piece(found[at].text), &lens->given[at].inner_name, 1, found + at)) {
            return false;
        }
    }
    return true;
}

// The value of the plain row, of the fields that it has; null: it is Python's to make, or an error is set.
PyObject* give(const QuickLens* lens, PyObject* value, const Field* found) {
    switch (lens->gives) {
        case QuickLens::OWN:
            return Py_NewRef(value);
        case QuickLens::EMPTY:
            return PyBytes_FromStringAndSize(nullptr, 0);
        case QuickLens::ONE_FIELD: {
            const bool is_given = found->kind >= Field::TEXT && found->kind <= Field::BOOLEAN;
            return is_given ? PyBytes_FromStringAndSize(found->text.start, Py_ssize_t(found->text.size)) : nullptr;
        }
        case QuickLens::SOME_FIELDS:
            return make_object(lens, found);
        case QuickLens::PYTHON:
            break;
    }
    return nullptr;
}

}  // namespace

// The plain key of a row, new, and its record, new; null: something is not as usual, or an error is set.
PyObject* plain_key(const QuickLens* lens, PyObject* key, PyObject* value, PyObject* parse, PyObject** record) {
    Pieces pieces;
    if (!cut_key(lens, piece_of(key), &pieces)) return nullptr;
    if (is_whole(lens)) {
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

PyObject* likely_key(const QuickLens* lens, PyObject* key, PyObject* value) {
    Pieces pieces;
    Field found[PARTS_MAX];
    if (!cut_key(lens, piece_of(key), &pieces)) return nullptr;
    const bool is_read = is_whole(lens) ? take_whole(lens, piece_of(value), &pieces)
                                        : read_first_fields(piece_of(value), lens->names, lens->bind_count, found) &&
                                              take_read(lens, found, &pieces);
    return is_read ? put_together(lens->plain, lens->plain_count, pieces.of) : nullptr;
}

bool show(const QuickLens* lens, PyObject* key, PyObject* value, Shown* shown) {
    Pieces pieces;
    Field found[2 * PARTS_MAX];
    if (lens->gives == QuickLens::PYTHON || !cut_key(lens, piece_of(key), &pieces)) return false;
    if (is_whole(lens)) {
        if (!take_whole(lens, piece_of(value), &pieces)) return false;
    } else if (!read_fields(piece_of(value), lens->names, lens->bind_count + lens->given_count, found) ||
               !take_read(lens, found, &pieces) || !take_inner(lens, found + lens->bind_count)) {
        return false;
    }
    shown->value = give(lens, value, found + lens->bind_count);
    shown->key = shown->value ? put_together(lens->plain, lens->plain_count, pieces.of) : nullptr;
    if (!shown->key) Py_CLEAR(shown->value);
    return shown->key;
}

}  // namespace pequod
