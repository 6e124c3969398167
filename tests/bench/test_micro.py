"""Every micro benchmark runs, tiny, and reports what it should."""

from __future__ import annotations

import json

from pequod_bench.micro.frame import SMOKE, TURNS, MicroRow, MicroScale, Samples, measure
from pequod_bench.micro.run import RATIOS, compared, workloads
from typer.testing import CliRunner

from pequod.cli.app import app


def test_every_workload_runs_and_reports() -> None:
    result = CliRunner().invoke(app, ["bench", "micro", "--smoke", "--json"])
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert len(report["workloads"]) >= 19
    for row in report["workloads"]:
        assert 0 < row["min_us"] <= row["median_us"] <= row["p99_us"], row


def test_figures_are_microseconds_an_operation() -> None:
    def samples(_: object) -> object:
        for nanos in (9, 1_000, 3_000, 2_000, 7_000):
            yield 2, nanos

    (result,) = measure([MicroRow("w", "op", samples)], SMOKE)  # type: ignore[arg-type]
    assert (result.min_us, result.median_us, result.p99_us) == (0.5, 1.0, 1.5)
    assert result.sample_count == 3


def test_rows_that_are_compared_take_turns() -> None:
    order: list[str] = []

    def row(name: str) -> MicroRow:
        def samples(_: MicroScale) -> Samples:
            while True:
                order.append(name)
                yield 1, 1_000

        return MicroRow(name, "op", samples)

    scale = MicroScale(sample_count=3 * TURNS, part=1.0)
    results = measure([row("a"), row("b")], scale)
    assert [(result.name, result.sample_count) for result in results] == [("a", 3 * TURNS), ("b", 3 * TURNS)]
    assert order[6:] == ["a", "a", "a", "b", "b", "b"] * TURNS, "3 samples of each go before, unmeasured"


def test_rows_are_measured_with_what_they_are_compared_with() -> None:
    groups = [[row.name for row in group] for group in compared(workloads())]
    for name, than, _ in RATIOS:
        (group,) = [group for group in groups if name in group]
        assert than in group
    assert sorted(name for group in groups for name in group) == sorted(row.name for row in workloads())


def test_one_workload_can_be_asked_for() -> None:
    result = CliRunner().invoke(app, ["bench", "micro", "--smoke", "--only", "fan-out"])
    assert "fan-out" in result.stdout
    assert "subscribe" not in result.stdout
