"""Faults in what reads and writes messages and values: batches, replies, records, numbers, hashes."""

from typing import Final

from tests.native.fault import Fault

FAULTS_OF_MESSAGES: Final = (
    Fault(
        "batch.cpp",
        "    batch->row_count += found;\n",
        "",
        "rows that Python gives to a reply are not counted",
    ),
    Fault(
        "batch.cpp",
        "    batch->room -= static_cast<long long>(piece_of(error).size) + ROW_BYTES;\n",
        "",
        "errors take no room of a reply",
    ),
    Fault(
        "batch.cpp",
        "const uint64_t number = KIND_ROWS[kind].number_count ? batch->numbers[batch->number_at] : 0;",
        "const uint64_t number = KIND_ROWS[kind].number_count ? batch->numbers[0] : 0;",
        "all limited scans that Python runs have the limit of the first",
    ),
    Fault(
        "batch_commands.cpp",
        "const size_t end = place.leaf == span.stop.leaf ? span.stop.at : leaf.size;",
        "const size_t end = place.leaf == span.stop.leaf ? span.stop.at : leaf.size - 1;",
        "a scan upwards leaves out the last row of each inner leaf",
    ),
    Fault(
        "batch_commands.cpp",
        "const size_t begin = at_leaf - 1 == span.start.leaf ? span.start.at : 0;",
        "const size_t begin = at_leaf - 1 == span.start.leaf ? span.start.at : 1;",
        "a scan downwards leaves out the first row of each leaf",
    ),
    Fault(
        "batch_commands.cpp",
        "return write_count(batch, uint64_t(count)) ? Ran::DONE",
        "return write_count(batch, uint64_t(count + (count > 40))) ? Ran::DONE",
        "a COUNT of more than 40 rows is one too many",
    ),
    Fault(
        "verbs.cpp",
        "while (at > near && compare(last.key(at - 1), tail) >= 0) --at;",
        "while (at > near && compare(last.key(at - 1), tail) > 0) --at;",
        "a check leaves out the row at which it begins",
    ),
    Fault(
        "batch_commands.cpp",
        "if (ran == Ran::DONE && found == limit.most && !limit.is_asked) ran = Ran::NOT_QUICK;",
        "",
        "a scan of more rows than a reply may have ends early",
    ),
    Fault(
        "verbs.cpp",
        "    if (compare(tail, piece_of(hot->lower)) < 0) return Ran::NOT_QUICK;\n",
        "",
        "a scan that begins below what is materialised shows that alone",
    ),
    Fault(
        "verbs.cpp",
        "if (table_of(end->table)->entry_count || !hot->is_sound()",
        "if (!hot->is_sound()",
        "a scan of a timeline leaves out keys that clients wrote among it",
    ),
    Fault("batch_commands.cpp", "    batch->room -= size;\n", "", "values of GET take no room of a reply"),
    Fault(
        "batch_commands.cpp",
        "*found < most; ++place.at, ++*found) {",
        "*found <= most; ++place.at, ++*found) {",
        "a limited scan upwards gives a row too many",
    ),
    Fault(
        "batch_message.cpp",
        "return arguments == batch->argument_count && numbers == batch->number_count;",
        "return arguments == batch->argument_count;",
        "a batch with fewer numbers than its scans take runs natively",
    ),
    Fault(
        "key_ranges.hpp",
        "return end && (end == Py_None || compare(key, piece_of(end)) < 0) ? end : nullptr;",
        "return end && (end == Py_None || compare(key, piece_of(end)) <= 0) ? end : nullptr;",
        "the key at the end of a range of rights is within it",
    ),
    Fault(
        "key_ranges.hpp",
        "        if (last.size && compare(last, first) <= 0) return true;\n",
        "",
        "an empty range that lies outside of all rights is refused",
    ),
    Fault(
        "columns.cpp",
        "if (count > reply.keys.count - rows) return false;",
        "if (count >= reply.keys.count - rows) return false;",
        "the client leaves replies that end with a scan to Python",
    ),
    Fault(
        "columns.cpp",
        "status == UNMET ? take_value(reply) : Py_NewRef(Py_None);",
        "Py_NewRef(Py_None);",
        "the client takes a key that a condition found for an absent one",
    ),
    Fault(
        "columns.cpp",
        "rows + values == reply.values.count;",
        "rows + values <= reply.values.count;",
        "the client takes a reply with values that belong to no command",
    ),
    Fault(
        "columns.cpp",
        "return PyBool_FromLong(status != ABSENT);",
        "return PyBool_FromLong(1);",
        "REMOVE is always true",
    ),
    Fault(
        "hash.cpp",
        "const Secret key = is_own ? secret : Secret{first, second};",
        "const Secret key = is_own ? secret : Secret{first, first};",
        "a hash with another secret is not that of the secret",
    ),
    Fault(
        "lens.cpp",
        "if (width) return text.size == width;",
        "if (width) return true;",
        "texts of any width fit a slot",
    ),
    Fault(
        "lens.cpp",
        "if (bind.width > DIGITS_MAX || (bind.width && value < 0)) return false;",
        "if (bind.width > DIGITS_MAX) return false;",
        "negative numbers fit a slot with a width",
    ),
    Fault(
        "lens.cpp",
        "static_cast<unsigned long long>(value) ^ (1ULL << 63)",
        "static_cast<unsigned long long>(value)",
        "negative numbers sort behind the others",
    ),
    Fault(
        "lens.cpp",
        "(*at == '0' && (digits > 1 || is_negative))",
        "(*at == '0' && is_negative)",
        "what begins with a zero is an integer",
    ),
    Fault(
        "lens.cpp",
        "    return !key.size;\n",
        "    return true;\n",
        "keys that go on behind their pattern have plain rows",
    ),
    Fault(
        "messages.hpp",
        "            if (shift == 63 && byte > 1) break;\n",
        "",
        "numbers above 64 bits are read, in part",
    ),
    Fault(
        "numerals.cpp",
        "if (run > INTEGER_DIGITS - is_negative) return true;",
        "if (run > INTEGER_DIGITS) return true;",
        "negative integers of nineteen digits go through a double",
    ),
    Fault(
        "numerals.cpp",
        "if ((has_point || has_exponent) && run > KEPT_DIGITS) return true;",
        "if (has_point && run > KEPT_DIGITS) return true;",
        "long numbers with an exponent lose digits",
    ),
    Fault(
        "ranks.cpp",
        "if (found == wanted && weight * MORE < first[found - 1].score * (1 - even_of(hashes[at]))) continue;",
        "if (found == wanted && weight * MORE < first[found - 1].score) continue;",
        "servers are left out of the first ones by a bound that is too low",
    ),
    Fault(
        "ranks.cpp",
        "hash[0] ^= PARAMETERS ^ uint64_t(size) << 8;",
        "hash[0] ^= PARAMETERS;",
        "hashes of groups do not go by the size of an id",
    ),
    Fault(
        "tally.cpp",
        "if (field.slot) found = add(field.slot, 1);",
        "",
        "numbers that are not packed are not counted",
    ),
    Fault(
        "tally.cpp",
        "if (open[--count] != tag.number) return false;",
        "--count;",
        "a group that another one ends is taken",
    ),
)
