"""Faults that are planted in files and in the catalog are found by `verify`, and mended where another place knows."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pequod_lake import Lake, LakeError
from pequod_lake.repairing import RepairReport
from pequod_lake.runs import Stage
from typer.testing import CliRunner

from pequod.cli.app import app
from tests.lake.damages import CLOSED, FAULTS, LEFT, SCHEMA, Damaged, fill, told
from tests.lake.earlier import before_contents

Rows = list[dict[str, object]]


@pytest.fixture(scope="module")
def filled(lake_root: Path) -> Path:
    folder = lake_root / "filled"
    with Lake.create(folder, SCHEMA) as lake:
        fill(lake)
        assert list(told(lake)) == []
    return folder


@pytest.fixture
def copy(filled: Path, tmp_path: Path) -> Path:
    shutil.copytree(filled, tmp_path / "lake")
    return tmp_path / "lake"


def rows(lake: Lake) -> list[Rows]:
    with lake.snapshot() as snapshot:
        return [
            snapshot.scan("posts", view=view, columns=["id"] if view == "heads" else None).rows.to_pylist()
            for view in ("", "by_author", "heads")
        ]


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_and_mended_or_still_said(name: str, copy: Path) -> None:
    with Lake(copy) as lake:
        before = rows(lake)
        FAULTS[name](Damaged(lake))
    with Lake(copy) as lake:
        assert list(told(lake)) != []
        if name in CLOSED:
            with pytest.raises(LakeError, match="damaged"):
                lake.repair()
            assert lake.verify() != []
            return
        report = lake.repair()
        assert (report.left != []) == (lake.verify() != []) == (name in LEFT), report
        if name not in LEFT:
            assert rows(lake) == before
            lake.expire(0.0)
            assert list(told(lake)) == []
            assert rows(lake) == before


def test_what_is_sound_stays_as_it_is(copy: Path) -> None:
    with Lake(copy) as lake:
        number = lake.catalog.snapshot().number
        assert lake.repair() == RepairReport()
        assert lake.catalog.snapshot().number == number


def test_a_table_is_made_anew_from_its_scus_only_while_they_are_kept(copy: Path) -> None:
    with Lake(copy) as lake:
        lake.expire(0.0)
        damaged = Damaged(lake)
        damaged.flip(damaged.files(Stage.DELTA)[0], 60)
        damaged.flip(damaged.files(Stage.AUTHORITY)[0], 60)
    with Lake(copy) as lake:
        report = lake.repair()
        assert [line for line in report.left if "not kept" in line], (
            "a view does not have the delete markers of a delta"
        )
        assert [line for line in report.done if "the primary view of posts" in line], (
            "the authority's rows are in a view"
        )


@pytest.mark.parametrize("name", ["a file that the catalog lost", "ids that are given again", "a delta that is lost"])
def test_faults_of_a_catalog_elsewhere_are_found(name: str, location: Callable[[str], str]) -> None:
    with Lake(location(SCHEMA)) as lake:
        fill(lake)
        assert list(told(lake)) == []
        FAULTS[name](Damaged(lake))
        assert lake.verify() != []


def test_a_lake_of_the_version_before_sums_is_brought_up(copy: Path) -> None:
    with Lake(copy) as lake:
        before = rows(lake)
        before_contents(lake)
    with Lake(copy) as lake:
        assert lake.verify() == []
        assert rows(lake) == before
        assert lake.repair() == RepairReport()
        damaged = Damaged(lake)
        damaged.flip(damaged.files(Stage.AUTHORITY)[0], 60)
    with Lake(copy) as lake:
        assert lake.repair().left == []
        assert (lake.verify(), rows(lake)) == ([], before)


def test_the_commands_say_what_they_find_and_do(copy: Path) -> None:
    with Lake(copy) as lake:
        damaged = Damaged(lake)
        damaged.flip(damaged.files(Stage.AUTHORITY, view="heads")[0], 60)
    run = CliRunner().invoke
    assert "checksum" in run(app, ["lake", "verify", str(copy)]).stdout
    mended = run(app, ["lake", "repair", str(copy)])
    assert (mended.exit_code, mended.stdout.count("heads of posts is made anew")) == (0, 1), mended.output
    assert run(app, ["lake", "verify", str(copy)]).exit_code == 0
    assert "nothing is damaged" in run(app, ["lake", "repair", str(copy)]).stderr
    with Lake(copy) as lake:
        FAULTS["an upload of an SCU to come"](Damaged(lake))
    assert run(app, ["lake", "repair", str(copy), "--json"]).exit_code == 1
