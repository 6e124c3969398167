"""Batches that run natively: an engine for them, the pieces of their replies, and whether Python was called."""

from __future__ import annotations

import sys

from pequod_grammar import parse
from pequod_proto.pequod_pb2 import ExecuteReply, ExecuteRequest
from pequod_server.steps.executor import Executor
from pequod_server.steps.quick import run_quick
from pequod_server.steps.steps import Room

from pequod.commands.kinds import NUMBER_COUNTS
from pequod.engine import Engine
from pequod.language.containing import keys_of
from tests.native.core import hot

assert hot.INTERFACE

JOINS = """
t|<user>|<time:2>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>;
c|<poster> = count p|<poster>|<time:2>
"""


def make_executor(reply_bytes_max: int, rows_max: int, joins: str = JOINS, earlier: str = "") -> Executor:
    engine = Engine(key_bytes_max=20, value_bytes_max=60)
    engine.add_joins(parse(earlier))
    for join in engine.joins():
        engine.scan(*keys_of(join.spec.output))
        engine.drop_join(join.name)
    engine.add_joins(parse(joins))
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


def request_of(*commands: tuple[int | bytes, ...]) -> ExecuteRequest:
    """Return commands, each a kind, its arguments and its numbers, as one batch; numbers that are left out are 0."""
    request = ExecuteRequest(kinds=bytes([int(kind) for kind, *_ in commands]))
    for kind, *arguments in commands:
        request.arguments.extend(argument for argument in arguments if isinstance(argument, bytes))
        numbers = [argument for argument in arguments if isinstance(argument, int)]
        request.numbers.extend(numbers + [0] * (NUMBER_COUNTS[int(kind)] - len(numbers)))
    return request


def run_watched(executor: Executor, *commands: tuple[int | bytes, ...]) -> tuple[bool, set[str]]:
    """Run commands as one batch; return whether the core did all of them, and which functions of Python it called."""
    batch = hot.Batch.parse(request_of(*commands).SerializeToString(), 100, 1000, 1 << 20)
    assert batch is not None
    called = set[str]()
    sys.setprofile(lambda frame, event, _: called.add(frame.f_code.co_name) if event == "call" else None)
    try:
        is_left = batch.run(executor.engine, 1.0)
    finally:
        sys.setprofile(None)
    return not is_left, called


def runs_without_python(executor: Executor, *commands: tuple[int | bytes, ...]) -> bool:
    """Run commands as one batch; return whether all of them were quick."""
    is_whole, called = run_watched(executor, *commands)
    return is_whole and not called
