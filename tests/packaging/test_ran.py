"""The list of when each target ran last is whole, and a run is noted in it."""

from __future__ import annotations

import sys
from datetime import date
from pathlib import Path

import pytest

from tests import ran

MAKEFILE = (ran.ROOT / "Makefile").read_text("utf-8")


def test_every_target_that_tests_is_in_the_list() -> None:
    found = ran.targets(MAKEFILE)
    assert {"soak", "test-pure", "test-spark-cluster", "views-schedules", "fuzz", "test-pythons"} <= found
    assert ran.read(ran.LIST.read_text("utf-8")).keys() == found


def test_the_list_is_read_as_it_was_written() -> None:
    runs = {"soak": ran.Run("soak"), "fuzz": ran.Run("fuzz", "2026-01-02", "abc1234", "1.5", "passed")}
    assert ran.read(ran.write(runs)) == runs


@pytest.mark.parametrize(("code", "result"), [(0, "passed"), (3, "exit code 3")])
def test_a_run_is_noted_with_how_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, result: str
) -> None:
    monkeypatch.setattr(ran, "LIST", tmp_path / "list.md")
    ran.LIST.write_text(ran.write({"soak": ran.Run("soak"), "fuzz": ran.Run("fuzz")}))
    assert ran.noted("soak", [sys.executable, "-c", f"raise SystemExit({code})"]) == code
    runs = ran.read(ran.LIST.read_text())
    assert runs["soak"].result == result and runs["soak"].date > "2026" and runs["fuzz"] == ran.Run("fuzz")


def test_a_target_is_due_a_week_after_it_passed_or_at_once_if_it_failed() -> None:
    run = ran.Run("soak", "2026-01-01", "abc1234", "1.0", "passed")
    assert not ran.is_due(run, date(2026, 1, 7)) and ran.is_due(run, date(2026, 1, 8))
    assert ran.is_due(run._replace(result="exit code 1"), date(2026, 1, 1)) and ran.is_due(ran.Run("soak"), date.min)
