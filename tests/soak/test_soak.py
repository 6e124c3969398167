"""The soak for five seconds; `make soak-server` runs it for longer."""

from pathlib import Path

import pytest

from tests.soak.soak import GROWTH_MAX, growth_of, soak


async def test_five_seconds_of_mischief_leave_nothing_behind(tmp_path: Path) -> None:
    report = await soak(5, seed=1, folder=tmp_path)
    assert report.faults == []
    assert report.rounds > 0
    assert report.killed > 0
    assert report.failed_calls > 0


@pytest.mark.parametrize(
    ("sizes", "is_found"),
    [
        # Pools fill at first, and then it goes up and down.
        ([100, 103, 106, 107, *[107 + number % 13 for number in range(396)]], False),
        ([103] * 60 + [113] * 340, False),
        ([100 + number / 30 for number in range(400)], True),
    ],
)
def test_memory_that_grows_is_told_from_pools_that_fill(sizes: list[int], is_found: bool) -> None:
    growth = growth_of(sizes)
    assert growth is not None
    assert (growth > GROWTH_MAX) is is_found
