#include "fields.hpp"

namespace pequod {

namespace {

// Each integer of so many digits has 64 bits, and a double has each number of so many characters.
constexpr size_t INTEGER_DIGITS_MAX = 18;
constexpr size_t DECIMAL_SIZE_MAX = 15;
// Of arrays and objects within a field.
constexpr unsigned DEPTH_MAX = 64;

// Bytes that are looked at together; the compiler has instructions for that. Signed: a part of a character of several
// bytes is below 0.
typedef signed char Block __attribute__((vector_size(16)));

// Whether one of the next bytes, as many as a block has, is no plain character of a text: a quote, a backslash, a
// control character, or a part of a character of several bytes.
bool has_special(const char* text) {
    Block bytes;
    std::memcpy(&bytes, text, sizeof bytes);
    const Block are_special = (bytes < ' ') | (bytes == '"') | (bytes == '\\');
    uint64_t halves[2];
    std::memcpy(halves, &are_special, sizeof halves);
    return halves[0] | halves[1];
}

bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }

bool is_continued(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

// How many bytes the character of several bytes has that begins here; 0: it is not UTF-8.
size_t character_size(const char* at, size_t left) {
    const auto byte = [at](size_t number) { return static_cast<unsigned char>(at[number]); };
    const size_t size = byte(0) < 0xc2 ? 0 : byte(0) < 0xe0 ? 2 : byte(0) < 0xf0 ? 3 : byte(0) < 0xf5 ? 4 : 0;
    if (!size || size > left) return 0;
    for (size_t number = 1; number < size; ++number) {
        if (!is_continued(at[number])) return 0;
    }
    // What a shorter form has, halves of surrogate pairs, and what is above all characters.
    if ((byte(0) == 0xe0 && byte(1) < 0xa0) || (byte(0) == 0xed && byte(1) > 0x9f)) return 0;
    if ((byte(0) == 0xf0 && byte(1) < 0x90) || (byte(0) == 0xf4 && byte(1) > 0x8f)) return 0;
    return size;
}

// Goes through a JSON text. Each function returns false if what stands there is not usual.
class Reader {
  public:
    explicit Reader(Piece text) : at_(text.start), end_(text.start + text.size) {}

    bool is_at_end() const { return at_ == end_; }

    // What stands here; 0 at the end.
    char here() const { return at_ < end_ ? *at_ : 0; }

    void skip_space() {
        while (here() == ' ' || here() == '\n' || here() == '\t' || here() == '\r') ++at_;
    }

    // Go over a character, and the space behind it.
    bool take(char wanted) {
        if (here() != wanted) return false;
        ++at_;
        skip_space();
        return true;
    }

    // A name and its colon.
    bool take_name(Piece* name) {
        bool is_plain;
        if (!take_text(name, &is_plain) || !is_plain) return false;
        skip_space();
        return take(':');
    }

    bool take_value(Field* field) {
        switch (here()) {
            case '"': {
                bool is_plain;
                if (!take_text(&field->text, &is_plain)) return false;
                field->kind = is_plain ? Field::TEXT : Field::OTHER;
                return true;
            }
            case '{':
            case '[': {
                const char* start = at_;
                field->kind = *start == '{' ? Field::OBJECT : Field::OTHER;
                if (!skip_nested()) return false;
                field->text = {start, size_t(at_ - start)};
                return true;
            }
            case 't':
                return take_word(field, Field::BOOLEAN, {"true", 4});
            case 'f':
                return take_word(field, Field::BOOLEAN, {"false", 5});
            case 'n':
                return take_word(field, Field::NOTHING, {"null", 4});
            default:
                return take_number(field);
        }
    }

  private:
    // A text in quotes; it is plain if it has no escapes.
    bool take_text(Piece* text, bool* is_plain) {
        if (here() != '"') return false;
        const char* start = ++at_;
        *is_plain = true;
        for (;;) {
            while (end_ - at_ >= Py_ssize_t(sizeof(Block)) && !has_special(at_)) at_ += sizeof(Block);
            if (at_ == end_) return false;
            if (*at_ == '"') break;
            if (*at_ == '\\') {
                *is_plain = false;
                if (end_ - at_ < 2 || !std::memchr("\"\\/bfnrt", at_[1], 8)) return false;
                at_ += 2;
            } else if (static_cast<unsigned char>(*at_) >= 0x80) {
                const size_t size = character_size(at_, size_t(end_ - at_));
                if (!size) return false;
                at_ += size;
            } else {
                if (*at_ < ' ') return false;
                ++at_;
            }
        }
        *text = {start, size_t(at_++ - start)};
        return true;
    }

    bool take_word(Field* field, Field::Kind kind, Piece word) {
        if (!begins_with({at_, size_t(end_ - at_)}, word)) return false;
        *field = {kind, {at_, word.size}};
        at_ += word.size;
        return true;
    }

    bool take_number(Field* field) {
        const char* start = at_;
        if (here() == '-') ++at_;
        const char* digits = at_;
        while (is_digit(here())) ++at_;
        const size_t count = size_t(at_ - digits);
        if (!count || count > INTEGER_DIGITS_MAX || (*digits == '0' && count > 1)) return false;
        const bool is_decimal = here() == '.';
        if (is_decimal) {
            const char* point = at_++;
            while (is_digit(here())) ++at_;
            if (at_ == point + 1 || size_t(at_ - start) > DECIMAL_SIZE_MAX) return false;
        }
        const bool is_other = is_decimal || (*digits == '0' && digits != start);
        *field = {is_other ? Field::OTHER : Field::INTEGER, {start, size_t(at_ - start)}};
        // An exponent is nothing that may follow a value.
        return true;
    }

    // An array or an object.
    bool skip_nested() {
        // A bit for each one that is open, the innermost is the lowest: whether it is an object.
        uint64_t are_objects = 0;
        unsigned depth = 0;
        for (;;) {
            bool is_value = here() != '{' && here() != '[';
            if (is_value) {
                Field field;
                if (!take_value(&field)) return false;
            } else {
                if (depth++ == DEPTH_MAX) return false;
                are_objects = are_objects << 1 | uint64_t(here() == '{');
                take(here());
                is_value = here() == (are_objects & 1 ? '}' : ']');
            }
            if (is_value && !close(&are_objects, &depth)) return false;
            if (!depth) return true;
            Piece name;
            if ((are_objects & 1) && !take_name(&name)) return false;
        }
    }

    // What comes behind a value: the ends of what it is the last one of, up to a comma or the outermost end.
    bool close(uint64_t* are_objects, unsigned* depth) {
        skip_space();
        while (here() == (*are_objects & 1 ? '}' : ']')) {
            ++at_;
            *are_objects >>= 1;
            if (!--*depth) return true;
            skip_space();
        }
        return take(',');
    }

    const char* at_;
    const char* end_;
};

// Find fields up to the end, or until none is missing.
bool read(Piece value, const Piece* names, size_t count, Field* found, bool is_whole) {
    size_t missing = count;
    for (size_t at = 0; at < count; ++at) found[at] = {Field::MISSING, {nullptr, 0}};
    Reader reader(value);
    reader.skip_space();
    if (!reader.take('{')) return false;
    if (!reader.take('}')) {
        do {
            Piece name;
            Field field;
            if (!reader.take_name(&name) || !reader.take_value(&field)) return false;
            reader.skip_space();
            for (size_t at = 0; at < count; ++at) {
                if (!is_equal(name, names[at])) continue;
                missing -= found[at].kind == Field::MISSING;
                found[at] = field;
            }
            if (!missing && !is_whole) return true;
        } while (reader.take(','));
        if (!reader.take('}')) return false;
    }
    return reader.is_at_end();
}

}  // namespace

bool read_fields(Piece value, const Piece* names, size_t count, Field* found) {
    return read(value, names, count, found, true);
}

bool read_first_fields(Piece value, const Piece* names, size_t count, Field* found) {
    return read(value, names, count, found, false);
}

}  // namespace pequod
