"""Batches over rows in many small leaves, beside the naive model: all kinds of commands, run natively.

Leaves are cut where rows come between others, so the rows here are written in no order.
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

import pytest
from pequod_grammar import parse
from pequod_proto.pequod_pb2 import ExecuteReply, ExecuteRequest
from pequod_server.steps.executor import Executor
from pequod_server.steps.quick import run_quick

from pequod.commands.kinds import COUNT, GET, PUT, REMOVE, SCAN, SCAN_DOWN, SCAN_LIMIT
from pequod.engine.base import rows
from pequod.engine.testing import NaiveModel, select
from tests.native.core import hot
from tests.native.quick import JOINS, make_executor, quick_pieces

assert hot.INTERFACE

#: Rows of a table that is not cut, of groups, and, through these, of timelines; each is more than 40 rows.
PREFIXES: Final = (b"k|", b"p|a|", b"p|b|")
#: No two of these find their rows in the same way: a whole range, the table's, that of a group, and a timeline's.
RANGES: Final = ((b"k|", b"k}"), (b"p|a|", b"p|a}"), (b"p|b|", b"p|b}"), (b"t|a|", b"t|a}"), (b"t|b|", b"t|b}"))
READS: Final = (GET, SCAN, SCAN_LIMIT, SCAN_DOWN, COUNT)

Command = tuple[int, list[bytes], int | None]


@pytest.fixture(params=[2, 4, 7], autouse=True)
def leaf_max(request: pytest.FixtureRequest) -> Iterator[int]:
    before = rows.set_leaf_max(request.param)
    yield request.param
    rows.set_leaf_max(before)


def run(executor: Executor, commands: Sequence[Command]) -> list[object]:
    """Run commands as one batch; return what each gives."""
    request = ExecuteRequest(kinds=bytes([kind for kind, _, _ in commands]))
    for _, arguments, number in commands:
        request.arguments.extend(arguments)
        request.numbers.extend([] if number is None else [number])
    (reply,) = quick_pieces(executor, request.SerializeToString())
    return list(answers(request.kinds, reply))


def answers(kinds: bytes, reply: ExecuteReply) -> Iterator[object]:
    keys, values, counts = iter(reply.keys), iter(reply.values), iter(reply.counts)
    for kind, status in zip(kinds, reply.statuses, strict=True):
        if kind in (PUT, REMOVE):
            yield not status
        elif kind == GET:
            yield None if status else next(values)
        elif kind == COUNT:
            yield next(counts)
        else:
            yield [(next(keys), next(values)) for _ in range(next(counts))]


def write_some(random: Random, executor: Executor, model: NaiveModel, count: int) -> None:
    """Write rows in any order, and some of them again; remove some."""
    commands: list[Command] = []
    for number in range(count):
        key = random.choice(PREFIXES) + b"%02d" % random.randrange(100)
        if random.random() < 0.25:
            model.remove(key)
            commands.append((REMOVE, [key], None))
        else:
            model.put(key, b"%d" % number)
            commands.append((PUT, [key, b"%d" % number], None))
    run(executor, commands)


def draw_read(random: Random, there: Sequence[bytes]) -> Command:
    """Draw a read of one range, the bounds of which are rows that are there more often than not."""
    kind, (first, last) = random.choice(READS), random.choice(RANGES)
    within = [key for key in there if first <= key < last]
    if kind == GET:
        anywhere = first + b"%02d" % random.randrange(100)
        return kind, [random.choice(within) if within and random.random() < 0.7 else anywhere], None
    if within and random.random() < 0.7:
        first = random.choice(within) + random.choice([b"", b"", b"\0"])
    if within and not first.startswith(b"t") and random.random() < 0.7:
        last = max(random.choice(within) + random.choice([b"", b"", b"\0"]), first)
    return kind, [first, last], random.choice([0, 1, 3, 5, 40, 41]) if kind in (SCAN_LIMIT, SCAN_DOWN) else None


def expected(shown: dict[bytes, bytes], command: Command) -> object:
    kind, arguments, number = command
    if kind == GET:
        return shown.get(arguments[0])
    found = select(shown, *arguments)
    if kind == COUNT:
        return len(found)
    return (found[::-1] if kind == SCAN_DOWN else found)[: number or None]


@pytest.mark.parametrize("seed", range(4))
def test_all_kinds_of_commands_give_what_the_model_does(seed: int) -> None:
    random, executor, model = Random(seed), make_executor(1 << 20, 1000), NaiveModel()
    for spec in parse(JOINS):
        model.add(spec)
    for key in (b"s|a|a", b"s|a|b", b"s|b|b"):
        model.put(key, b"")
        executor.engine.put(key, b"")
    # The timelines are there from now on, and get their rows one by one.
    for _ in range(2):
        run(executor, [(SCAN, [b"t|a|", b"t|a}"], None), (SCAN, [b"t|b|", b"t|b}"], None)])
    for _ in range(8):
        write_some(random, executor, model, 60)
        shown = dict(model.scan(b"", None))
        commands = [draw_read(random, [*shown]) for _ in range(80)]
        assert list(zip(commands, run(executor, commands), strict=True)) == [
            (command, expected(shown, command)) for command in commands
        ]
        executor.engine._check()
    table = executor.engine._store.tables[b"p"]
    assert all(len(list(group.leaves())) > 3 for _, group in table.groups.items())
    assert len(list(executor.engine._store.tables[b"k"].loose.leaves())) > 3


def test_scans_and_counts_over_many_leaves_are_native() -> None:
    executor = make_executor(1 << 20, 1000)
    numbers = [*range(100)]
    Random(0).shuffle(numbers)
    for number in numbers:
        executor.engine.put(b"k|%02d" % number, b"%d" % number)
    kinds, bounds = [SCAN, SCAN_LIMIT, SCAN_DOWN, COUNT], [b"k|03", b"k|97"]
    request = ExecuteRequest(kinds=bytes(kinds), arguments=bounds * len(kinds), numbers=[50, 50])
    quick = run_quick(executor, request.SerializeToString())
    assert quick is not None
    assert quick.rest is None
    there = [(b"k|%02d" % number, b"%d" % number) for number in range(3, 97)]
    reply = ExecuteReply.FromString(quick.reply or b"")
    assert list(answers(request.kinds, reply)) == [there, there[:50], there[:-51:-1], 94]


def test_a_scan_of_more_rows_than_a_reply_may_have_goes_on_in_pieces() -> None:
    executor = make_executor(1 << 20, 5)
    for number in range(12):
        executor.engine.put(b"k|%02d" % number, b"")
    for kind in (SCAN, SCAN_DOWN):
        numbers = [0] if kind == SCAN_DOWN else []
        request = ExecuteRequest(kinds=bytes([kind]), arguments=[b"k|", b"k}"], numbers=numbers)
        pieces = quick_pieces(executor, request.SerializeToString())
        keys = [b"k|%02d" % number for number in range(12)]
        assert [key for piece in pieces for key in piece.keys] == (keys[::-1] if kind == SCAN_DOWN else keys)
        assert max(len(piece.keys) for piece in pieces) == 5


def test_a_timeline_that_is_there_in_part_is_no_answer_to_a_scan_of_all() -> None:
    executor = make_executor(1 << 20, 1000)
    executor.engine.put(b"s|a|a", b"")
    for number in range(30):
        executor.engine.put(b"p|a|%02d" % number, b"")
    keys = [b"t|a|%02d|a" % number for number in range(30)]
    for since in (20, 20, 25, 10, 0, 20):
        (found,) = run(executor, [(SCAN, [b"t|a|%02d" % since, b"t|a}"], None)])
        assert found == [(key, b"") for key in keys[since:]]
    (found,) = run(executor, [(SCAN, [b"t|a|20|a", b"t|a}"], None)])
    assert found == [(key, b"") for key in keys[20:]]
