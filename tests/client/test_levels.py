"""Levels of freshness in the messages of clients, and what sessions ask for."""

from __future__ import annotations

import pickle

import pytest
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2 import ExecuteReply, ExecuteRequest

import pequod
from pequod.calls import Results, WatchEvent
from pequod.client.columns import Columns, encode_request
from pequod.client.levels import level
from pequod.client.stream import Sending
from pequod.errors import InvalidTokenError
from pequod.freshness import NO_TOKEN, After, Freshness, Latest, Mark, Token, database_of
from pequod.interface.seen import Seen

OLD = Mark(database_of("postgresql", 7, "twip"), 1)
NEW = OLD._replace(timeline=2)


def test_levels_as_messages() -> None:
    token = Token({OLD: 9})
    assert level(pequod.ANY) == pb.Freshness()
    assert level(pequod.LATEST) == pb.Freshness(latest=True, wait_ms=1000)
    assert level(Latest(wait_s=0.25)) == pb.Freshness(latest=True, wait_ms=250)
    assert level(pequod.after(str(token), wait_s=0)) == pb.Freshness(after=bytes(token), wait_ms=0)
    assert level(pequod.max_age(0.0019)) == pb.Freshness(max_age_ms=1, wait_ms=1000), "never older than asked for"
    assert level(pequod.max_age(1e9)).max_age_ms == (1 << 32) - 1


_TRACE = (("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"), ("tracestate", "a=b"))


def test_a_batch_has_one_level_and_single_reads_have_their_own() -> None:
    columns = Columns(pequod.LATEST)
    columns.put("a", "1")
    columns.get("a")
    columns.scan("a", "b", freshness=pequod.max_age(2))
    columns.remove("a")
    columns.count("a", freshness=pequod.ANY)
    message = columns.message(3)
    assert message.freshness == level(pequod.LATEST)
    assert list(message.fresh_commands) == [2, 4]
    assert list(message.fresh_levels) == [level(pequod.max_age(2)), pb.Freshness()]
    encoded = encode_request(3, columns.kinds, columns.arguments, columns.numbers) + columns.other_fields()
    assert ExecuteRequest.FromString(encoded) == message


def test_the_reads_of_a_batch_that_are_sent_again_keep_their_levels() -> None:
    columns = Columns(pequod.LATEST)
    columns.put("a", "1")
    columns.get("a", freshness=pequod.ANY)
    columns.get("b")
    columns.scan("a", "b", limit=3, freshness=pequod.max_age(2))
    columns.trace = _TRACE
    reads, positions = columns.reads()
    assert reads.trace == _TRACE
    assert (reads.freshness, positions) == (pequod.LATEST, [1, 2, 3])
    assert reads.overrides == {0: pequod.ANY, 2: pequod.max_age(2)}
    taken = columns.take()
    assert (len(columns), columns.overrides, columns.freshness) == (0, {}, pequod.LATEST)
    assert (len(taken), list(taken.overrides), taken.freshness) == (4, [1, 3], pequod.LATEST)


def test_reads_of_several_batches_keep_their_levels_in_one() -> None:
    one, other, together = Columns(pequod.LATEST), Columns(), Columns()
    one.get("a")
    one.scan("a", "b", limit=2, freshness=pequod.ANY)
    other.count("c")
    other.get("d", freshness=pequod.max_age(1))
    other.trace = _TRACE
    together.take_in(one)
    together.take_in(other)
    assert together.trace == _TRACE
    assert together.overrides == {0: pequod.LATEST, 1: pequod.ANY, 3: pequod.max_age(1)}
    assert (together.kinds, together.arguments) == (one.kinds + other.kinds, one.arguments + other.arguments)
    assert (together.numbers, together.freshness) == ([2], None)


def test_a_batch_without_a_level_has_the_bytes_that_it_always_had() -> None:
    columns = Columns()
    columns.get("a")
    assert columns.other_fields() == b""
    assert columns.message(1) == ExecuteRequest(batch=1, kinds=b"\1", arguments=[b"a"])


def test_a_batch_names_the_span_of_its_caller() -> None:
    columns = Columns()
    columns.get("a")
    columns.trace = _TRACE
    message = columns.message(1)
    assert (message.trace_parent, message.trace_state) == (_TRACE[0][1].encode(), b"a=b")
    assert not message.HasField("freshness")


def test_the_tokens_of_the_pieces_of_a_reply_are_merged() -> None:
    columns = Columns()
    columns.put("a", "1")
    columns.put("b", "1")
    sending = Sending(columns, lambda _: None)
    first = ExecuteReply(batch=1, statuses=b"\0", more=True, token=bytes(Token({OLD: 9})))
    assert sending.take(first.SerializeToString()) is None
    last = ExecuteReply(batch=1, statuses=b"\0", token=bytes(Token({NEW: 3})), age_ms=7)
    reply = sending.take(last.SerializeToString())
    assert reply is not None
    assert (Token.parse(reply.token), reply.age_ms) == (Token({OLD: 9, NEW: 3}), 7)


def test_a_reply_without_a_token_gives_the_empty_one() -> None:
    results = Results([None, b"1"])
    assert (results, results.token, results.age_s) == ([None, b"1"], NO_TOKEN, None)
    assert Results([], bytes(Token({OLD: 9})), 1500).token == Token({OLD: 9})
    assert Results([], b"", 1500).age_s == 1.5
    assert WatchEvent(1, []).token == NO_TOKEN


def test_a_session_asks_for_what_it_has_seen() -> None:
    seen = Seen(NO_TOKEN, 2.0)
    assert seen.level(None) is None
    seen.note(b"")
    assert seen.level(None) is None
    seen.note(bytes(Token({OLD: 9})))
    assert seen.level(None) == After(Token({OLD: 9}), 2.0)
    seen.note(bytes(Token({OLD: 8})))
    assert seen.token == Token({OLD: 9}), "it never goes back"
    assert seen.level(pequod.after(Token({OLD: 12}))) == After(Token({OLD: 12}), 1.0)
    assert seen.level(pequod.after(Token({OLD: 3}))) == After(Token({OLD: 9}), 1.0)
    for other in (pequod.ANY, pequod.LATEST, pequod.max_age(1)):
        assert seen.level(other) == other


def test_a_session_forgets_nothing_since_a_read_depends_on_some_databases_alone() -> None:
    seen = Seen(Token({OLD: 9}), 1.0)
    seen.note(bytes(Token({NEW: 5})))
    assert seen.token == Token({OLD: 9, NEW: 5})
    seen.note(bytes(Token({NEW: 6})))
    assert seen.token == Token({OLD: 9, NEW: 6})


@pytest.mark.parametrize("level", [pequod.ANY, pequod.LATEST, pequod.max_age(1), pequod.after(Token({OLD: 9}))])
def test_levels_and_tokens_are_values(level: Freshness) -> None:
    assert pickle.loads(pickle.dumps(level)) == level
    assert {level: 1}[pickle.loads(pickle.dumps(level))] == 1


@pytest.mark.parametrize("token", ["", "pq1.", "pq9.AQ", "pq1.AQ=", "Bearer x", b"", b"\x02", b"\x01abc", 7])
def test_what_is_no_token_is_refused(token: str | bytes) -> None:
    with pequod.open() as client, pytest.raises((InvalidTokenError, TypeError)):
        client.session(token)
