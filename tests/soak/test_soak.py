"""The soak for five seconds; `make soak-server` runs it for longer."""

from pathlib import Path

from tests.soak.soak import soak


async def test_five_seconds_of_mischief_leave_nothing_behind(tmp_path: Path) -> None:
    report = await soak(5, seed=1, folder=tmp_path)
    assert report.faults == []
    assert report.rounds > 0
    assert report.killed > 0
    assert report.failed_calls > 0
