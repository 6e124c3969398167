"""The benchmark of replacing joins: it reads all the while, and finds answers that are neither old nor new."""

import json

import pytest
from pequod_bench import replacing
from pequod_workloads import twip as keys
from typer.testing import CliRunner

from pequod.cli.app import app


def test_reads_are_timed_before_meanwhile_and_afterwards() -> None:
    result = CliRunner().invoke(app, ["bench", "replace", "--smoke", "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["ranges_built"] == 200
    assert [phase["phase"] for phase in report["phases"]] == ["before", "meanwhile", "afterwards"]
    for phase in report["phases"]:
        assert phase["reads"] >= 200
        assert 0 < phase["median_ms"] <= phase["p99_ms"] <= phase["max_ms"]
    assert report["p99_times"] == report["phases"][1]["p99_ms"] / report["phases"][0]["p99_ms"]


@pytest.mark.parametrize(
    ("join", "words"),
    [
        (keys.PUSH_JOIN.removesuffix(";") + " keep last 1 of <user>", "has neither the old rows nor the new ones"),
        (keys.PUSH_JOIN, "no read has seen the new rows"),
    ],
)
def test_wrong_answers_end_it(join: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replacing, "_NEW", join)
    result = CliRunner().invoke(app, ["bench", "replace", "--smoke"])
    assert result.exit_code == 1
    assert words in result.stderr
