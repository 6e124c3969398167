"""Capped timelines to which others post, for a second; `make soak-capped` runs it for longer, with many timelines."""

import pytest

from pequod.engine.joins import capped
from pequod.engine.joins.capped import Kept
from tests.soak.capped import Report, soak


def test_the_memory_of_capped_timelines_stays_flat() -> None:
    report = soak(30, 4_000, 1)
    assert report.faults == []
    assert report.checked == 30


def test_timelines_that_keep_all_rows_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capped, "SPARES_MIN", 100_000)
    monkeypatch.setattr(Kept, "_remove", lambda *_: [])
    assert any(fault.startswith("the ledger has grown") for fault in soak(30, 4_000, 0).faults)


def test_growth_is_that_of_the_last_quarter_against_the_second() -> None:
    sizes = [100] * 4 + [100, 102, 104, 102] + [110] * 4 + [106, 108, 106, 108]
    report = Report([(0.0, 0, size, 200) for size in sizes])
    assert report.growth(3) == 0
    assert 0.04 < report.growth(2) < 0.05
    assert report.faults == []
    report.samples[-1] = (0.0, 0, 120, 200)
    assert report.faults == ["the ledger has grown by 7.8%"]
