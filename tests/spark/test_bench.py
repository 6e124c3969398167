"""The benchmark of backfills, tiny."""

from __future__ import annotations

import json

import pytest
from pequod_bench import backfill
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from pequod.calls import Data
from pequod.cli.app import app
from pequod.client import Client


def test_it_tells_each_phase(spark: SparkSession) -> None:
    result = CliRunner().invoke(app, ["bench", "backfill", "--smoke", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["rows"] > 40 * 8
    for phase in ("materialise_s", "backfill_s", "load_s", "cold_check_us", "warm_check_us", "rows_per_check"):
        assert found[phase] > 0, phase
    assert found["load_s"] < found["backfill_s"]
    assert found["rows_per_s"] == pytest.approx(found["rows"] / found["materialise_s"])
    assert found["loaded_rows_per_s"] == pytest.approx(found["rows"] / found["load_s"])
    assert found["writes"] > 0


def test_a_timeline_that_is_not_right_is_found(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    class Meddling(Client):
        """Has a post come between what was loaded and what is computed anew."""

        def invalidate_range(self, first: Data, last: Data | None = None) -> int:
            self.put(b"p|%08d|%010d" % (0, 1), b"later")
            return super().invalidate_range(first, last)

    monkeypatch.setattr(backfill, "Client", Meddling)
    # What Spark does alone has no part in this.
    monkeypatch.setattr(backfill, "_materialise", lambda *_: (1, 1.0))
    result = CliRunner().invoke(app, ["bench", "backfill", "--smoke"])
    assert result.exit_code == 1
    assert "is not what the server computes anew" in result.stderr
