"""YCSB draws what it says, and every store that is installed ends with the records that a dictionary gives."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np
import pytest
from pequod_bench.paper.measure import trying
from pequod_bench.paper.ycsb_stores import CONTENDERS, Contender, YcsbStore, run_ycsb
from pequod_bench.systems.system import Missing, Server
from pequod_bench.workloads import ycsb
from pequod_bench.workloads.ycsb import INSERT, READ, READ_THEN_WRITE, SCAN, UPDATE, Mix, make_operations

from tests.installed import lacking

EVERYTHING = Mix("updates", "", (0.25, 0.25, 0.25, 0.25, 0))
WAITING = Mix("writes that wait for a read", "", (0.25, 0, 0.25, 0.25, 0.25))


@pytest.mark.usefixtures("forked_servers")
@pytest.mark.parametrize("mix", [EVERYTHING, WAITING], ids=lambda mix: mix.letter)
@pytest.mark.parametrize("contender", CONTENDERS, ids=lambda contender: contender.system.name)
def test_a_store_reads_and_keeps_the_records(contender: Contender, mix: Mix) -> None:
    presence = contender.system.find()
    if isinstance(presence, Missing):
        lacking(presence.reason)
    operations = make_operations(mix, record_count=300, operation_count=1_500, seed=4)
    records, row_count = ycsb.expected(operations)
    with trying() as trials:
        outcome = run_ycsb(contender, operations, trials)
    assert outcome.difference == ""
    assert outcome.final_rows == len(records) > 500
    assert outcome.rows == row_count


class _Forgetful:
    """A store that loses a record."""

    def __init__(self, store: YcsbStore) -> None:
        self.message = store.message
        self.clear = store.clear
        self._store = store

    async def whole(self) -> dict[bytes, bytes]:
        records = await self._store.whole()
        del records[ycsb.key(7)]
        return records


@pytest.mark.usefixtures("forked_servers")
def test_a_lost_record_is_found() -> None:
    operations = make_operations(EVERYTHING, record_count=50, operation_count=300, seed=4)

    @asynccontextmanager
    async def connected(server: Server) -> AsyncIterator[YcsbStore]:
        async with CONTENDERS[0].connected(server) as store:
            yield _Forgetful(store)

    with trying() as trials:
        outcome = run_ycsb(replace(CONTENDERS[0], connected=connected), operations, trials)
    assert outcome.difference.startswith(f"the record {ycsb.key(7)!r} must be b'")
    assert outcome.difference.endswith("and is None")


@pytest.mark.parametrize("mix", ycsb.MIXES, ids=lambda mix: mix.letter)
def test_a_workload_is_the_mixture_that_it_says(mix: Mix) -> None:
    operations = make_operations(mix, record_count=1_000, operation_count=20_000, seed=1)
    shares = np.bincount(operations.kinds, minlength=5) / 20_000
    assert shares == pytest.approx(mix.chances, abs=0.02)
    is_there = operations.record_count + np.cumsum(operations.kinds == INSERT)
    assert bool(np.all(operations.records >= 0))
    assert bool(np.all(operations.records < is_there)), "a record is there before it is read"
    inserted = operations.records[operations.kinds == INSERT]
    assert inserted.tolist() == list(range(1_000, 1_000 + len(inserted)))
    is_scan = operations.kinds == SCAN
    assert bool(np.all((operations.lengths > 0) == is_scan))


def test_some_records_are_popular_and_the_latest_are_in_d() -> None:
    zipfian = make_operations(ycsb.MIXES[2], record_count=1_000, operation_count=20_000, seed=1)
    counts = np.sort(np.bincount(zipfian.records, minlength=1_000))[::-1]
    assert counts[0] / 20_000 == pytest.approx(1 / sum(1 / np.arange(1, 1_001) ** 0.99), abs=0.01)
    latest = make_operations(ycsb.MIXES[3], record_count=1_000, operation_count=20_000, seed=1)
    newest = 1_000 + np.cumsum(latest.kinds == INSERT) - 1
    is_read = latest.kinds == READ
    assert np.median((newest - latest.records)[is_read]) < 50


def test_a_dictionary_says_what_must_be_there() -> None:
    kinds = np.array([UPDATE, INSERT, SCAN, READ_THEN_WRITE, READ], dtype=np.int8)
    operations = ycsb.Operations(2, kinds, np.array([0, 2, 0, 1, 1]), np.array([0, 0, 9, 0, 0]))
    records, row_count = ycsb.expected(operations)
    assert records == {ycsb.key(0): ycsb.value(0), ycsb.key(2): ycsb.value(1), ycsb.key(1): ycsb.value(3)}
    assert row_count == 3 + 1 + 1, "the scan starts at the least of three keys"
    assert len({ycsb.value(number) for number in range(-3, 3)}) == 6
    assert {len(value) for value in records.values()} == {ycsb.RECORD_BYTES}
