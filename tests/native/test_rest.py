"""What is left of a batch that waited runs natively: of the same requests and loads, the replies of one in Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from unittest.mock import patch

import hypothesis.strategies as st
from hypothesis import example, given
from pequod_grammar import parse
from pequod_proto.pequod_pb2 import ExecuteReply, ExecuteRequest
from pequod_server.steps import native
from pequod_server.steps.executor import Executor
from pequod_server.steps.quick import run_quick
from pequod_server.steps.steps import Room, Writes

from pequod.commands.kinds import COUNT, GET, SCAN, SCAN_DOWN, SCAN_LIMIT
from pequod.engine import Engine, MissingError
from pequod.native import NativeBatch
from tests.native.core import hot

assert hot.INTERFACE

JOINS = """
t|<user>|<time:2>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>;
c|<poster> = count p|<poster>|<time:2>
"""
POSTERS = [b"%02d" % number for number in range(12)]
DATABASE = {b"s|%s|%s" % (user, poster): b"" for user in (b"a", b"b") for poster in POSTERS[::2]} | {
    b"p|%s|%02d" % (poster, time): b"v" * time for poster in POSTERS for time in (5, 15)
}
TIMES = st.integers(0, 20).map(lambda time: b"%02d" % time)
KEYS = st.builds(lambda poster, time: b"p|%s|%s" % (poster, time), st.sampled_from(POSTERS), TIMES)
RANGES = (
    st.builds(
        lambda user, time: (b"t|%s|%s" % (user, time), b"t|%s}" % user), st.sampled_from([b"a", b"b", b"c"]), TIMES
    )
    | st.builds(lambda poster: (b"c|" + poster, b"c|%s\0" % poster), st.sampled_from(POSTERS))
    | st.builds(lambda poster: (b"p|%s|" % poster, b"p|%s}" % poster), st.sampled_from(POSTERS))
    | st.sampled_from([(b"t|", b"t}"), (b"x", b"y"), (b"p|05|", b"")])
)
COMMANDS = (
    st.tuples(st.just(GET), KEYS.map(lambda key: (key,)), st.just(0))
    | st.tuples(st.sampled_from([SCAN, COUNT]), RANGES, st.just(0))
    | st.tuples(st.sampled_from([SCAN_LIMIT, SCAN_DOWN]), RANGES, st.integers(0, 3))
)
#: What the feed tells while a batch waits.
CHANGES = st.lists(
    st.tuples(st.sampled_from([b"s|a|01", b"s|a|00", b"s|b|03", b"p|02|10", b"p|03|15"]), st.sampled_from([b"", None])),
    max_size=2,
)


class Answered(NamedTuple):
    pieces: list[ExecuteReply]
    loads: int


def request_of(commands: Sequence[tuple[int, tuple[bytes, ...], int]]) -> ExecuteRequest:
    request = ExecuteRequest(kinds=bytes(kind for kind, *_ in commands))
    for kind, arguments, number in commands:
        request.arguments.extend(arguments)
        request.numbers.extend([number] * (kind in (SCAN_LIMIT, SCAN_DOWN)))
    return request


def answer(executor: Executor, request: ExecuteRequest, told: list[Sequence[tuple[bytes, bytes | None]]]) -> Answered:
    """Run a batch, with what it lacks from a database that changes at each load as long as it has something to tell."""
    engine, loads = executor.engine, 0
    quick = run_quick(executor, request.SerializeToString())
    if quick is not None and quick.reply is not None:
        return Answered([ExecuteReply.FromString(quick.reply)], 0)
    if quick is None:
        steps = executor.steps(request)
        step = steps.run()
    else:
        assert quick.rest is not None
        _, steps, step = quick.rest
    pieces = list[ExecuteReply]()
    while not isinstance(step, ExecuteReply) or step.more:
        assert not isinstance(step, Writes)
        if isinstance(step, MissingError):
            loads += 1
            for key, value in told.pop(0) if told else ():
                engine.apply(key, value)
            for one in step.ranges:
                engine.load(*one, [row for row in DATABASE.items() if one.first <= row[0] < (one.last or b"\xff")])
        elif isinstance(step, ExecuteReply):
            pieces.append(step)
        else:
            assert isinstance(step, Room)
        step = steps.go_on()
    return Answered([*pieces, step], loads)


def backed(reply_bytes_max: int, rows_max: int) -> Executor:
    engine = Engine(backed=[b"s", b"p"])
    engine.add_joins(parse(JOINS))
    return Executor(engine, 7, commands_max=1000, reply_bytes_max=reply_bytes_max, rows_max=rows_max)


CHECK_ALL = [(SCAN, (b"t|%s|" % user, b"t|%s}" % user), 0) for user in (b"a", b"b", b"c")]
#: While it waits for a post, the feed has the last timeline lack something.
LIMITED = [(GET, (b"p|03|05",), 0), (SCAN_LIMIT, (b"t|b|", b"t|b}"), 1), *CHECK_ALL, (SCAN_DOWN, (b"t|a|", b"t|a}"), 2)]


@given(
    st.lists(st.lists(COMMANDS, max_size=14), max_size=3),
    st.lists(CHANGES, max_size=6),
    st.sampled_from([1, 30, 200, 1 << 20]),
    st.sampled_from([1, 2, 1000]),
)
@example([CHECK_ALL * 4, CHECK_ALL * 3], [[(b"s|a|01", b"")], [(b"s|a|03", b"")]], 1 << 20, 1000)
@example([CHECK_ALL, LIMITED], [[], [], [(b"s|a|01", b"")]], 1 << 20, 1000)
def test_what_is_left_after_a_load_runs_natively_as_in_python(
    batches: Sequence[Sequence[tuple[int, tuple[bytes, ...], int]]],
    changes: Sequence[Sequence[tuple[bytes, bytes | None]]],
    reply_bytes_max: int,
    rows_max: int,
) -> None:
    quick, slow = (backed(reply_bytes_max, rows_max) for _ in range(2))
    told = [list(changes) for _ in range(2)]
    for commands in batches:
        request = request_of(commands)
        with patch.object(native, "FEW", 1):
            found = answer(quick, request, told[0])
        with (
            patch.object(native, "parse_batch", lambda *_: None),
            patch("pequod_server.steps.quick.parse_batch", lambda *_: None),
        ):
            wanted = answer(slow, request, told[1])
        assert found == wanted
        for executor in (quick, slow):
            executor.engine._check()
    assert quick.engine.base_rows() == slow.engine.base_rows()


def test_what_all_reads_of_a_batch_lack_is_loaded_at_once_and_the_rest_runs_natively() -> None:
    executor = backed(1 << 20, 1000)
    assert answer(executor, request_of(CHECK_ALL), []).loads == 2, "subscriptions, then posts"
    # Between two reads that lack something are more quick ones than slow ones would be looked at.
    lacking = [(SCAN, (b"p|%s|" % poster, b"p|%s}" % poster), 0) for poster in POSTERS[1::4]]
    request = request_of([one for lack in lacking for one in (lack, *CHECK_ALL * 20)])
    ran = list[int]()
    run = native.run_batch

    def counted(engine: Engine, batch: NativeBatch, *rest: object) -> native.Stop | None:
        ran.append(len(batch.kinds))
        return run(engine, batch, *rest)  # type: ignore[arg-type]

    with patch.object(native, "run_batch", counted):
        found = answer(executor, request, [])
    assert found.loads == 1
    assert ran == [len(request.kinds)]
