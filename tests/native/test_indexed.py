"""Puts of records that joins look at, in native batches: Python is not called, and all rows are as they should be."""

from __future__ import annotations

from random import Random

import pytest
from pequod_grammar import parse
from pequod_server.steps.executor import Executor

from pequod.commands.kinds import PUT, REMOVE
from pequod.engine import Engine, MissingError
from pequod.language.ranges import prefix_end
from tests.native.core import hot
from tests.native.quick import make_executor, run_watched

assert hot.INTERFACE

THIN = "i|<a>|<id> = copy s|<id> with a = <a> as {b}"
WHOLE = "w|<b>|<id> = copy s|<id> with b = <b>"


def tells_without_python(executor: Executor, *commands: tuple[int | bytes, ...]) -> bool:
    """Run commands as one batch; return whether the core tells all who wait for what they write.

    Python has the ranges of a context that has several, and the order of groups.
    """
    is_whole, called = run_watched(executor, *commands)
    return is_whole and "base_changed" not in called


def record(a: int, b: int) -> bytes:
    return b'{"a":"%b","b":%d}' % (b"%d" % a, b)


def rows(executor: Executor, table: bytes) -> list[tuple[bytes, bytes]]:
    return list(zip(*executor.engine.scan(table, prefix_end(table)), strict=True))


def check(executor: Executor) -> None:
    """Compare all rows with the records, and everything with itself."""
    keys, values = executor.engine.scan(b"s|", b"s}")
    parts = [
        (key[2:], value.split(b'"')[3], value[value.index(b'"b":') + 4 : -1])
        for key, value in zip(keys, values, strict=True)
    ]
    assert rows(executor, b"i|") == sorted((b"i|%b|%b" % (a, key), b'{"b":%b}' % b) for key, a, b in parts)
    whole = [(b"w|%b|%b" % (b, key), value) for (key, _, b), value in zip(parts, values, strict=True)]
    assert rows(executor, b"w|") == sorted(whole)
    executor.engine._check()


def made(joins: str, *, is_indexed: bool) -> Executor:
    """Return an executor whose joins are kept; the index is made by a read of one value."""
    executor = make_executor(1 << 20, 1000, joins=joins)
    for number in range(40):
        executor.engine.put(b"s|%02d" % number, record(number % 3, number))
    for table in (b"i|", b"w|"):
        if is_indexed:
            executor.engine.scan(table + b"1|", table + b"1}")
        executor.engine.scan(table, prefix_end(table))
    return executor


@pytest.mark.parametrize("is_indexed", [True, False])
def test_puts_and_removes_of_records_are_quick(is_indexed: bool) -> None:
    executor = made(f"{THIN};{WHOLE}", is_indexed=is_indexed)
    random = Random(3)
    for _ in range(60):
        key = b"s|%02d" % random.randrange(60)
        command = (
            (REMOVE, key) if random.random() < 0.2 else (PUT, key, record(random.randrange(4), random.randrange(5)))
        )
        assert tells_without_python(executor, command)
        check(executor)
    assert tells_without_python(executor, (PUT, b"s|99", record(1, 1)), (PUT, b"s|99", record(2, 1)))
    assert tells_without_python(executor, (PUT, b"s|99", record(2, 1)), (PUT, b"s|99", record(2, 3)), (REMOVE, b"s|99"))
    check(executor)


@pytest.mark.parametrize("is_indexed", [True, False])
def test_what_is_not_usual_is_left_to_python(is_indexed: bool) -> None:
    executor = made(THIN, is_indexed=is_indexed)
    unusual = {
        b'{"a":"\\u0031","b":7}': [(b"i|1|07", b'{"b":7}')],
        b'{"a":1}': [(b"i|1|07", b"{}")],
        b"no record": [],
        b'{"a":"1","b":"x"': [],
        b'{"a":"1","b":"x","a":"2"}': [(b"i|2|07", b'{"b":"x"}')],
        b"{}": [],
    }
    for value, wanted in unusual.items():
        # The record is unusual afterwards, and then before.
        for written, seen in ((value, wanted), (record(0, 7), [(b"i|0|07", b'{"b":7}')])):
            executor.engine.put(b"s|07", written)
            assert [row for row in rows(executor, b"i|") if row[0].endswith(b"|07")] == seen
            executor.engine._check()


def test_an_index_that_is_being_made_has_what_is_written_meanwhile() -> None:
    engine = Engine(at_once=False)
    engine.add_joins(parse(THIN))
    for number in range(600):
        engine.put(b"s|%03d" % number, record(number % 3, number))
    with pytest.raises(MissingError) as missing:
        engine.scan(b"i|1|", b"i|1}")
    (lacking,) = missing.value.indexes
    assert engine.index_some(lacking)
    for key in (b"s|001", b"s|599"):
        engine.put(key, record(0, 7))
    while engine.index_some(lacking):
        pass
    assert len(engine.scan(b"i|1|", b"i|1}")[0]) == 199
    engine._check()


def test_a_count_over_an_index_is_told_natively() -> None:
    executor = made(f"{THIN};n|<a> = count i|<a>|<id>;m|<a> = copy n|<a>", is_indexed=True)
    for table in (b"n|", b"m|"):
        executor.engine.scan(table, prefix_end(table))
    assert tells_without_python(executor, (PUT, b"s|99", record(1, 1)), (PUT, b"s|99", record(2, 5)), (REMOVE, b"s|98"))
    assert tells_without_python(executor, (PUT, b"s|01", record(0, 1)), (REMOVE, b"s|00"))
    counted = [(b"m|0", b"14"), (b"m|1", b"12"), (b"m|2", b"14")]
    assert rows(executor, b"m|") == counted
    assert rows(executor, b"n|") == [(b"n" + key[1:], value) for key, value in counted]
    # A group that begins is Python's, and so is what watches follow too.
    assert not tells_without_python(executor, (PUT, b"s|99", record(7, 1)))
    executor.engine.watch(b"n|", b"n}", lambda: None)
    executor.engine.put(b"s|99", record(0, 1))
    executor.engine.put(b"s|98", record(0, 1))
    assert rows(executor, b"m|") == [(b"m|0", b"16"), (b"m|1", b"12"), (b"m|2", b"13")]
    executor.engine._check()


def test_records_that_nobody_reads_are_not_looked_at() -> None:
    executor = make_executor(1 << 20, 1000, joins=THIN)
    assert tells_without_python(executor, (PUT, b"s|1", b"no record"), (PUT, b"s|1", b'{"a":"\\u0031","b":1}'))
    assert rows(executor, b"i|") == [(b"i|1|1", b'{"b":1}')]
