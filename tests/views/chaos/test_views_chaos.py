"""Some runs of `make views-chaos`."""

from __future__ import annotations

from pathlib import Path

from tests.views.chaos.run import Run, Stage
from tests.views.sites import Site


async def test_tables_are_equal_to_scans_after_kills(site: Site, tmp_path: Path) -> None:
    stage = Stage(site, tmp_path)
    try:
        await stage.start()
        for seed in (7, 9):
            report = await Run(stage, seed).carry_out()
            assert report.wrongs == [], stage.log.read_text()
            assert report.steps > 0
            assert report.looks > 0
    finally:
        await stage.stop()
