"""The standard workloads of go-ycsb, A to F, at a server: what is read is what was written; its check finds faults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from pequod.client import Client
from tests.forked import started_server
from tests.installed import lacking
from tests.ycsb.program import WORKLOADS, Ycsb, counts_of, loaded_of, why_absent

#: Where Go has built nothing yet, it builds gRPC first.
pytestmark = pytest.mark.timeout(1200)
_RECORDS: Final = 200
_OPERATIONS: Final = 200
#: The kinds of operations of each workload.
_KINDS: Final = {
    "a": {"READ", "UPDATE"},
    "b": {"READ", "UPDATE"},
    "c": {"READ"},
    "d": {"READ", "INSERT"},
    "e": {"SCAN", "INSERT"},
    "f": {"READ", "UPDATE", "READ_MODIFY_WRITE"},
}


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    with started_server() as (address, _):
        yield address


@pytest.fixture(scope="module")
def ycsb(target: str, tmp_path_factory: pytest.TempPathFactory) -> Ycsb:
    if reason := why_absent():
        lacking(reason)
    return Ycsb(tmp_path_factory.mktemp("ycsb"), target)


def _step(ycsb: Ycsb, step: str, workload: str, table: str = "") -> str:
    records = loaded_of(workload, _RECORDS, _OPERATIONS) if step == "load" else _RECORDS
    sizes = {"recordcount": records, "operationcount": _OPERATIONS, "fieldlength": 20}
    return ycsb.run(step, workload, **sizes, dataintegrity="true", table=table or f"{workload}table")


@pytest.mark.parametrize("workload", WORKLOADS)
def test_what_a_workload_reads_is_what_it_has_written(ycsb: Ycsb, workload: str) -> None:
    loaded = counts_of(_step(ycsb, "load", workload))["INSERT"]
    counts = counts_of(_step(ycsb, "run", workload))
    assert {kind for kind in counts if kind != "TOTAL"} == _KINDS[workload]
    found = max(loaded, _RECORDS + counts.get("INSERT", 0))
    assert _step(ycsb, "check", workload) == f"{found} records\n"


@pytest.mark.parametrize(
    ("workload", "is_lost", "said"),
    [("c", True, "lost: losttable"), ("c", False, "unexpected deterministic value"), ("e", True, "begins with")],
)
def test_a_value_that_was_lost_or_changed_is_found(
    ycsb: Ycsb, target: str, workload: str, is_lost: bool, said: str
) -> None:
    _step(ycsb, "load", workload, table="losttable")
    with Client(target) as client:
        for key, _ in client.scan(prefix="losttable|"):
            if is_lost:
                client.remove(key)
            else:
                client.put(key, b"x" * 20)
    with pytest.raises(AssertionError, match=said):
        _step(ycsb, "run", workload, table="losttable")
