// Hot calls of many keys: MultiGet and MultiPut.
#include "hot_reply.hpp"

namespace pequod::http2 {

namespace {

// The keys of a call, and the values of one that writes, with their time to live. A call of more keys is Python's.
struct Keys {
    Piece keys[KEYS_MAX], values[KEYS_MAX];
    size_t count = 0, value_count = 0;
    Time time;

    bool parse(Piece message, size_t most, bool has_values) {
        if (most > KEYS_MAX) most = KEYS_MAX;
        const unsigned char* start = reinterpret_cast<const unsigned char*>(message.start);
        Reader reader = {start, start + message.size};
        while (reader.is_right && reader.at < reader.end) {
            const unsigned char tag = *reader.at++;
            if (tag == FIRST && count < most) {
                keys[count++] = reader.piece();
            } else if (tag == SECOND && has_values && value_count < most) {
                values[value_count++] = reader.piece();
            } else if (!has_values || !time.read(&reader, tag, TTL_MS_OF_PUT)) {
                return false;
            }
        }
        return reader.is_right && (!has_values || count == value_count) && time.is_one();
    }

    // What the call uses of its caller's quotas: each key counts.
    Use use(bool is_put) const {
        size_t size = 0;
        for (size_t at = 0; is_put && at < count; ++at) size += keys[at].size + values[at].size;
        return {count ? static_cast<long long>(count) : 1, is_put ? static_cast<long long>(count) : 0,
                static_cast<long long>(size)};
    }

    bool are_all_in(const KeyRanges* ranges) const {
        for (size_t at = 0; ranges && at < count; ++at) {
            if (!ranges->holds(keys[at])) return false;
        }
        return true;
    }
};

Ran answer_multi_get(const HotTurn& turn, const Keys& asked, Stream* stream) {
    PyObject* values[KEYS_MAX];
    char present[KEYS_MAX];
    size_t size = 0;
    for (size_t at = 0; at < asked.count; ++at) {
        values[at] = nullptr;
        const Ran ran = get(turn.engine, asked.keys[at], {0, nullptr, 0, 0}, turn.now, values + at);
        if (ran != Ran::DONE && ran != Ran::ABSENT) return ran;
        present[at] = ran == Ran::DONE;
        size += (present[at] ? piece_of(values[at]).size : 0) + size_t(ROW_BYTES);
        if (size > HOT_BYTES_MAX || size > turn.calls->reply_bytes_max) return Ran::NOT_QUICK;
    }
    char* to = begin_reply(turn, stream, size + (asked.count + 1) * (2 + VARINT_MAX));
    if (!to) return Ran::FAILED;
    for (size_t at = 0; at < asked.count; ++at) {
        to = write_piece(to, KEYS_OF, present[at] ? piece_of(values[at]) : Piece{"", 0});
    }
    return end_reply(stream, asked.count ? write_piece(to, VALUES_OF, {present, asked.count}) : to);
}

Ran answer_multi_put(const HotTurn& turn, const Keys& asked, Stream* stream) {
    // The memory first, as for one write.
    if (!begin_reply(turn, stream, 0)) return Ran::FAILED;
    const Ran ran = put_all(turn.engine, asked.keys, asked.values, asked.count, asked.time.ttl_ms());
    if (ran != Ran::DONE) return ran;
    char* to = begin_reply(turn, stream, 0);
    return to ? end_reply(stream, to) : Ran::FAILED;
}

}  // namespace

size_t keys_of(Piece message, Piece* keys) {
    Keys asked;
    if (!asked.parse(message, KEYS_MAX, false)) return 0;
    std::memcpy(keys, asked.keys, asked.count * sizeof(Piece));
    return asked.count;
}

Ran answer_keys(const HotTurn& turn, const HotRights& rights, HotMethod method, Piece message, Stream* stream) {
    Keys asked;
    const bool is_put = method == HOT_MULTI_PUT;
    if (!asked.parse(message, turn.calls->commands_max, is_put)) return Ran::NOT_QUICK;
    if (!asked.are_all_in(is_put ? rights.writable : rights.readable)) return Ran::NOT_QUICK;
    if (is_put && !asked.are_all_in(turn.homes)) return Ran::NOT_QUICK;
    const Use use = asked.use(is_put);
    if (!has(rights.lease, use)) return Ran::NOT_QUICK;
    const Ran ran = is_put ? answer_multi_put(turn, asked, stream) : answer_multi_get(turn, asked, stream);
    if (ran == Ran::DONE) take(rights.lease, use);
    return ran;
}

}  // namespace pequod::http2
