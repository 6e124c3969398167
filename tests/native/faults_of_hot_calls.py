"""Faults in hot calls."""

from typing import Final

from tests.native.fault import Fault

FAULTS_OF_HOT_CALLS: Final = (
    Fault(
        "http2/hot_answer.cpp",
        "if (method == HOT_GET || method == HOT_TTL) return !rights.readable || rights.readable->holds(asked.first);",
        "if (method == HOT_GET || method == HOT_TTL) return true;",
        "a caller gets keys that its role may not read",
    ),
    Fault(
        "http2/hot_answer.cpp",
        "if (turn.token.size > TOKEN_MAX || (!turn.may_read && !is_write(method))) return Ran::NOT_QUICK;",
        "if (turn.token.size > TOKEN_MAX) return Ran::NOT_QUICK;",
        "reads are answered that are older than they may be",
    ),
    Fault(
        "http2/hot_answer.cpp",
        "if (has_more && !asked.one_chunk && ",
        "if (has_more && false && ",
        "a scan ends with its first chunk",
    ),
    Fault(
        "http2/hot_answer.cpp",
        "const size_t behind = asked.is_down ? 0 : 1;",
        "const size_t behind = 0;",
        "a scan that goes on repeats the last row",
    ),
    Fault(
        "http2/hot_keys.cpp",
        "if (!asked.are_all_in(is_put ? rights.writable : rights.readable)) return Ran::NOT_QUICK;",
        "if (!asked.are_all_in(rights.readable)) return Ran::NOT_QUICK;",
        "a caller puts many keys that it may only read",
    ),
    Fault(
        "http2/hot_answer.cpp",
        "if (ran == Ran::DONE) take(rights.lease, use);",
        "",
        "hot calls are not counted against the quotas of their role",
    ),
    Fault(
        "http2/hot_keys.cpp",
        "return {count ? static_cast<long long>(count) : 1, ",
        "return {1, ",
        "a call of many keys counts as one",
    ),
    Fault(
        "http2/lease.cpp",
        "offsetof(Lease, commands)",
        "offsetof(Lease, keys)",
        "what is lent of commands is taken for keys",
    ),
    Fault(
        "http2/hot_batches.cpp",
        "if (!has(may.lease, use)) return leave(self, stream);",
        "",
        "hot batches go beyond the quotas of their role",
    ),
    Fault(
        "verbs.cpp",
        "return ttl_ms == KEEP_TTL ? !engine->may_be_due() : ttl_ms <= TTL_MS_MAX;",
        "return ttl_ms == KEEP_TTL || ttl_ms <= TTL_MS_MAX;",
        "a key that is due keeps its deadline, and what is put is gone",
    ),
    Fault(
        "verbs.cpp",
        "instants[at] = instant_after(engine, keys[at], ttl_ms);",
        "instants[at] = ttl_ms == KEEP_TTL ? -1 : instant_after(engine, keys[at], ttl_ms);",
        "many puts that keep the deadlines of their keys take them away",
    ),
    Fault(
        "verbs.cpp",
        "return ran == Ran::DONE ? put_until(engine, relations, key, value, ttl_ms) : ran;",
        "return ran == Ran::DONE ? put_into(engine, relations, key, value) : ran;",
        "a key that is put under a condition lives for ever",
    ),
    Fault(
        "verbs.cpp",
        "if (!end_deadline(engine, key)) return Ran::DONE;\n    ++engine->revision;",
        "if (!end_deadline(engine, key)) return Ran::DONE;",
        "nobody is told that a key lives for ever from now on",
    ),
    Fault(
        "verbs.cpp",
        "*left_ms = at_ms < 0 ? NO_DEADLINE : static_cast<uint64_t>(at_ms - deadlines->now_ms);",
        "*left_ms = at_ms < 0 ? NO_DEADLINE : static_cast<uint64_t>(at_ms);",
        "a key seems to live for as long as the clock has run",
    ),
    Fault(
        "http2/hot_reply.hpp",
        "bool is_one() const { return !is_kept || !set_ms; }",
        "bool is_one() const { return true; }",
        "a call that sets a deadline and keeps it is not refused",
    ),
    Fault(
        "verbs.cpp",
        "if (!has_room(engine, 0, count * revisions_of(ttl_ms))) return Ran::NOT_QUICK;",
        "",
        "many puts go beyond the moment at which the ledger is weighed",
    ),
    Fault(
        "http2/hot_calls.cpp",
        "return stream->is_half_closed && message.is_begun && !message.is_compressed",
        "return stream->is_half_closed && message.is_begun",
        "a compressed request is read as it is",
    ),
    Fault(
        "http2/hot_calls.cpp",
        "if (stream->authorization.start || !fields.value.size) return false;",
        "if (stream->authorization.start) return false;",
        "an empty token counts as none",
    ),
    Fault(
        "http2/hot_answer.cpp",
        "if (is_decided(method) && rights.readable && !rights.readable->holds(asked.first)) return false;",
        "",
        "a write under a condition tells a value that the caller may not read",
    ),
    Fault(
        "http2/hot_answer.cpp",
        "if (asked.expected.start && condition.number != IF_VALUE) return Ran::NOT_QUICK;",
        "",
        "what is expected besides a value is not judged",
    ),
    Fault(
        "http2/hot_runs.cpp",
        "self->hot_at < self->hot_size && left && self->unsent_bytes < unsent_max;",
        "self->hot_at < self->hot_size && self->unsent_bytes < unsent_max;",
        "one read of a socket runs all that it brings, however much that is",
    ),
    Fault(
        "http2/reads.cpp",
        "const bool is_hot = reads.is_calm && ",
        "const bool is_hot = ",
        "replies are written to a socket that is full, or overtake those that wait for the disk",
    ),
    Fault(
        "http2/reads.cpp",
        "total == self->reads.noted_bytes && !has_news(self);",
        "!has_news(self);",
        "a connection holds more than the budget of its server has noted",
    ),
    Fault(
        "http2/hot_batches.cpp",
        "is_within(batch, rights.readable, rights.writable) && is_within(batch, nullptr, turn.homes)",
        "is_within(batch, rights.readable, rights.writable)",
        "a hot batch writes keys that belong to another server",
    ),
    Fault(
        "http2/hot_batches.cpp",
        "!batch->freshness.size &&",
        "",
        "a hot batch is answered below its level of freshness",
    ),
    Fault(
        "http2/hot_batches.cpp",
        "!message.is_compressed && message.size <= HOT_BYTES_MAX && !stream->first_out",
        "!message.is_compressed && message.size <= HOT_BYTES_MAX",
        "the reply of a hot batch overtakes one of the handler",
    ),
    Fault(
        "http2/hot_batches.cpp",
        "const bool is_whole = ran == Ran::DONE && !is_long;",
        "const bool is_whole = ran == Ran::DONE;",
        "long replies of hot batches are not counted against the memory for messages",
    ),
    Fault(
        "http2/hot_calls.cpp",
        "stream->is_left = true;",
        "",
        "a batch that is not for the core never comes to its handler",
    ),
    Fault(
        "http2/hot_batches.cpp",
        "if (are_new <= 0) return are_new == 0 && leave(self, stream);",
        "if (are_new < 0) return false;",
        "a batch whose reply was lost is done twice",
    ),
    Fault(
        "http2/hot_answer.cpp",
        "if (are_new <= 0) return are_new ? Ran::FAILED : Ran::NOT_QUICK;",
        "if (are_new < 0) return Ran::FAILED;",
        "a write whose reply was lost is done twice",
    ),
    Fault(
        "outcomes.cpp",
        "{Piece{head, HEAD_SIZE}, write.key, write.second, write.third}",
        "{Piece{head, HEAD_SIZE}, write.key, write.second}",
        "the check of a write leaves out which value it expects",
    ),
    Fault(
        "outcomes.cpp",
        "TABLES.of[1][word >> 48 & 0xff]",
        "TABLES.of[1][word >> 40 & 0xff]",
        "the core and Python do not agree on the check of a write",
    ),
    Fault(
        "batch_commands.cpp",
        "batch->position_count ? batch->positions[batch->index] : uint32_t(batch->index)",
        "uint32_t(batch->index)",
        "a part of a batch is remembered by other ids than the whole",
    ),
    Fault(
        "batch_message.cpp",
        "if (!is_next || position > UINT32_MAX",
        "if (position > UINT32_MAX",
        "a batch that has one request id twice runs natively",
    ),
    Fault(
        "batch_message.cpp",
        "for (size_t at = 0; at < batch->argument_count; ++at) move(batch->arguments + at);",
        "",
        "a batch that is handed over reads its arguments where they are no more",
    ),
)
