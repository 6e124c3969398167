"""The benchmark of lakes: it measures what is here, names what is not, and finds answers that are not right."""

import json

import pytest
from pequod_bench.lakes import ranges, stores
from typer.testing import CliRunner

from pequod.cli.app import app


def test_stores_that_are_here_are_measured_and_others_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(stores._PACKAGES, "delta", "no_such_package")
    result = CliRunner().invoke(app, ["bench", "lakes", "--smoke", "--systems", "lake,ducklake,delta", "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert [(one["store"], one["rows"]) for one in report["stores"]] == [("lake", 2_000), ("ducklake", 2_000)]
    assert all(one["point_ms"] > 0 and one["disk_bytes_per_row"] > 0 for one in report["stores"])
    assert [sorted(one["stages_cpu_s_per_million"]) for one in report["stores"]] == [
        ["authority", "ingest", "sort"],
        [],
    ]
    assert report["missing"] == {"delta": "the package no_such_package is not installed"}


def test_a_store_that_keeps_the_old_row_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores.PequodLake, "upsert", lambda store, rows: None)
    result = CliRunner().invoke(app, ["bench", "lakes", "--smoke", "--systems", "lake"])
    assert result.exit_code == 1
    assert "and 'changed' is right" in result.stderr


def test_an_unknown_store_is_refused() -> None:
    result = CliRunner().invoke(app, ["bench", "lakes", "--systems", "lake,oracle"])
    assert result.exit_code == 2
    assert "there is no store 'oracle'; there are lake," in result.stderr


def test_minutes_of_lakes_are_measured_by_their_size() -> None:
    result = CliRunner().invoke(app, ["bench", "ranges", "--smoke", "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert [(one["kind"], sorted(one["cpu_s"])) for one in report["minutes"]] == [
        ("adjacent", ["2000", "400"]),
        ("spread", ["2000", "400"]),
    ]
    assert sorted(report["whole_s"]) == ["2000", "400"]


def test_a_minute_that_is_not_in_the_authority_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "_merged_s", lambda lake, policy, limits: 1.0)
    result = CliRunner().invoke(app, ["bench", "ranges", "--smoke"])
    assert result.exit_code == 1
    assert "the authority of 400 rows is at SCU" in result.stderr
