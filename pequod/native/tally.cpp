// tally(message, layout, most): how many entries the columns of a message have, and how many fields are not known; None
// if protobuf refuses its bytes. It ends with the first count that is above its `most`.
//
//     message  3a 00 3a 00 0a 01 6b    layout  field 7: messages, counted in slot 1; ...    counts  0 2
//
// The layout is that of server/pequod_server/wire/tally.py, which is the twin. It takes what protobuf takes, but for
// strings that are no UTF-8: a message that it called damaged too early would be read without its bounds.
#include "tally.hpp"

#include <array>

namespace pequod {

namespace {

// For each type of message as many fields, which nothing else has; fields of greater numbers are not known.
constexpr size_t FIELDS = 32;
// Messages and groups in one another, and columns.
constexpr size_t DEPTH_MAX = 100, SLOTS_MAX = 64;

// What a field holds, as protobuf's types of wires say it; SIZED is one whose size counts, a column of single bytes.
enum Shape : unsigned char { NOT_KNOWN, VARINT, FIXED64, FIXED32, BYTES, MESSAGE, SIZED };
enum Wire : unsigned char { WIRE_VARINT, WIRE_FIXED64, WIRE_BYTES, WIRE_GROUP, WIRE_GROUP_END, WIRE_FIXED32 };

// The slot that counts a field's entries; slot 0, that of fields that are not known, is none.
struct Field {
    unsigned char shape;
    unsigned char slot;
    // The type of the message that it holds.
    unsigned char type;
};

enum class Found { RIGHT, WRONG, TOO_MANY };

// Number of the field and type of wire.
struct Tag {
    uint64_t number;
    unsigned char wire;
};

Tag read_tag(Reader* reader) {
    const uint64_t tag = reader->length();
    if (tag > UINT32_MAX) reader->is_right = false;
    return {tag >> 3, static_cast<unsigned char>(tag & 7)};
}

// Protobuf takes any last byte of a number.
bool skip_varint(Reader* reader) {
    for (size_t count = 0; count < VARINT_MAX && reader->at < reader->end; ++count) {
        if (*reader->at++ < 0x80) return true;
    }
    return reader->is_right = false;
}

bool skip_bytes(Reader* reader, size_t size) {
    if (size > size_t(reader->end - reader->at)) return reader->is_right = false;
    reader->at += size;
    return true;
}

// A value that is no group.
bool skip_value(Reader* reader, unsigned char wire) {
    switch (wire) {
        case WIRE_VARINT:
            return skip_varint(reader);
        case WIRE_FIXED64:
            return skip_bytes(reader, 8);
        case WIRE_FIXED32:
            return skip_bytes(reader, 4);
        case WIRE_BYTES:
            reader->piece();
            return reader->is_right;
        default:
            return reader->is_right = false;
    }
}

// A group behind its tag, with those inside; `depth` counts what it is in.
bool skip_group(Reader* reader, uint64_t number, size_t depth) {
    std::array<uint64_t, DEPTH_MAX + 1> open;
    size_t count = 0;
    open[count++] = number;
    while (count) {
        if (depth + count > DEPTH_MAX) return false;
        const Tag tag = read_tag(reader);
        if (!reader->is_right) return false;
        if (tag.wire == WIRE_GROUP) {
            open[count++] = tag.number;
        } else if (tag.wire == WIRE_GROUP_END) {
            if (open[--count] != tag.number) return false;
        } else if (!skip_value(reader, tag.wire)) {
            return false;
        }
    }
    return true;
}

struct Tally {
    const Field* layout;
    size_t type_count;
    size_t slot_count;
    std::array<size_t, SLOTS_MAX> most;
    std::array<size_t, SLOTS_MAX> counts;

    Found add(unsigned char slot, size_t count) {
        counts[slot] += count;
        return counts[slot] > most[slot] ? Found::TOO_MANY : Found::RIGHT;
    }

    // Numbers without tags, one behind the other.
    Found packed(unsigned char slot, Piece piece) {
        const unsigned char* start = reinterpret_cast<const unsigned char*>(piece.start);
        Reader inside = {start, start + piece.size};
        while (inside.at < inside.end) {
            if (!skip_varint(&inside)) return Found::WRONG;
            if (add(slot, 1) == Found::TOO_MANY) return Found::TOO_MANY;
        }
        return Found::RIGHT;
    }

    Found not_known(Reader* reader, Tag tag, size_t depth) {
        const bool is_right =
            tag.wire == WIRE_GROUP ? skip_group(reader, tag.number, depth) : skip_value(reader, tag.wire);
        return is_right ? add(0, 1) : Found::WRONG;
    }

    Found of_bytes(Reader* reader, const Field& field, size_t depth) {
        const Piece piece = reader->piece();
        if (!reader->is_right) return Found::WRONG;
        if (field.shape == SIZED) {
            // Of two such fields protobuf takes the last.
            counts[field.slot] = 0;
            return add(field.slot, piece.size);
        }
        if (field.shape == VARINT) return packed(field.slot, piece);
        if (field.slot && add(field.slot, 1) == Found::TOO_MANY) return Found::TOO_MANY;
        return field.shape == MESSAGE ? message(piece, field.type, depth + 1) : Found::RIGHT;
    }

    // Calls itself for messages in messages: no deeper than the layout has types, none of which is in itself.
    Found message(Piece piece, size_t type, size_t depth) {
        const unsigned char* start = reinterpret_cast<const unsigned char*>(piece.start);
        Reader reader = {start, start + piece.size};
        const Field* fields = layout + type * FIELDS;
        while (reader.at < reader.end) {
            const Tag tag = read_tag(&reader);
            if (!reader.is_right || !tag.number) return Found::WRONG;
            const Field field = tag.number < FIELDS ? fields[tag.number] : Field{NOT_KNOWN, 0, 0};
            Found found = Found::RIGHT;
            if (tag.wire == WIRE_BYTES && (field.shape >= BYTES || (field.shape == VARINT && field.slot))) {
                found = of_bytes(&reader, field, depth);
            } else if ((tag.wire == WIRE_VARINT && field.shape == VARINT) ||
                       (tag.wire == WIRE_FIXED64 && field.shape == FIXED64) ||
                       (tag.wire == WIRE_FIXED32 && field.shape == FIXED32)) {
                if (!skip_value(&reader, tag.wire)) return Found::WRONG;
                if (field.slot) found = add(field.slot, 1);
            } else {
                found = not_known(&reader, tag, depth);
            }
            if (found != Found::RIGHT) return found;
        }
        return Found::RIGHT;
    }

    // Whether all slots and types that the layout names are there, and types lead to later ones alone.
    bool is_sound() const {
        for (size_t at = 0; at < type_count * FIELDS; ++at) {
            if (layout[at].slot >= slot_count || layout[at].type >= type_count) return false;
            if (layout[at].shape == MESSAGE && layout[at].type <= at / FIELDS) return false;
        }
        return type_count && slot_count;
    }
};

PyObject* tally(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
    if (count != 3 || !PyBytes_CheckExact(arguments[0]) || !PyBytes_CheckExact(arguments[1]) ||
        !PyTuple_CheckExact(arguments[2]) || PyTuple_GET_SIZE(arguments[2]) > Py_ssize_t(SLOTS_MAX)) {
        PyErr_SetString(PyExc_TypeError, "tally takes a message, a layout, and a tuple of greatest counts");
        return nullptr;
    }
    const Piece layout = piece_of(arguments[1]);
    Tally tally = {reinterpret_cast<const Field*>(layout.start),
                   layout.size / (FIELDS * sizeof(Field)),
                   size_t(PyTuple_GET_SIZE(arguments[2])),
                   {},
                   {}};
    for (size_t slot = 0; slot < tally.slot_count; ++slot) {
        tally.most[slot] = PyLong_AsSize_t(PyTuple_GET_ITEM(arguments[2], Py_ssize_t(slot)));
    }
    if (PyErr_Occurred()) return nullptr;
    if (!tally.is_sound()) {
        PyErr_SetString(PyExc_ValueError, "the layout is damaged");
        return nullptr;
    }
    if (tally.message(piece_of(arguments[0]), 0, 0) == Found::WRONG) Py_RETURN_NONE;
    PyObject* counts = PyList_New(Py_ssize_t(tally.slot_count));
    for (size_t slot = 0; counts && slot < tally.slot_count; ++slot) {
        PyObject* one = PyLong_FromSize_t(tally.counts[slot]);
        if (!one) Py_CLEAR(counts);
        if (one) PyList_SET_ITEM(counts, Py_ssize_t(slot), one);
    }
    return counts;
}

PyMethodDef functions[] = {
    {"tally", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)(void)>(tally)), METH_FASTCALL,
     "Return how many entries the columns of a message have."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_tally_function(PyObject* module) { return PyModule_AddFunctions(module, functions); }

}  // namespace pequod
