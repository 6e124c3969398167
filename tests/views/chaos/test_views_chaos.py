"""Some runs of `make views-chaos`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.views.chaos.behind import flags_of_sqlite
from tests.views.chaos.run import Run, Stage
from tests.views.sites import Site, SqliteSite


async def test_tables_are_equal_to_scans_after_kills(site: Site, tmp_path: Path) -> None:
    await _carry_out(Stage(site, tmp_path), (7, 9))


async def test_tables_outlive_a_server_that_has_a_database_behind_it(sqlite_site: SqliteSite, tmp_path: Path) -> None:
    await _carry_out(Stage(sqlite_site, tmp_path, await flags_of_sqlite(tmp_path)), (3,))


async def _carry_out(stage: Stage, seeds: Sequence[int]) -> None:
    try:
        await stage.start()
        for seed in seeds:
            report = await Run(stage, seed).carry_out()
            assert report.wrongs == [], stage.log.read_text()
            assert report.steps > 0
            assert report.looks > 0
    finally:
        await stage.stop()
