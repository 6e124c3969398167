"""Replies taken apart: the quick ways for what is common give what the long way gives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pequod_proto.pequod_pb2 import ExecuteReply
from pequod_server.steps.executor import Executor

from pequod.answers.rows import Rows
from pequod.client import Result
from pequod.client.columns import Columns, _mixture, decode
from pequod.client.stream import Sending
from pequod.engine import Engine
from pequod.errors import PequodError

KEYS = st.sampled_from([b"a", b"b", b"c|1", b"c|2", b"d", b""])
COMMANDS = {
    "get": st.tuples(st.just("get"), KEYS),
    "put": st.tuples(st.just("put"), KEYS, st.sampled_from([b"", b"v"])),
    "remove": st.tuples(st.just("remove"), KEYS),
    "scan": st.tuples(st.just("scan"), KEYS, st.none() | KEYS),
    "count": st.tuples(st.just("count"), KEYS, KEYS),
}


def answer(commands: list[tuple[bytes | str | None, ...]]) -> tuple[Columns, ExecuteReply]:
    engine = Engine()
    for key in (b"a", b"b", b"c|1", b"c|2"):
        engine.put(key, b"old")
    columns = Columns()
    for name, *arguments in commands:
        getattr(columns, str(name))(*arguments)
    executor = Executor(engine, 7, commands_max=100, reply_bytes_max=60, rows_max=3)
    sending = Sending(columns, lambda _: None)
    for piece in executor.execute(columns.message(1)):
        sending.add(piece)
    assert sending.begun is not None
    return columns, sending.begun


def plain(results: list[Result]) -> object:
    # Errors are equal if they are of one kind and say the same.
    return [(type(one), str(one)) if isinstance(one, PequodError) else one for one in results]


@given(st.data())
def test_every_mixture_of_commands_is_taken_apart_in_the_same_way(data: st.DataObject) -> None:
    kinds = data.draw(st.sets(st.sampled_from(sorted(COMMANDS)), min_size=1))
    commands = data.draw(st.lists(st.one_of([COMMANDS[kind] for kind in sorted(kinds)]), max_size=8))
    columns, reply = answer(commands)
    assert plain(decode(columns.kinds, reply)) == plain(_mixture(columns.kinds, reply))


def test_rows_of_scans_are_rows_and_nobody_elses() -> None:
    columns, reply = answer([("scan", b"a", b"b"), ("put", b"x", b"y"), ("scan", b"x", b"x"), ("scan", b"x", b"x")])
    results = decode(columns.kinds, reply)
    assert results == [Rows([b"a"], [b"old"]), None, Rows([], []), Rows([], [])]
    assert all(isinstance(results[at], Rows) for at in (0, 2, 3))
    assert results[2].keys is not results[3].keys  # type: ignore[union-attr]


def test_a_reply_to_another_batch_is_not_taken_apart() -> None:
    _, reply = answer([("get", b"a")])
    for kinds in (b"", b"\1\1"):
        with pytest.raises(ValueError, match="not one to"):
            decode(kinds, reply)
