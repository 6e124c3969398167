"""Batches that run natively beside those in Python: of the same requests, the same replies and the same state.

Both engines are native; what is compared is who reads the message, runs the commands and writes the reply.
"""

from collections.abc import Sequence

import hypothesis.strategies as st
from hypothesis import example, given
from pequod_grammar import parse
from pequod_proto.commands import COUNT, GET, PUT, REMOVE, SCAN, SCAN_DOWN, SCAN_LIMIT
from pequod_proto.pequod_pb2 import ExecuteReply, ExecuteRequest
from pequod_server.batches.executor import Executor, Room
from pequod_server.batches.quick import run_quick

from pequod.engine import Engine
from tests.native.core import hot

assert hot.INTERFACE

JOINS = """
t|<user>|<time:2>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>;
c|<poster> = count p|<poster>|<time:2>
"""
USERS = st.sampled_from([b"a", b"b"])
TIMES = st.integers(0, 30).map(lambda time: b"%02d" % time)
POSTS = st.builds(lambda user, time: b"p|%s|%s" % (user, time), USERS, TIMES)
SUBSCRIPTIONS = st.builds(lambda user, poster: b"s|%s|%s" % (user, poster), USERS, USERS)
CHECKS = st.builds(lambda user, time: (b"t|%s|%s" % (user, time), b"t|%s}" % user), USERS, st.just(b"") | TIMES)
#: Client-written keys among the timelines, which no join computes, and what cannot be written at all.
STRAYS = st.sampled_from([b"t|a|x", b"t|b", b"t|a|05|b", b"c|a", b"loose", b"", b"x" * 30])
KEYS = POSTS | SUBSCRIPTIONS | STRAYS
RANGES = (
    CHECKS | st.tuples(KEYS, KEYS) | st.sampled_from([(b"", b""), (b"t|", b"t}"), (b"t|a", b"t|a}"), (b"p|", b"q")])
)


@st.composite
def requests(draw: st.DrawFn) -> ExecuteRequest:
    request = ExecuteRequest(batch=draw(st.integers(0, 9)))
    for kind in draw(
        st.lists(st.sampled_from([PUT, PUT, SCAN, SCAN, SCAN, GET, REMOVE, SCAN_LIMIT, SCAN_DOWN, COUNT]))
    ):
        request.kinds += bytes([kind])
        if kind in (SCAN, SCAN_LIMIT, SCAN_DOWN, COUNT):
            request.arguments.extend(draw(RANGES))
        else:
            request.arguments.append(draw(KEYS))
        if kind == PUT:
            request.arguments.append(draw(st.sampled_from([b"", b"1", b"value" * 3, b"long" * 20])))
        if kind in (SCAN_LIMIT, SCAN_DOWN):
            request.numbers.append(draw(st.integers(0, 4)))
    return request


def make_executor(reply_bytes_max: int, rows_max: int) -> Executor:
    engine = Engine(key_bytes_max=20, value_bytes_max=60)
    engine.add_joins(parse(JOINS))
    return Executor(engine, 7, commands_max=100, reply_bytes_max=reply_bytes_max, rows_max=rows_max, clock=lambda: 1.0)


def quick_pieces(executor: Executor, message: bytes) -> list[ExecuteReply]:
    quick = run_quick(executor, message)
    assert quick is not None
    if quick.reply is not None:
        assert quick.rest is None
        return [ExecuteReply.FromString(quick.reply)]
    assert quick.rest is not None
    _, steps, step = quick.rest
    pieces = []
    while True:
        if isinstance(step, ExecuteReply):
            pieces.append(step)
            if not step.more:
                return pieces
        else:
            assert isinstance(step, Room)
        step = steps.go_on()


CHECK = ExecuteRequest(kinds=bytes([SCAN]), arguments=[b"t|a|", b"t|a}"])
FILL = ExecuteRequest(kinds=bytes([PUT, PUT]), arguments=[b"s|a|b", b"", b"p|b|10", b"hi"])
STRAY = ExecuteRequest(kinds=bytes([SCAN, PUT, SCAN]), arguments=[*CHECK.arguments, b"t|a|x", b"!", *CHECK.arguments])


@given(st.lists(requests(), max_size=6), st.sampled_from([1, 20, 60, 200, 1 << 20]), st.sampled_from([1, 2, 5, 1000]))
@example([FILL, CHECK, CHECK, STRAY, CHECK], 1 << 20, 1000)
def test_a_batch_that_runs_natively_answers_as_one_in_python(
    batches: Sequence[ExecuteRequest], reply_bytes_max: int, rows_max: int
) -> None:
    native, python = (make_executor(reply_bytes_max, rows_max) for _ in range(2))
    for request in batches:
        assert quick_pieces(native, request.SerializeToString()) == python.execute(request)
        native.engine._check()
    assert native.engine.statistics().joins == python.engine.statistics().joins
    assert native.engine.base_rows() == python.engine.base_rows()


def test_what_sinks_look_at_is_that_of_the_batch() -> None:
    executor = make_executor(1 << 20, 1000)
    executor.execute(FILL)
    request = ExecuteRequest(kinds=bytes([SCAN, PUT]), arguments=[*CHECK.arguments, b"", b""])
    quick = run_quick(executor, request.SerializeToString())
    assert quick is not None
    assert (quick.kinds, list(quick.arguments), len(quick.keys)) == (request.kinds, [b"t|a|"], 1)
    assert [error.reason for error in quick.errors] == ["InvalidKeyError"]


def test_a_second_check_is_answered_without_python() -> None:
    executor = make_executor(1 << 20, 1000)
    executor.execute(FILL)
    executor.execute(CHECK)
    batch = hot.Batch.parse(CHECK.SerializeToString(), 1, 1000, 1 << 20)
    assert batch is not None
    assert not executor.engine.run_quick(batch, 1.0)
    assert executor.engine.statistics().joins["t"].hits == 1
