"""Batches with an id of their own come again, as a whole or in parts, and each of their commands is done once."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from pequod_proto import pequod_pb2 as pb
from pequod_server.once.memory import RequestIds
from pequod_server.once.outcomes import id_at
from pequod_server.steps.executor import Executor
from pequod_server.steps.quick import run_quick

from pequod.calls import Result
from pequod.client.columns import Columns, decode
from pequod.commands.kinds import ADD, ARGUMENT_COUNTS, DECIDED, GET, NUMBER_COUNTS, PUT, PUT_IF, REMOVE_IF
from pequod.engine import Engine, PequodError
from pequod.engine.answer import answer
from pequod.errors import BadRequestError
from pequod.language.conditions import IF_ABSENT, IF_PRESENT, Condition, coded, if_value
from pequod.native import core

BATCH = bytes(range(12))
KEYS = [b"n|1", b"n|2", b"n|3", b"m|1"]
#: Kind, arguments and numbers of a command.
Command = tuple[int, list[bytes], list[int]]


def executor_of(engine: Engine, ids: RequestIds) -> Executor:
    return Executor(engine, 1, commands_max=100, reply_bytes_max=1 << 20, rows_max=100, ids=ids)


def a_command(random: Random) -> Command:
    key = random.choice(KEYS)
    conditions: list[Condition] = [IF_ABSENT, IF_PRESENT, if_value(b"1"), if_value(b"x")]
    number, expected = coded(random.choice(conditions))
    match random.randrange(8):
        case 0:
            return PUT, [key, random.choice([b"1", b"x"])], []
        case 1:
            return GET, [key], []
        case 2:
            return PUT_IF, [key, random.choice([b"1", b"7", b"x"]), expected], [number, 0]
        case 3:
            return REMOVE_IF, [key, expected], [number]
        case _:
            # The last two are Python's to add.
            return ADD, [key, random.choice([b"1", b"-3", b"0.5", b"12345678901234567890"])], []


def a_batch(commands: list[Command], positions: list[int]) -> pb.ExecuteRequest:
    some = [commands[at] for at in positions]
    return pb.ExecuteRequest(
        kinds=bytes(kind for kind, _, _ in some),
        arguments=[argument for _, its, _ in some for argument in its],
        numbers=[number for _, _, its in some for number in its],
        batch_id=BATCH,
        batch_positions=[] if positions == list(range(len(commands))) else positions,
    )


def one_by_one(request: pb.ExecuteRequest) -> pb.ExecuteRequest:
    """Return a batch with the same ids as clients sent them before there were ids of batches."""
    positions = request.batch_positions or range(len(request.kinds))
    at = [place for place, kind in enumerate(request.kinds) if kind in DECIDED]
    plain = pb.ExecuteRequest()
    plain.CopyFrom(request)
    plain.ClearField("batch_id")
    plain.ClearField("batch_positions")
    plain.once_commands.extend(at)
    plain.request_ids.extend(id_at(BATCH, positions[place]) for place in at)
    return plain


def sent(executor: Executor, request: pb.ExecuteRequest, *, natively: bool) -> list[Result]:
    quick = run_quick(executor, request.SerializeToString()) if natively else None
    if quick is None:
        (reply,) = executor.execute(request)
    else:
        assert quick.reply is not None
        reply = pb.ExecuteReply.FromString(quick.reply)
    executor.ids._check()
    return decode(request.kinds, reply)


def comparable(result: object) -> object:
    return (type(result), str(result)) if isinstance(result, PequodError) else result


class Judge:
    """What each command has to give: a plain engine, on which those that were done are not run again."""

    def __init__(self) -> None:
        self.engine = Engine()
        self._done: dict[int, object] = {}

    def run(self, commands: list[Command], positions: list[int]) -> list[object]:
        found = []
        for at in positions:
            kind, arguments, numbers = commands[at]
            if at not in self._done:
                outcome = self._answer(kind, *arguments, number=numbers[0] if numbers else 0)
                if kind not in DECIDED or isinstance(outcome, PequodError):
                    found.append(outcome)
                    continue
                self._done[at] = outcome
            found.append(self._done[at])
        return found

    def _answer(self, kind: int, key: bytes, second: bytes = b"", third: bytes = b"", *, number: int) -> object:
        try:
            outcome: object = answer(self.engine, kind, key, second, number, 0.0, third)
        except PequodError as error:
            return error
        return outcome


@pytest.mark.parametrize("seed", range(200))
def test_a_batch_that_comes_again_in_any_way_is_done_once(seed: int) -> None:
    random = Random(seed)
    commands = [a_command(random) for _ in range(random.randrange(1, 14))]
    everything = list(range(len(commands)))
    judge, engine, saved = Judge(), Engine(), dict[bytes, bytes | None]()
    ids = RequestIds()
    ids.begin([])
    for key in KEYS:
        for one in (judge.engine, engine):
            one.put(key, b"5")
    executor = executor_of(engine, ids)
    for _ in range(6):
        positions = everything if random.random() < 0.5 else [at for at in everything if random.random() < 0.6]
        request = a_batch(commands, positions)
        if random.random() < 0.2:
            request = one_by_one(request)
        found = sent(executor, request, natively=random.random() < 0.6)
        expected = judge.run(commands, positions)
        assert list(map(comparable, found)) == list(map(comparable, expected)), (commands, positions)
        saved |= ids.unsaved
        ids.unsaved.clear()
        if random.random() < 0.3:
            # The server is killed, and starts again.
            ids = RequestIds()
            ids.begin((part_id, part) for part_id, part in saved.items() if part is not None)
            executor = executor_of(engine, ids)
        assert {key: engine.get(key) for key in KEYS} == {key: judge.engine.get(key) for key in KEYS}


@pytest.mark.skipif(core is None, reason="there is no twin in Python")
@pytest.mark.parametrize("seed", range(50))
def test_the_core_and_python_remember_the_same_bytes(seed: int) -> None:
    random = Random(seed)
    commands = [a_command(random) for _ in range(20)]
    request, found = a_batch(commands, list(range(20))), []
    for natively in (True, False):
        ids = RequestIds(clock=lambda: 1.0)
        ids.begin([])
        sent(executor_of(Engine(), ids), request, natively=natively)
        found.append(ids.unsaved)
    assert found[0] == found[1]
    assert len(found[0]) == 1, "what one turn has done is one part"


@pytest.mark.skipif(core is None, reason="there is no twin in Python")
def test_a_batch_of_adds_with_an_id_is_the_core_s_and_a_repetition_is_not() -> None:
    executor = executor_of(Engine(), RequestIds())
    request = a_batch([(ADD, [b"n|1", b"1"], [])] * 3, [0, 1, 2])
    executor.engine.put(b"n|1", b"0")
    first = run_quick(executor, request.SerializeToString())
    assert first is not None
    assert run_quick(executor, request.SerializeToString()) is None
    assert executor.ids.figures.id_count == 3
    assert executor.ids.figures.repeated == 0
    assert sent(executor, request, natively=True) == [b"1", b"2", b"3"]
    assert executor.ids.figures.repeated == 3


@pytest.mark.skipif(core is None, reason="there is no twin in Python")
@pytest.mark.parametrize("kind", [ADD, PUT_IF, REMOVE_IF])
def test_another_write_with_the_same_id_is_refused(kind: int) -> None:
    for natively in (True, False):
        executor = executor_of(Engine(), RequestIds())
        arguments, numbers = [b"n|1", b"1", b"1"][: ARGUMENT_COUNTS[kind]], [1] * NUMBER_COUNTS[kind]
        if kind == PUT_IF:
            numbers[1] = 0
        sent(executor, a_batch([(kind, arguments, numbers)], [0]), natively=natively)
        other = a_batch([(kind, [b"n|2", *arguments[1:]], numbers)], [0])
        (refused,) = sent(executor, other, natively=natively)
        assert isinstance(refused, BadRequestError)
        assert "another write" in str(refused)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"batch_id": b"short"}, "has 12 bytes, and this one has 5"),
        ({"batch_id": b"", "batch_positions": [0, 1]}, "has 12 bytes, and this one has 0"),
        ({"batch_positions": [0]}, "each command needs a position: 2 have 1"),
        ({"batch_positions": [3, 3]}, "do not ascend"),
        ({"once_commands": [0], "request_ids": [bytes(16)]}, "not both"),
    ],
)
def test_wrong_ids_of_batches_are_refused_and_nothing_is_done(wrong: dict[str, Any], text: str) -> None:
    engine = Engine()
    engine.put(b"n|1", b"0")
    executor = executor_of(engine, RequestIds())
    fields: dict[str, Any] = {"batch_id": BATCH, **wrong}
    request = pb.ExecuteRequest(kinds=bytes([ADD, ADD]), arguments=[b"n|1", b"1"] * 2, **fields)
    assert run_quick(executor, request.SerializeToString()) is None
    with pytest.raises(BadRequestError, match=text):
        executor.execute(request)
    assert engine.get(b"n|1") == b"0"


def test_parts_of_a_batch_of_a_client_have_the_positions_of_the_batch() -> None:
    columns = Columns()
    columns.add("n|1", 1)
    columns.put("p", "1")
    columns.get("p")
    columns.put("p", "2", condition=IF_ABSENT)
    assert not columns.is_harmless_twice()
    columns.protect()
    batch_id = columns.batch_id
    assert len(batch_id) == 12
    columns.protect()
    assert columns.batch_id == batch_id, "a batch has one id"
    assert not columns.is_harmless_twice(), "its put has none"
    rest, at = columns.harmless_twice()
    assert (at, rest.batch_id, rest.batch_positions) == ([0, 2, 3], batch_id, [0, 2, 3])
    assert rest.is_harmless_twice()
    less = rest.picked([0, 2])
    assert (less.batch_id, less.batch_positions) == (batch_id, [0, 3])
    reads, _ = rest.reads()
    assert (reads.batch_id, reads.batch_positions, reads.other_fields()) == (b"", [], b"")
    for one in (columns, rest, less):
        fields = pb.ExecuteRequest.FromString(one.other_fields())
        assert (fields.batch_id, list(fields.batch_positions)) == (batch_id, one.batch_positions)
