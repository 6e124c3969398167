"""How far a run is: a line a minute where nobody watches a bar."""

import io
import time

import pytest
from pequod_bench.report.progress import ProgressBars
from rich.console import Console


def test_a_run_in_the_background_says_each_minute_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    written = io.StringIO()
    with ProgressBars(Console(file=written, width=80)).bar("events", 5_000) as advance:
        advance(1_000)
        assert written.getvalue() == ""
        for now_s in (159.0, 160.0, 219.0, 220.0):  # noqa: B007 - the clock
            advance(500)
    assert written.getvalue() == "events: 2,000 of 5,000 in 1 minutes\nevents: 3,000 of 5,000 in 2 minutes\n"


def test_a_run_that_prints_json_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    written = io.StringIO()
    with ProgressBars(Console(file=written, quiet=True)).bar("events", 5) as advance:
        now_s = 1_000.0
        advance(5)
    assert written.getvalue() == ""
