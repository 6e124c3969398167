// The message of a batch: its columns, and whether they keep to ranges of keys.
#include "batch.hpp"

namespace pequod {

namespace {

// No reply begins with more room than this, and this for each of its commands.
constexpr size_t OUTPUT_BYTES = 256, COMMAND_BYTES = 4096;

// The columns fit the kinds: as many arguments and numbers as these take.
bool is_fitting(const Batch* batch) {
    size_t arguments = 0, numbers = 0;
    for (size_t at = 0; at < batch->kinds.size; ++at) {
        const unsigned char kind = static_cast<unsigned char>(batch->kinds.start[at]);
        if (!is_kind(kind)) return false;
        arguments += KIND_ROWS[kind].argument_count;
        numbers += KIND_ROWS[kind].number_count;
    }
    return arguments == batch->argument_count && numbers == batch->number_count;
}

// The level of freshness has known fields alone, written as protobuf reads them: it is read when commands may have run.
bool is_plain_level(Piece level) {
    const unsigned char* start = reinterpret_cast<const unsigned char*>(level.start);
    Reader reader = {start, start + level.size};
    while (reader.is_right && reader.at < reader.end) {
        switch (*reader.at++) {
            case AFTER:
                reader.piece();
                break;
            case LATEST:
            case MAX_AGE_MS:
            case WAIT_MS:
                reader.varint();
                break;
            default:
                return false;
        }
    }
    return reader.is_right;
}

// The positions of commands in the ids: ascending, so that no id is there twice.
bool read_positions(Batch* batch, Piece packed, size_t commands_max, bool* has_memory) {
    const unsigned char* first = reinterpret_cast<const unsigned char*>(packed.start);
    Reader inside = {first, first + packed.size};
    while (inside.is_right && *has_memory && inside.at < inside.end) {
        const uint64_t position = inside.varint();
        const bool is_next = !batch->position_count || position > batch->positions[batch->position_count - 1];
        if (!is_next || position > UINT32_MAX || batch->position_count >= commands_max) return false;
        *has_memory = add(&batch->positions, &batch->position_count, &batch->position_room, uint32_t(position));
    }
    return inside.is_right;
}

// Ids are whole, and if commands have positions, all have.
bool has_right_ids(const Batch* batch) {
    if (!batch->batch_id.size) return !batch->position_count;
    return batch->batch_id.size == BATCH_ID_BYTES &&
           (!batch->position_count || batch->position_count == batch->kinds.size);
}

}  // namespace

Parsed parse_message(Batch* batch, Piece message, size_t commands_max) {
    const unsigned char* start = reinterpret_cast<const unsigned char*>(message.start);
    Reader reader = {start, start + message.size};
    bool has_memory = true;
    while (reader.is_right && has_memory && reader.at < reader.end) {
        // No commands take more: a column that goes on would take memory for nothing.
        const bool has_too_many = batch->argument_count > ARGUMENTS_MAX * commands_max;
        if (has_too_many || batch->number_count > NUMBERS_MAX * commands_max) return Parsed::UNUSUAL;
        switch (*reader.at++) {
            case BATCH:
                batch->number = reader.varint();
                break;
            case KINDS:
                batch->kinds = reader.piece();
                break;
            case ARGUMENT:
                has_memory = add(&batch->arguments, &batch->argument_count, &batch->argument_room, reader.piece());
                break;
            case NUMBER:
                has_memory = add(&batch->numbers, &batch->number_count, &batch->number_room, reader.varint());
                break;
            case NUMBERS: {
                const Piece packed = reader.piece();
                const unsigned char* first = reinterpret_cast<const unsigned char*>(packed.start);
                Reader inside = {first, first + packed.size};
                while (reader.is_right && has_memory && inside.at < inside.end) {
                    if (batch->number_count > NUMBERS_MAX * commands_max) return Parsed::UNUSUAL;
                    has_memory = add(&batch->numbers, &batch->number_count, &batch->number_room, inside.varint());
                    reader.is_right = inside.is_right;
                }
                break;
            }
            case FRESHNESS:
                // Of two such fields, protobuf makes one.
                reader.is_right = !batch->freshness.size;
                if (reader.is_right) batch->freshness = reader.piece();
                reader.is_right = reader.is_right && is_plain_level(batch->freshness);
                break;
            case TRACE_PARENT:
                batch->trace_parent = reader.piece();
                break;
            case TRACE_STATE:
                batch->trace_state = reader.piece();
                break;
            case BATCH_ID:
                batch->batch_id = reader.piece();
                break;
            case BATCH_POSITIONS:
                reader.is_right = read_positions(batch, reader.piece(), commands_max, &has_memory) && reader.is_right;
                break;
            default:
                reader.is_right = false;
        }
    }
    if (!has_memory) return Parsed::NO_MEMORY;
    const bool is_right = reader.is_right && batch->kinds.size <= commands_max && is_fitting(batch);
    return is_right && has_right_ids(batch) ? Parsed::RIGHT : Parsed::UNUSUAL;
}

Parsed begin(Batch* batch, Piece message, const BatchBounds& bounds) {
    batch->kinds = batch->freshness = batch->trace_parent = batch->trace_state = batch->batch_id = {"", 0};
    batch->number = 0;
    batch->argument_count = batch->number_count = batch->position_count = 0;
    batch->outcomes.bytes.size = batch->outcomes.count = 0;
    batch->index = batch->argument_at = batch->number_at = batch->row_count = 0;
    batch->ahead_start = batch->ahead_stop = 0;
    batch->room = batch->bytes_max = bounds.bytes_max;
    batch->rows_max = bounds.rows_max;
    batch->rows.size = batch->counts.size = batch->errors.size = 0;
    const Parsed parsed = parse_message(batch, message, bounds.commands_max);
    if (parsed != Parsed::RIGHT) return parsed;
    if (bounds.bytes_max <= 0) return Parsed::UNUSUAL;
    if (batch->status_room <= batch->kinds.size) {
        char* grown = static_cast<char*>(PyMem_Realloc(batch->statuses, batch->kinds.size + 1));
        if (!grown) return Parsed::NO_MEMORY;
        batch->statuses = grown;
        batch->status_room = batch->kinds.size + 1;
    }
    std::memset(batch->statuses, 0, batch->kinds.size + 1);
    if (batch->rows.bytes) return Parsed::RIGHT;
    return batch->rows.begin(OUTPUT_BYTES + batch->kinds.size * COMMAND_BYTES) ? Parsed::RIGHT : Parsed::NO_MEMORY;
}

bool own_message(Batch* batch, Piece message) {
    PyObject* own = PyBytes_FromStringAndSize(message.start, Py_ssize_t(message.size));
    if (!own) return false;
    Py_XSETREF(batch->message, own);
    const auto move = [&](Piece* piece) {
        *piece = piece->size ? Piece{piece_of(own).start + (piece->start - message.start), piece->size} : Piece{"", 0};
    };
    Piece* const pieces[] = {&batch->kinds, &batch->freshness, &batch->trace_parent, &batch->trace_state,
                             &batch->batch_id};
    for (Piece* piece : pieces) move(piece);
    for (size_t at = 0; at < batch->argument_count; ++at) move(batch->arguments + at);
    return true;
}

bool is_within(const Batch* batch, const KeyRanges* readable, const KeyRanges* writable) {
    const Piece* argument = batch->arguments;
    bool are_within = true;
    for (size_t at = 0; are_within && at < batch->kinds.size; ++at) {
        const KindRow& kind = KIND_ROWS[static_cast<unsigned char>(batch->kinds.start[at])];
        const KeyRanges* ranges = kind.is_write ? writable : readable;
        // Such a write says of the key what a read would tell.
        if (tells_value(kind) && readable && !readable->holds(argument[0])) return false;
        are_within =
            !ranges || (kind.is_of_range ? ranges->covers(argument[0], argument[1]) : ranges->holds(argument[0]));
        argument += kind.argument_count;
    }
    return are_within;
}

}  // namespace pequod
