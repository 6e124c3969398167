"""The benchmark of durable views: all types, several managers, and tables that are compared in the end."""

import json

import pytest
from lab.__main__ import app as studies
from pequod_bench.views import run as views
from pequod_bench.views import stage
from pequod_views import DurableView, Target
from pequod_views.versioned import ViewCoordinator
from typer.testing import CliRunner

from pequod import AsyncClient
from pequod.cli.app import app


@pytest.mark.usefixtures("forked_servers")
def test_views_are_measured_by_type_and_by_managers() -> None:
    result = CliRunner().invoke(app, ["bench", "views", "--smoke", "--only", "index", "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert [(point["type"], point["views"], point["managers"]) for point in report["points"]] == [
        ("index", 2, 1),
        ("index", 2, 2),
    ]
    for point in report["points"]:
        assert point["rows_per_s"] > 0


def test_a_hot_view_is_measured_before_and_after_its_split() -> None:
    result = CliRunner().invoke(studies, ["hot-view", "--smoke", "--json"])
    assert result.exit_code == 0, result.output
    hot = json.loads(result.stdout)["points"]
    assert [(point["state"], point["managers"], point["parts"]) for point in hot] == [
        ("one part", 2, 1),
        ("split", 2, 2),
        ("one part", 3, 1),
        ("split", 3, 3),
        ("one part", 2, 1),
        ("split", 2, 2),
        ("one was killed", 1, 2),
    ]
    assert all(point["rows"] > 0 for point in hot)


def test_writes_of_a_view_key_are_measured_by_the_number_of_views() -> None:
    result = CliRunner().invoke(studies, ["view-writes", "--smoke", "--json"])
    assert result.exit_code == 0, result.output
    points = json.loads(result.stdout)["points"]
    assert [point["views"] for point in points] == [0, 1]
    assert points[1]["cpu_ms"] > 0


def test_records_that_a_versioned_view_has_elsewhere_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: object) -> dict[str, object]:
        return {}

    monkeypatch.setattr(ViewCoordinator, "get_view", nothing)
    result = CliRunner().invoke(studies, ["view-writes", "--smoke"])
    assert result.exit_code == 1
    assert "has the records []" in result.stderr


def test_a_type_that_is_none_is_no_measure() -> None:
    result = CliRunner().invoke(app, ["bench", "views", "--smoke", "--only", "zipf"])
    assert result.exit_code == 1
    assert "there is no such type of views; there are range, index," in result.stderr


@pytest.mark.usefixtures("forked_servers")
def test_a_table_that_differs_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    compare = stage.compare

    async def change_and_compare(target: Target, client: AsyncClient, shown: tuple[DurableView, ...]) -> None:
        async with target.transaction() as transaction:
            await transaction.fetch("DELETE FROM v0 WHERE value > '0'")
        await compare(target, client, shown)

    monkeypatch.setattr(views, "compare", change_and_compare)
    result = CliRunner().invoke(app, ["bench", "views", "--smoke", "--only", "range"])
    assert result.exit_code == 1
    assert "the table v0 has 0 rows" in result.stderr
