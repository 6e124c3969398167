"""Each part that can be switched off is: the general way does the work, and the answers stay the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pequod_bench import factors
from pequod_bench.factors import FACTORS, Factor, analyse
from pequod_bench.report.phases import NAMES
from pequod_bench.report.progress import QUIET
from pequod_bench.twip import TwipSettings
from pequod_bench.workloads.keys import PULL_JOIN
from typer.testing import CliRunner

from pequod.cli.app import app


def test_every_part_is_measured_and_all_runs_answer_the_same() -> None:
    result = CliRunner().invoke(app, ["bench", "factors", "--smoke", "--json"])
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["difference"], report["rounds"]) == ("", 1)
    assert report["checks_verified"] > 1_000
    assert [row["name"] for row in report["results"]] == [factor.name for factor in FACTORS]
    for row in report["results"]:
        # With one round, all ways to put rounds together are the same.
        assert 0 < row["run_min"] == row["run_median"] == row["run_max"] == pytest.approx(row["run"])
        assert set(row["phases"]) == set(NAMES)


def test_the_table_can_be_read_by_people() -> None:
    result = CliRunner().invoke(app, ["bench", "factors", "--smoke", "--only", "kernel"])
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert "without timeline kernel: the loops and updates of any join" in text
    assert "collector: CPython" not in text
    assert "equal a computation from scratch" in text


def test_another_answer_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that is not what it seems: with it off, other timelines are computed."""

    @contextmanager
    def other_joins() -> Iterator[None]:
        with monkeypatch.context() as patch:
            patch.setattr(factors, "JOINS", {"push": PULL_JOIN.replace("copy p|", "copy q|")})
            yield

    monkeypatch.setattr(factors, "FACTORS", (Factor("broken", "nothing at all", other_joins),))
    found = analyse(TwipSettings(users=40, ticks=500), 1, "broken", QUIET)
    assert "without broken something else is answered" in found.difference
