// One hot call: its message as protobuf would read it, the rights, ranges and quotas that it needs, its command, its
// reply.
//
// A message with anything that is not read here is Python's: fields that are not known, fields that stand twice, levels
// of freshness, prefixes, open ranges.
#include "hot_reply.hpp"

namespace pequod::http2 {

namespace {

// Fields of requests and replies in proto/pequod/v1/pequod.proto: number, and 0 a varint, 1 fixed 64 bits, 2 bytes.
enum ExpireTag : unsigned char { TTL_MS_OF_EXPIRE = 0x10 };
enum WriteIfTag : unsigned char { CONDITION = 0x18, EXPECTED = 0x22, ID_OF_WRITE_IF = 0x3a };
enum AddTag : unsigned char { ID_OF_ADD = 0x1a };
enum ScanTag : unsigned char { LIMIT = 0x18, REVERSE = 0x20, CHUNK_BYTES = 0x28, KEYS_ONLY = 0x38, ONE_CHUNK = 0x40 };
enum HeaderTag : unsigned char {
    HEADER = 0x0a,
    HEADER_ID = 0x09,
    HEADER_REVISION = 0x10,
    HEADER_TOKEN = 0x1a,
    HEADER_AGE = 0x20
};
// A scan looks at so many rows at first, as `ScanCalls` does.
constexpr size_t ROWS_MAX = 1024;

struct Asked {
    Piece first{nullptr, 0}, second{nullptr, 0}, expected{nullptr, 0}, request_id{nullptr, 0};
    uint64_t limit = 0, chunk_bytes = 0, condition = 0, ttl_ms = 0;
    Time time;
    bool has_limit = false, is_down = false, keys_only = false, one_chunk = false;
};

// Whether the next field of a scan is a number that stands for the first time.
bool read_number(Reader* reader, unsigned char tag, unsigned* seen, uint64_t* number) {
    const unsigned bit = 1U << (tag >> 3);
    if (*seen & bit) return false;
    *seen |= bit;
    *number = reader->varint();
    return reader->is_right;
}

bool read_scan_field(Reader* reader, unsigned char tag, unsigned* seen, Asked* asked) {
    uint64_t number = 0;
    if (!read_number(reader, tag, seen, &number)) return false;
    switch (tag) {
        case LIMIT:
            asked->has_limit = true;
            asked->limit = number;
            return true;
        case REVERSE:
            asked->is_down = number;
            return true;
        case CHUNK_BYTES:
            asked->chunk_bytes = number;
            return true;
        case KEYS_ONLY:
            asked->keys_only = number;
            return true;
        case ONE_CHUNK:
            asked->one_chunk = number;
            return true;
        default:
            return false;
    }
}

// Whether the next field of a conditional write stands for the first time.
bool read_condition(Reader* reader, unsigned char tag, unsigned* seen, Asked* asked) {
    if (tag == CONDITION) return read_number(reader, tag, seen, &asked->condition);
    if (asked->time.read(reader, tag, TTL_MS_OF_WRITE_IF)) return true;
    if (tag != EXPECTED || asked->expected.start) return false;
    asked->expected = reader->piece();
    return true;
}

// Whether the next field is the request id of a write, for the first time.
bool read_id(Reader* reader, HotMethod method, unsigned char tag, Asked* asked) {
    const bool is_id = (method == HOT_ADD && tag == ID_OF_ADD) || (method == HOT_WRITE_IF && tag == ID_OF_WRITE_IF);
    if (!is_id || asked->request_id.start) return false;
    asked->request_id = reader->piece();
    return reader->is_right && asked->request_id.size == REQUEST_ID_BYTES;
}

// Whether the next field is one that only this method has.
bool read_own_field(Reader* reader, HotMethod method, unsigned char tag, unsigned* seen, Asked* asked) {
    switch (method) {
        case HOT_PUT:
            return asked->time.read(reader, tag, TTL_MS_OF_PUT);
        case HOT_EXPIRE:
            return tag == TTL_MS_OF_EXPIRE && read_number(reader, tag, seen, &asked->ttl_ms);
        case HOT_WRITE_IF:
            return read_condition(reader, tag, seen, asked);
        case HOT_SCAN:
            return read_scan_field(reader, tag, seen, asked);
        default:
            return false;
    }
}

// Whether the second field of a request is bytes: a value, the end of a range, a delta.
bool has_second(HotMethod method) {
    return method != HOT_GET && method != HOT_REMOVE && method != HOT_EXPIRE && method != HOT_TTL;
}

bool parse(HotMethod method, Piece message, Asked* asked) {
    const unsigned char* start = reinterpret_cast<const unsigned char*>(message.start);
    Reader reader = {start, start + message.size};
    unsigned seen = 0;
    while (reader.is_right && reader.at < reader.end) {
        const unsigned char tag = *reader.at++;
        if (tag == FIRST && !asked->first.start) {
            asked->first = reader.piece();
        } else if (tag == SECOND && !asked->second.start && has_second(method)) {
            asked->second = reader.piece();
        } else if (read_id(&reader, method, tag, asked)) {
            continue;
        } else if (!read_own_field(&reader, method, tag, &seen, asked)) {
            return false;
        }
    }
    return reader.is_right && asked->first.size && asked->time.is_one();
}

char* write_header(char* to, const HotTurn& turn) {
    const uint64_t revision = uint64_t(turn.engine->revision);
    if (turn.calls->server_id) {
        *to++ = HEADER_ID;
        for (unsigned shift = 0; shift < 64; shift += 8) *to++ = char(turn.calls->server_id >> shift);
    }
    if (revision) {
        *to++ = HEADER_REVISION;
        to = write_varint(to, revision);
    }
    return write_state(to, turn, HEADER_TOKEN, HEADER_AGE);
}

}  // namespace

char* begin_reply(const HotTurn& turn, Stream* stream, size_t more) {
    char header[TOKEN_MAX + 5 * VARINT_MAX];
    const size_t size = size_t(write_header(header, turn) - header);
    char* to = stream->reply.reserve(HEAD_BYTES + size + 1 + VARINT_MAX + more);
    if (!to) return static_cast<char*>(static_cast<void*>(PyErr_NoMemory()));
    return write_piece(to + HEAD_BYTES, HEADER, {header, size});
}

Ran end_reply(Stream* stream, const char* end) {
    Bytes& reply = stream->reply;
    const size_t size = size_t(end - reply.start) - HEAD_BYTES;
    reply.start[0] = 0;
    for (unsigned at = 1; at < HEAD_BYTES; ++at) reply.start[at] = char(size >> (32 - 8 * at));
    reply.size = HEAD_BYTES + size;
    return Ran::DONE;
}

namespace {

Ran answer_get(const HotTurn& turn, const Asked& asked, Stream* stream) {
    PyObject* value = nullptr;
    const Ran ran = get(turn.engine, asked.first, {0, nullptr, 0, 0}, turn.now, &value);
    if (ran != Ran::DONE && ran != Ran::ABSENT) return ran;
    const Piece found = ran == Ran::DONE ? piece_of(value) : Piece{"", 0};
    if (found.size > HOT_BYTES_MAX) return Ran::NOT_QUICK;
    char* to = begin_reply(turn, stream, found.size + 1 + VARINT_MAX);
    if (!to) return Ran::FAILED;
    return end_reply(stream, ran == Ran::DONE ? write_piece(to, VALUE_OF, found) : to);
}

Ran write_one(HotEngine* engine, HotMethod method, const Asked& asked) {
    if (method == HOT_REMOVE) return remove(engine, asked.first);
    if (method == HOT_EXPIRE) return set_time(engine, asked.first, asked.ttl_ms);
    const Piece value = asked.second.start ? asked.second : Piece{"", 0};
    const uint64_t ttl_ms = asked.time.ttl_ms();
    return ttl_ms ? put_for(engine, asked.first, value, ttl_ms) : put(engine, asked.first, value);
}

Ran answer_ttl(const HotTurn& turn, const Asked& asked, Stream* stream) {
    uint64_t left_ms = 0;
    const Ran ran = time_left(turn.engine, asked.first, turn.now, &left_ms);
    if (ran != Ran::DONE && ran != Ran::ABSENT) return ran;
    char* to = begin_reply(turn, stream, 1 + VARINT_MAX);
    if (!to) return Ran::FAILED;
    if (ran == Ran::DONE) {
        *to++ = NUMBER_OF;
        to = write_varint(to, left_ms);
    }
    return end_reply(stream, to);
}

Ran answer_write(const HotTurn& turn, const Asked& asked, Stream* stream) {
    // The memory first: what was written is acknowledged.
    if (!begin_reply(turn, stream, 2 * VARINT_MAX)) return Ran::FAILED;
    const bool is_put = stream->hot_method == HOT_PUT;
    const Ran ran = write_one(turn.engine, HotMethod(stream->hot_method), asked);
    if (ran != Ran::DONE && ran != Ran::ABSENT) return ran;
    char* to = begin_reply(turn, stream, 2 * VARINT_MAX);
    if (!to) return Ran::FAILED;
    if (!is_put && ran == Ran::DONE) {
        *to++ = NUMBER_OF;
        *to++ = 1;
    }
    return end_reply(stream, to);
}

Ran answer_write_if(const HotTurn& turn, const Asked& asked, Stream* stream) {
    if (!begin_reply(turn, stream, HOT_BYTES_MAX)) return Ran::FAILED;
    const Condition condition = {asked.condition, asked.expected.start ? asked.expected : Piece{"", 0}};
    // What is expected besides a value is Python's to judge.
    if (asked.expected.start && condition.number != IF_VALUE) return Ran::NOT_QUICK;
    PyObject* present = nullptr;
    const Seen unseen = {0, nullptr, 0, 0};
    // Of a removal it means nothing.
    const uint64_t ttl_ms = asked.time.ttl_ms();
    const Ran ran = asked.second.start
                        ? put_if(turn.engine, asked.first, asked.second, ttl_ms, condition, unseen, &present)
                        : remove_if(turn.engine, asked.first, condition, unseen, &present);
    if (ran == Ran::NOT_QUICK || ran == Ran::FAILED) return ran;
    const Piece told = ran == Ran::UNMET ? piece_of(present) : Piece{"", 0};
    if (told.size > HOT_BYTES_MAX) return Ran::NOT_QUICK;
    const Piece expected = condition.expected;
    const Write write = asked.second.start ? Write{PUT_IF, condition.number, asked.first, asked.second, expected}
                                           : Write{REMOVE_IF, condition.number, asked.first, expected, {"", 0}};
    const int status = ran == Ran::DONE ? int(MET_STATUS) : int(ran == Ran::UNMET ? UNMET : ABSENT);
    if (!remember(turn.calls, asked.request_id, write, static_cast<unsigned char>(status), told)) return Ran::FAILED;
    char* to = begin_reply(turn, stream, told.size + 2 * VARINT_MAX);
    if (!to) return Ran::FAILED;
    if (ran == Ran::DONE) {
        *to++ = NUMBER_OF;
        *to++ = 1;
    }
    return end_reply(stream, ran == Ran::UNMET ? write_piece(to, PRESENT_OF, told) : to);
}

Ran answer_add(const HotTurn& turn, const Asked& asked, Stream* stream) {
    if (!begin_reply(turn, stream, INTEGER_BYTES + 1 + VARINT_MAX)) return Ran::FAILED;
    Integer total;
    const Piece delta = asked.second.start ? asked.second : Piece{"", 0};
    const Ran ran = add(turn.engine, asked.first, delta, {0, nullptr, 0, 0}, &total);
    if (ran != Ran::DONE) return ran;
    const Write write = {ADD, 0, asked.first, delta, {"", 0}};
    if (!remember(turn.calls, asked.request_id, write, OK_STATUS, total.piece())) return Ran::FAILED;
    char* to = begin_reply(turn, stream, INTEGER_BYTES + 1 + VARINT_MAX);
    return to ? end_reply(stream, write_piece(to, VALUE_OF, total.piece())) : Ran::FAILED;
}

Ran answer_count(const HotTurn& turn, const Asked& asked, Stream* stream) {
    SortedRows* rows = nullptr;
    const Ran ran = rows_between(turn.engine, asked.first, asked.second, &rows);
    if (ran != Ran::DONE) return ran;
    const size_t count =
        rows ? count_between(rows, lower_bound(rows, asked.first), lower_bound(rows, asked.second)) : 0;
    char* to = begin_reply(turn, stream, 1 + VARINT_MAX);
    if (!to) return Ran::FAILED;
    if (count) {
        *to++ = NUMBER_OF;
        to = write_varint(to, count);
    }
    return end_reply(stream, to);
}

// The rows of a span, from one of its ends, at most as many as there is room for.
struct Found {
    const Entry* entries[ROWS_MAX + 1];
    size_t count;

    void take_up(const Span& span, size_t most) {
        for (Place place = span.start; place.leaf <= span.stop.leaf && count < most; place = {place.leaf + 1, 0}) {
            const Leaf& leaf = span.rows->leaf(place.leaf);
            const size_t end = place.leaf == span.stop.leaf ? span.stop.at : leaf.size;
            for (; place.at < end && count < most; ++place.at) entries[count++] = leaf.entries + place.at;
        }
    }

    void take_down(const Span& span, size_t most) {
        for (size_t at_leaf = span.stop.leaf + 1; at_leaf > span.start.leaf && count < most; --at_leaf) {
            const Leaf& leaf = span.rows->leaf(at_leaf - 1);
            const size_t begin = at_leaf - 1 == span.start.leaf ? span.start.at : 0;
            size_t end = at_leaf - 1 == span.stop.leaf ? span.stop.at : leaf.size;
            for (; end > begin && count < most; --end) entries[count++] = leaf.entries + end - 1;
        }
    }
};

Ran write_scan(const HotTurn& turn, const Asked& asked, const Span& span, const Found& found, size_t shown,
               Stream* stream) {
    const size_t chunk = asked.chunk_bytes ? size_t(asked.chunk_bytes) : turn.calls->chunk_bytes;
    size_t size = 0;
    for (size_t at = 0; at < shown; ++at) {
        size += span.prefix.size + piece_of(found.entries[at]->key).size + size_t(ROW_BYTES);
        if (!asked.keys_only) size += piece_of(found.entries[at]->value).size;
        if (size > chunk || size > turn.calls->reply_bytes_max || size > HOT_BYTES_MAX) return Ran::NOT_QUICK;
    }
    char* to = begin_reply(turn, stream, 2 * size + 2 * VARINT_MAX * (2 * shown + 1));
    if (!to) return Ran::FAILED;
    for (size_t at = 0; at < shown; ++at) to = write_piece(to, KEYS_OF, span.prefix, piece_of(found.entries[at]->key));
    for (size_t at = 0; !asked.keys_only && at < shown; ++at) {
        to = write_piece(to, VALUES_OF, piece_of(found.entries[at]->value));
    }
    if (found.count > shown) {
        // From the last row on the rest follows, upwards right behind it.
        const Piece key = piece_of(found.entries[shown - 1]->key);
        const size_t behind = asked.is_down ? 0 : 1;
        *to++ = RESUME_KEY;
        to = write_varint(to, span.prefix.size + key.size + behind);
        for (const Piece part : {span.prefix, key, Piece{"", behind}}) {
            std::memcpy(to, part.start, part.size);
            to += part.size;
        }
    }
    return end_reply(stream, to);
}

Ran answer_scan(const HotTurn& turn, const Asked& asked, Stream* stream) {
    if (asked.has_limit && !asked.limit) return Ran::NOT_QUICK;
    const size_t most = turn.calls->rows_max < ROWS_MAX ? turn.calls->rows_max : ROWS_MAX;
    const size_t shown_max = asked.has_limit && asked.limit < most ? size_t(asked.limit) : most;
    Span span;
    const Ran ran = find_span(turn.engine, asked.first, asked.second, hash_of(asked.second), turn.now, true, &span);
    if (ran != Ran::DONE) return ran;
    Found found;
    found.count = 0;
    if (span.rows && asked.is_down) found.take_down(span, shown_max + 1);
    if (span.rows && !asked.is_down) found.take_up(span, shown_max + 1);
    const bool has_more = found.count > shown_max;
    // Only the last chunk, and a page, end here.
    if (has_more && !asked.one_chunk && !(asked.has_limit && asked.limit == shown_max)) return Ran::NOT_QUICK;
    const Ran written = write_scan(turn, asked, span, found, has_more ? shown_max : found.count, stream);
    if (written == Ran::DONE) count_hit(turn.engine, span);
    return written;
}

// Whether the caller may, and the keys of a write are this server's; if not, Python says why.
bool is_allowed(const HotTurn& turn, const HotRights& rights, HotMethod method, const Asked& asked) {
    if (is_decided(method) && rights.readable && !rights.readable->holds(asked.first)) return false;
    if (is_write(method)) {
        return (!rights.writable || rights.writable->holds(asked.first)) &&
               (!turn.homes || turn.homes->holds(asked.first));
    }
    if (method == HOT_GET || method == HOT_TTL) return !rights.readable || rights.readable->holds(asked.first);
    return !rights.readable || rights.readable->covers(asked.first, asked.second);
}

// What a call uses of its caller's quotas at the most.
Use use_of(HotMethod method, const Asked& asked) {
    const bool is_put = method == HOT_PUT || method == HOT_ADD || (method == HOT_WRITE_IF && asked.second.start);
    if (!is_put) return {1, 0, 0};
    const size_t value = method == HOT_ADD && asked.second.size < SUM_BYTES ? SUM_BYTES : asked.second.size;
    return {1, 1, static_cast<long long>(asked.first.size + value)};
}

Ran answer_one(const HotTurn& turn, HotMethod method, const Asked& asked, Stream* stream) {
    if (method == HOT_GET) return answer_get(turn, asked, stream);
    if (method == HOT_WRITE_IF) return answer_write_if(turn, asked, stream);
    if (method == HOT_ADD) return answer_add(turn, asked, stream);
    if (is_write(method)) return answer_write(turn, asked, stream);
    if (method == HOT_TTL) return answer_ttl(turn, asked, stream);
    if (!asked.second.size) return Ran::NOT_QUICK;
    return method == HOT_COUNT ? answer_count(turn, asked, stream) : answer_scan(turn, asked, stream);
}

}  // namespace

bool range_of(HotMethod method, Piece message, Piece* first, Piece* last) {
    Asked asked;
    const bool is_one = method == HOT_GET || method == HOT_TTL;
    if (!parse(method, message, &asked) || is_one == (asked.second.size > 0)) return false;
    *first = asked.first;
    *last = asked.second;
    return true;
}

Ran hot_answer(const HotTurn& turn, const HotRights& rights, Stream* stream) {
    const HotMethod method = HotMethod(stream->hot_method);
    const Incoming next = stream->next();
    const Piece message = {reinterpret_cast<const char*>(stream->in.front()) + HEAD_BYTES, next.size};
    if (turn.token.size > TOKEN_MAX || (!turn.may_read && !is_write(method))) return Ran::NOT_QUICK;
    if (method == HOT_MULTI_GET || method == HOT_MULTI_PUT) return answer_keys(turn, rights, method, message, stream);
    Asked asked;
    if (!parse(method, message, &asked) || !is_allowed(turn, rights, method, asked)) return Ran::NOT_QUICK;
    const Use use = use_of(method, asked);
    if (!has(rights.lease, use)) return Ran::NOT_QUICK;
    if (asked.request_id.start) {
        // What it gave before is Python's to tell.
        const int are_new = is_new(turn.calls, {asked.request_id.start, BATCH_ID_BYTES});
        if (are_new <= 0) return are_new ? Ran::FAILED : Ran::NOT_QUICK;
    }
    const Ran ran = answer_one(turn, method, asked, stream);
    if (ran == Ran::DONE) take(rights.lease, use);
    return ran;
}

}  // namespace pequod::http2
