"""What is left of a batch with request ids after a load runs natively, and each of its writes is done once."""

from __future__ import annotations

from contextlib import ExitStack
from random import Random
from unittest.mock import patch

import pytest
from pequod_proto.pequod_pb2 import ExecuteReply, ExecuteRequest
from pequod_server.once.memory import RequestIds
from pequod_server.once.outcomes import id_at
from pequod_server.steps import native
from pequod_server.steps.executor import Executor
from pequod_server.steps.quick import run_quick
from pequod_server.steps.steps import Room

from pequod.commands.kinds import ADD, COUNT, DECIDED, GET, PUT, PUT_IF, REMOVE_IF, SCAN
from pequod.engine import Engine, MissingError
from pequod.language.conditions import IF_ABSENT, IF_PRESENT, Condition, coded, if_value
from pequod.native import NativeBatch
from tests.native.core import hot
from tests.native.test_rest import DATABASE, backed

assert hot.INTERFACE

BATCH, COUNTERS = b"the batch id", [b"n|1", b"n|2", b"n|3"]
Command = tuple[int, list[bytes], list[int]]


def a_command(random: Random) -> Command:
    key, poster = random.choice(COUNTERS), b"%02d" % random.randrange(12)
    conditions: list[Condition] = [IF_ABSENT, IF_PRESENT, if_value(b"1")]
    number, expected = coded(random.choice(conditions))
    match random.randrange(9):
        case 0:
            return GET, [b"p|%s|05" % poster], []
        case 1:
            return SCAN, [b"t|%s|" % (user := random.choice([b"a", b"b"])), b"t|%s}" % user], []
        case 2:
            return COUNT, [b"p|%s|" % poster, b"p|%s}" % poster], []
        case 3:
            return PUT, [key, random.choice([b"1", b"x"])], []
        case 4:
            return PUT_IF, [key, random.choice([b"1", b"v" * 50]), expected], [number, 0]
        case 5:
            return REMOVE_IF, [key, expected], [number]
        case _:
            # The last two are Python's to add.
            return ADD, [key, random.choice([b"1", b"-3", b"0.5", b"12345678901234567890"])], []


def request_of(commands: list[Command], positions: list[int], *, has_positions: bool) -> ExecuteRequest:
    some = [commands[at] for at in positions]
    request = ExecuteRequest(kinds=bytes(kind for kind, *_ in some), batch_id=BATCH)
    for _, arguments, numbers in some:
        request.arguments.extend(arguments)
        request.numbers.extend(numbers)
    if has_positions:
        request.batch_positions.extend(positions)
    return request


def answer(executor: Executor, request: ExecuteRequest, again: list[ExecuteRequest | None]) -> list[ExecuteReply]:
    """Run a batch; while it waits for a load, what the list has comes, such as the same batch again."""
    engine, pieces = executor.engine, list[ExecuteReply]()
    quick = run_quick(executor, request.SerializeToString())
    if quick is not None and quick.reply is not None:
        return [ExecuteReply.FromString(quick.reply)]
    if quick is None:
        steps = executor.steps(request)
        step = steps.start()
    else:
        assert quick.rest is not None
        _, steps, step = quick.rest
    while not isinstance(step, ExecuteReply) or step.more:
        if isinstance(step, MissingError):
            if (other := again.pop(0) if again else None) is not None:
                pieces += answer(executor, other, again)
            for one in step.ranges:
                engine.load(*one, [row for row in DATABASE.items() if one.first <= row[0] < (one.last or b"\xff")])
        elif isinstance(step, ExecuteReply):
            pieces.append(step)
        else:
            assert isinstance(step, Room)
        executor.ids._check()
        step = steps.go_on()
    executor.ids._check()
    return [*pieces, step]


def executor_of(reply_bytes_max: int) -> Executor:
    plain = backed(reply_bytes_max, 100)
    for key in COUNTERS:
        plain.engine.put(key, b"5")
    return Executor(
        plain.engine,
        7,
        commands_max=1000,
        reply_bytes_max=reply_bytes_max,
        rows_max=100,
        ids=RequestIds(clock=lambda: 1.0),
    )


@pytest.mark.parametrize("seed", range(300))
def test_what_is_left_is_answered_and_remembered_as_in_python(seed: int) -> None:
    found = []
    for is_native in (True, False):
        random, ran = Random(seed), list[int]()
        commands = [a_command(random) for _ in range(random.randrange(2, 30))]
        everything = list(range(len(commands)))
        requests = list[ExecuteRequest | None]()
        for _ in range(8):
            some = everything if random.random() < 0.6 else [at for at in everything if random.random() < 0.6]
            request = request_of(commands, some, has_positions=some != everything or random.random() < 0.3)
            requests.append(request if some and random.random() < 0.5 else None)
        whole = request_of(commands, everything, has_positions=random.random() < 0.3)
        executor = executor_of(random.choice([1, 40, 1 << 20]))
        run = native.run_batch

        def counted(engine: Engine, batch: NativeBatch, *rest: object) -> native.Stop | None:
            ran.append(len(batch.kinds))  # noqa: B023 - it is called in this round alone
            return run(engine, batch, *rest)  # type: ignore[arg-type]  # noqa: B023

        with ExitStack() as stack:
            stack.enter_context(patch.object(native, "FEW", 1))
            stack.enter_context(patch.object(native, "run_batch", counted))
            if not is_native:
                stack.enter_context(patch.object(native, "parse_batch", lambda *_: None))
                stack.enter_context(patch("pequod_server.steps.quick.parse_batch", lambda *_: None))
            pieces = [answer(executor, whole, requests), answer(executor, whole, [])]
        executor.engine._check()
        ids = {at: executor.ids.known(id_at(BATCH, at)) for at in everything}
        found.append((pieces, executor.engine.base_rows(), ids))
        assert is_native or not ran
        done = {at for at, outcome in ids.items() if outcome is not None}
        assert done <= {at for at in everything if commands[at][0] in DECIDED}
    assert found[0] == found[1]


def test_the_rest_of_a_batch_of_adds_runs_in_one_native_piece_and_is_one_part() -> None:
    executor, ran = executor_of(1 << 20), list[bytes]()
    commands: list[Command] = [(ADD, [b"n|1", b"1"], [])] * 10
    commands += [(GET, [b"p|03|05"], []), *commands, *commands]
    request, run = request_of(commands, [*range(31)], has_positions=False), native.run_batch

    def counted(engine: Engine, batch: NativeBatch, *rest: object) -> native.Stop | None:
        ran.append(batch.kinds)
        return run(engine, batch, *rest)  # type: ignore[arg-type]

    with patch.object(native, "run_batch", counted):
        (reply,) = answer(executor, request, [])
    assert ran == [request.kinds[10:]], "what is before the wait is not Python's to begin"
    assert reply.values == [*(b"%d" % number for number in range(6, 16)), b"v" * 5, *(b"%d" % n for n in range(16, 36))]
    assert executor.ids.figures.id_count == 30
    (again,) = answer(executor, request, [])
    assert (again.values, executor.engine.base_rows().values[0]) == (reply.values, b"35")
    assert executor.ids.figures.repeated == 30
