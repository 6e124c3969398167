"""The figures of a store: all of them are measured, and answers that are wrong end the run."""

import json
from pathlib import Path

import pytest
from pequod_bench.store import beyond, filled
from typer.testing import CliRunner

from pequod.cli.app import app


@pytest.mark.usefixtures("forked_servers")
@pytest.mark.parametrize(
    ("name", "measures"),
    [
        ("twip", ["Twip with everysec by none", "Twip with always by none"]),
        ("start", ["start from 2,000 rows: the first answer", "start from 2,000 rows: all in memory"]),
        ("expire", ["2,000 keys expire: the longest turn", "2,000 keys expire: all gone"]),
        ("beyond", ["memory at 0.02 times its limit of 128 MiB"]),
    ],
)
def test_figures_are_measured(name: str, measures: list[str]) -> None:
    result = CliRunner().invoke(app, ["bench", "store", "--smoke", "--json", "--only", name])
    assert result.exit_code == 0, result.output
    assert [figure["measure"] for figure in json.loads(result.stdout)["figures"]] == measures


@pytest.mark.usefixtures("forked_servers")
def test_a_row_that_is_not_as_it_was_written_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beyond, "value_of", lambda number, version: filled.value_of(number + 1, version))
    result = CliRunner().invoke(app, ["bench", "store", "--smoke", "--only", "beyond"])
    assert result.exit_code == 1
    assert "not as it was written" in result.stderr


def test_a_folder_is_filled_as_a_server_leaves_it(tmp_path: Path) -> None:
    filled.fill(tmp_path / "data", 100)
    result = CliRunner().invoke(app, ["data", "check", str(tmp_path / "data")])
    assert result.exit_code == 0, result.output
    assert "100 keys" in result.output
