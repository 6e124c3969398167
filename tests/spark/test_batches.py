"""Batches of a stream as the driver plans them: what they hold, their limits, and what is made again of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any

import pytest
from pequod_spark.connection import Connection
from pyspark.sql.types import StringType, StructField, StructType
from pyspark_pequod.batches import Batches
from pyspark_pequod.columns import RowColumns
from pyspark_pequod.limits import Budget
from pyspark_pequod.options import key_pattern
from pyspark_pequod.places import CheckpointError, Offset
from pyspark_pequod.simple_stream import SimpleStreamReader
from pyspark_pequod.told import changes_told, cut, packed, unpacked

from pequod.answers.changes import Change
from pequod.client import Client
from pequod.errors import WatchCompactedError
from tests.spark.served import served, served_timeline

RANGES = ((b"t|ann|", b"t|ann}"),)
#: key, value, old
Told = tuple[bytes, bytes | None, bytes | None]


@pytest.fixture
def target() -> Iterator[str]:
    with served_timeline() as target:
        yield target


@contextmanager
def planning(
    target: str, *ranges: tuple[bytes, bytes | None], starts_anew: bool = False, ends: bool = False
) -> Iterator[Batches]:
    batches = Batches(Connection(target), ranges or RANGES, starts_anew=starts_anew)
    try:
        if ends:
            batches.end_with_now()
        yield batches
    finally:
        batches.stop()


def rows_of(table: Any) -> list[Told]:
    return [(row["key"], row["value"], row["old"]) for row in table.to_pylist()]


def told(batches: Batches, start: Offset, rows_max: int | None = None) -> tuple[list[Told], Offset]:
    """Return what is told next, as soon as something is."""
    while (end := batches.plan(start, Budget(rows_max))) == start:
        pass
    rows = rows_of(batches.between(start, end))
    batches.commit(start)
    return rows, end


ONE = (b"t|ann|0001|bob", b"one", None)


def test_the_rows_come_first_and_then_each_change(target: str) -> None:
    with Client(target) as client, planning(target) as batches:
        rows, first = told(batches, {})
        assert rows == [ONE]
        assert batches.plan(first, Budget()) == first
        client.put("p|bob|0001", "won")
        rows, second = told(batches, first)
        assert rows == [(b"t|ann|0001|bob", b"won", b"one")]
        client.remove("p|bob|0001")
        assert told(batches, second)[0] == [(b"t|ann|0001|bob", None, b"won")]


def test_a_query_goes_on_where_it_was_and_makes_its_last_batch_again(target: str) -> None:
    with Client(target) as client:
        with planning(target) as batches:
            _, start = told(batches, {})
            client.put("p|bob|0002", "two")
            rows, end = told(batches, start)
        client.put("p|bob|0003", "three")
        with planning(target) as batches:
            assert rows_of(batches.between(start, end)) == rows
            assert told(batches, end)[0] == [(b"t|ann|0003|bob", b"three", None)]


def test_the_first_batch_is_made_again_as_it_was(target: str) -> None:
    """What was changed, put and removed since then is undone, and told by the next batch."""
    with Client(target) as client:
        client.multi_put({f"p|bob|{number:04d}": "old" for number in range(2, 9)})
        with planning(target) as batches:
            first, middle = told(batches, {}, 3)
            second, end = told(batches, middle, 3)
        client.put("p|bob|0005", "new")
        client.remove("p|bob|0006")
        client.put("p|bob|0007", "passing")
        client.remove("p|bob|0007")
        client.put("p|bob|0099", "late")
        with planning(target) as batches:
            assert rows_of(batches.between({}, middle)) == first
            assert rows_of(batches.between(middle, end)) == second
            rest, end = told(batches, end, 100)
            assert [(key[-8:-4], value) for key, value, _ in rest] == [(b"0007", b"old"), (b"0008", b"old")]
            changes = list[Told]()
            while len(changes) < 5:
                found, end = told(batches, end, 2)
                assert len(found) <= 2
                changes += found
            assert [(key[-8:-4], value, old) for key, value, old in changes] == [
                (b"0005", b"new", b"old"),
                (b"0006", None, b"old"),
                (b"0007", b"passing", b"old"),
                (b"0007", None, b"passing"),
                (b"0099", b"late", None),
            ]


def test_what_is_not_kept_any_more_is_an_error_or_a_new_beginning(target: str) -> None:
    with planning(target) as batches:
        _, start = told(batches, {})
    gone = {**start, "0": {**start["0"], "server_id": start["0"]["server_id"] ^ 1}}
    with planning(target) as batches, pytest.raises(WatchCompactedError, match="started anew"):
        batches.plan(gone, Budget())
    with planning(target) as batches, pytest.raises(WatchCompactedError, match="a moment that is gone"):
        batches.between({}, gone)
    with planning(target, starts_anew=True) as batches:
        assert not len(batches.between({}, gone))
        rows, end = told(batches, gone)
        assert (rows, end["0"]["begun"]) == ([ONE], 2)
    with planning(target, starts_anew=True) as batches:
        assert rows_of(batches.between(gone, end)) == [ONE]


def test_a_reader_of_one_task_gives_the_same_as_tuples(target: str) -> None:
    """That of PySpark 4.1, which reads a copy of each batch, and another one if it has to."""
    schema = StructType([StructField("time", StringType()), StructField("value", StringType())])
    columns = RowColumns(schema, key_pattern({"pattern": "t|ann|<time:4>|<poster>"}), more=("old", "revision"))
    with Client(target) as client:
        client.put("p|bob|0002", "two")
        with planning(target) as batches:
            reader = SimpleStreamReader(batches, columns, 1, 1000)
            found, first = reader.read(reader.initialOffset())
            assert list(found) == [("0001", "one")]
            found, second = reader.read(first)
            assert [list(copy(found)) for _ in range(2)] == [[("0002", "two")]] * 2
            reader.commit(first)
            assert list(copy(found)) == [("0002", "two")]
            assert reader.read(second)[1] == second
        with planning(target) as batches:
            again = SimpleStreamReader(batches, columns, 1, 1000)
            assert list(again.readBetweenOffsets(first, second)) == [("0002", "two")]


def test_an_offset_of_an_earlier_version_goes_on_and_one_of_other_ranges_is_refused(target: str) -> None:
    with planning(target) as batches:
        _, end = told(batches, {})
    with Client(target) as client, planning(target) as batches:
        client.put("p|bob|0002", "two")
        assert told(batches, end["0"])[0] == [(b"t|ann|0002|bob", b"two", None)]
    with planning(target, (b"t|", None)) as batches, pytest.raises(CheckpointError, match="read other ranges"):
        batches.plan(end, Budget())


def test_a_query_that_ends_with_now_gives_nothing_later(target: str) -> None:
    with Client(target) as client:
        with planning(target) as batches:
            _, start = told(batches, {})
        for number in range(2, 7):
            client.put(f"p|bob|{number:04d}", "before")
        with planning(target, ends=True) as batches:
            client.multi_put({f"p|bob|{number:04d}": "after" for number in range(7, 12)})
            found = list[Told]()
            while (end := batches.plan(start, Budget(2))) != start:
                rows = rows_of(batches.between(start, end))
                assert len(rows) <= 2
                found, start = found + rows, end
            assert [(key[-8:-4], value) for key, value, _ in found] == [
                (b"%04d" % number, b"before") for number in range(2, 7)
            ]


@pytest.mark.parametrize("seed", range(3))
def test_whatever_the_limits_and_restarts_each_key_s_changes_come_once_and_in_order(seed: int) -> None:
    """A copy that applies what it is told finds the old value of each change, and ends as the server is."""
    rng = random.Random(seed)
    ranges = ((b"a|", b"a}"), (b"b|", b"b|m"), (b"c|", b"c}"))
    with served() as target, Client(target) as client:
        client.multi_put({f"{table}|{number:02d}": "0" for table in "ab" for number in range(20)})
        copy: dict[bytes, bytes] = {}
        offsets: list[tuple[Offset, Offset, list[Told]]] = []
        at: Offset = {}
        for _ in range(12):
            with planning(target, *ranges, ends=True) as batches:
                if offsets:
                    start, end, rows = offsets[-1]
                    assert rows_of(batches.between(start, end)) == rows
                for _ in range(rng.choice((0, 2, 9))):
                    end = batches.plan(at, Budget(rng.choice((1, 3, 7, None)), rng.choice((40, 10_000))))
                    if end == at:
                        break
                    rows = rows_of(batches.between(at, end))
                    offsets.append((at, end, rows))
                    at = end
                    for key, value, old in rows:
                        assert copy.get(key) == old
                        copy.pop(key, None)
                        if value is not None:
                            copy[key] = value
            for _ in range(rng.choice((1, 4))):
                keys = [f"{rng.choice('abc')}|{rng.randrange(25):02d}" for _ in range(rng.choice((1, 6)))]
                if rng.random() < 0.3:
                    client.remove(keys[0])
                else:
                    client.multi_put({key: str(rng.randrange(1000)) for key in keys})
        with planning(target, *ranges, ends=True) as batches:
            while (end := batches.plan(at, Budget(5))) != at:
                for key, value, old in rows_of(batches.between(at, end)):
                    assert copy.get(key) == old
                    copy.pop(key, None)
                    if value is not None:
                        copy[key] = value
                at = end
        assert sorted(copy.items()) == [row for first, last in ranges for row in client.scan(first, last)]


def test_a_batch_is_cut_by_keys_and_the_rows_of_a_key_stay_together_and_in_order() -> None:
    rng = random.Random(5)
    changes = [Change(b"k%02d" % rng.randrange(30), None, b"%04d" % number) for number in range(2000)]
    table = changes_told([(7, changes[:1500]), (9, changes[1500:])])
    for count in (1, 2, 7, 100):
        parts = list(cut(table, count))
        assert len(parts) == min(count, 30)
        keys = [set(part["key"].to_pylist()) for part in parts]
        assert sum(map(len, keys)) == len(set().union(*keys)) == 30
        for part in parts:
            assert part["value"].to_pylist() == sorted(part["value"].to_pylist())
            columns = [row for each in unpacked(packed(part)) for row in each["value"].to_pylist()]
            assert columns == part["value"].to_pylist()
    assert len(list(cut(table, None))) == 1
    assert list(cut(table.slice(0, 0), 4)) == []
