"""The benchmark of indexes: each place and number of them, the lag of a compute, and indexes that are compared."""

import json

import pytest
from pequod_bench import indexes
from typer.testing import CliRunner

from pequod.cli.app import app

_TINY = ["bench", "indexes", "--smoke"]


def test_indexes_are_measured_at_the_server_and_on_a_compute() -> None:
    result = CliRunner().invoke(app, [*_TINY, "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    points = {(cost["place"], cost["indexes"], cost["reads_for_a_write"]): cost for cost in report["costs"]}
    sites = [("none", 0), ("server", 1), ("compute", 1), ("counted", 1), ("server", 2), ("compute", 2)]
    assert points.keys() == {(*site, ratio) for site in sites for ratio in (8, 0)}
    assert {place for (place, *_), cost in points.items() if cost["compute_us"] > 0} == {"compute"}
    assert report["lag"]["count"] == 5
    assert {query["asked"] for query in report["queries"]} == {"records", "their number"}


def test_an_index_that_lost_an_entry_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = indexes._Records.changed

    def forgetful(records: indexes._Records) -> tuple[bytes, bytes]:
        row = changed(records)
        changed(records)
        return row

    monkeypatch.setattr(indexes._Records, "changed", forgetful)
    result = CliRunner().invoke(app, [*_TINY, "--json"])
    assert result.exit_code == 1
    assert "the index i0 has other entries than the records" in result.stderr
