"""Two servers beside one database: sessions see their own writes, whatever goes wrong; `make freshness` tries more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.freshness.places import Place, beside_postgres, beside_sqlite
from tests.freshness.tries import Report, Run

TRIES = 100
SESSIONS = 8
#: The mean time between two faults, and how many there are at least.
FAULT_S = 0.5
FAULTS = 3
#: Runs without tokens, of which one has to miss a write.
RUNS_MAX = 5
#: A machine that is busy tries less often.
SECONDS = 40.0


@asynccontextmanager
async def beside(store: str, folder: Path, request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    if store == "sqlite":
        async with beside_sqlite(folder) as place:
            yield place
    else:
        postgres = request.getfixturevalue("postgres")
        async with beside_postgres(folder, postgres, "slot" if store == "slot" else "notify") as place:
            yield place


@pytest.mark.parametrize("store", ["sqlite", "slot", "notify"])
async def test_a_session_sees_its_own_writes_at_the_other_server(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with beside(store, tmp_path, request) as place:
        run = Run(place, seed=5, sessions=SESSIONS, fault_s=FAULT_S)
        report = await run.carry_out(TRIES, faults=FAULTS, seconds=SECONDS)
    assert not report.wrongs, report
    assert report.tries
    assert report.misses == 0
    assert report.faults, report


@pytest.mark.parametrize("store", ["sqlite", "slot"])
async def test_the_same_run_without_tokens_misses_writes(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    reports = list[Report]()
    async with beside(store, tmp_path, request) as place:
        # A feed that happens to be quick shows all writes of one run.
        while len(reports) < RUNS_MAX and not any(report.misses for report in reports):
            run = Run(place, seed=5 + len(reports), sessions=SESSIONS, has_tokens=False, fault_s=0)
            reports.append(await run.carry_out(TRIES))
    assert any(report.misses for report in reports), reports
