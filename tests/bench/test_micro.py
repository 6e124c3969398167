"""Every micro benchmark runs, tiny, and reports what it should."""

from __future__ import annotations

import json

from pequod_bench.micro_frame import SMOKE, MicroRow, measure
from typer.testing import CliRunner

from pequod.cli.app import app


def test_every_workload_runs_and_reports() -> None:
    result = CliRunner().invoke(app, ["bench", "micro", "--smoke", "--json"])
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert len(report["workloads"]) >= 19
    for row in report["workloads"]:
        assert 0 < row["min_us"] <= row["median_us"] <= row["p99_us"], row
    assert all(size["bytes_each"] > 0 for size in report["sizes"])


def test_figures_are_microseconds_an_operation() -> None:
    def samples(_: object) -> object:
        for nanos in (9, 1_000, 3_000, 2_000, 7_000):
            yield 2, nanos

    result = measure(MicroRow("w", "op", samples), SMOKE)  # type: ignore[arg-type]
    assert (result.min_us, result.median_us, result.p99_us) == (0.5, 1.0, 1.5)
    assert result.sample_count == 3


def test_one_workload_can_be_asked_for() -> None:
    result = CliRunner().invoke(app, ["bench", "micro", "--smoke", "--only", "fan-out"])
    assert "fan-out" in result.stdout
    assert "subscribe" not in result.stdout
