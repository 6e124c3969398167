"""The scale benchmark measures each size in a process of its own, checks what it reads, and draws."""

from __future__ import annotations

import gc
import json
import os
from pathlib import Path
from typing import Any
from unittest.mock import patch
from xml.etree import ElementTree as ET

import pytest
from pequod_bench import scale
from pequod_bench.collector import Pauses, kept
from pequod_bench.report.printed import WrongAnswerError
from pequod_bench.report.progress import QUIET
from pequod_bench.scale import ScaleError, ScalePoint, ScaleSize, draw, measure
from pequod_bench.settings import ScaleSettings
from typer.testing import CliRunner

from pequod.cli.app import app
from pequod.engine import Engine, Rows


def test_every_size_is_measured_and_drawn(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["bench", "scale", "--smoke", "--json", "--out", str(tmp_path / "figures")])
    assert result.exit_code == 0, result.stderr
    points = [ScalePoint(**point) for point in json.loads(result.stdout)["points"]]
    assert [(point.users, point.entries) for point in points] == [(100, 8_000), (200, 8_000)]
    for point in points:
        assert min(point.check_us, point.first_check_row_us, point.fan_out_entry_us, point.rss_mib) > 0
    assert json.loads((tmp_path / "figures/scale.json").read_text()) == json.loads(result.stdout)
    drawing = ET.parse(tmp_path / "figures/scale.svg").getroot()
    assert "8,000 entries" in "".join(drawing.itertext())


def test_the_same_points_make_the_same_picture(tmp_path: Path) -> None:
    point = measure(ScaleSize(40, 1_200))
    for name in ("a.svg", "b.svg"):
        draw([point], tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_a_wrong_timeline_ends_the_point() -> None:
    whole = Engine.scan

    def all_but_the_first(engine: Engine, first: bytes, last: bytes | None, **options: Any) -> Rows:
        found = whole(engine, first, last, **options)
        return Rows(found.keys[1:], found.values[1:])

    is_refused = pytest.raises(WrongAnswerError, match="is not the posts")
    with patch.object(Engine, "scan", all_but_the_first), is_refused:
        measure(ScaleSize(40, 1_200))


def kill_itself(_: ScaleSize) -> ScalePoint:
    os._exit(9)


def test_a_process_that_is_killed_is_told_by_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "measure", kill_itself)
    with pytest.raises(ScaleError, match="40 users and 1,200 entries was ended from outside"):
        scale.run(ScaleSettings((40,), (1_200,)), QUIET)


def answer_wrongly(_: ScaleSize) -> ScalePoint:
    raise WrongAnswerError("the timeline of user 7 is not the posts of everyone followed")


def test_a_wrong_timeline_is_exit_code_1(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(scale, "measure", answer_wrongly)
    result = CliRunner().invoke(app, ["bench", "scale", "--smoke", "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert "the answers are wrong: the timeline of user 7" in result.stderr
    assert not (tmp_path / "scale.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--users", "10"), "a point needs 20 users or more, not 10"),
        (("--entries", "9999"), "9,999 entries are too few for 1,000 users"),
        (("--users", "many"), "--users takes numbers such as 1000,10000, not 'many'"),
    ],
)
def test_sizes_that_cannot_be_made_are_refused(arguments: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(app, ["bench", "scale", *arguments])
    assert result.exit_code != 0
    assert message in result.stderr


def test_pauses_are_noted_and_the_collector_is_as_it_was() -> None:
    thresholds, frozen = gc.get_threshold(), gc.get_freeze_count()
    pauses = Pauses()
    with kept("default"), pauses.watching():
        assert gc.get_threshold() == (700, 10, 10)
        gc.collect()
        gc.collect()
    assert pauses.count == 2
    assert 0 < pauses.longest_ms <= pauses.total_ms
    with kept("tamed"):
        assert gc.get_freeze_count() > frozen
    assert (gc.get_threshold(), gc.get_freeze_count()) == (thresholds, frozen)
    gc.collect()
    assert pauses.count == 2
