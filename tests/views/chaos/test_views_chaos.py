"""Some runs of `make views-chaos`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.backing.conftest import Postgres, clear
from tests.views.chaos.behind import PostgresBehind, SqliteBehind
from tests.views.chaos.run import Report, Run, Stage
from tests.views.sites import Site, SqliteSite


async def test_tables_are_equal_to_scans_after_kills(site: Site, tmp_path: Path) -> None:
    await _carry_out(Stage(site, tmp_path), (7, 9))


async def test_tables_outlive_a_server_that_has_a_database_behind_it(sqlite_site: SqliteSite, tmp_path: Path) -> None:
    behind = SqliteBehind(tmp_path / "base.db")
    await _carry_out(Stage(sqlite_site, tmp_path, behind, await behind.install(tmp_path)), (3,))


async def test_tables_outlive_a_server_whose_database_dies_as_well(
    sqlite_site: SqliteSite, postgres: Postgres, tmp_path: Path
) -> None:
    behind = PostgresBehind(postgres)
    dsn = postgres.dsn("postgres")
    await clear(dsn)
    try:
        reports = await _carry_out(Stage(sqlite_site, tmp_path, behind, await behind.install(tmp_path)), (3,))
        assert [report.done["databases behind killed"] for report in reports] == [1]
    finally:
        await clear(dsn)


async def _carry_out(stage: Stage, seeds: Sequence[int]) -> list[Report]:
    reports = []
    try:
        await stage.start()
        for seed in seeds:
            report = await Run(stage, seed).carry_out()
            reports.append(report)
            assert report.wrongs == [], stage.log.read_text()
            assert report.steps > 0
            assert report.looks > 0
    finally:
        await stage.stop()
    return reports
