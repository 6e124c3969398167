"""Settings that are drawn for the servers of a run of tests: legal ones, the same by the same seed, and set aside."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pequod_server import ServerConfig
from pequod_server.settings import load

from tests import drawn_settings
from tests.drawn_settings import Draw


@pytest.fixture
def _as_before() -> Iterator[None]:
    """Undo what a test draws, and begin without what the run has drawn."""
    with drawn_settings.set_aside():
        variables = dict(os.environ)
        yield
        with drawn_settings.set_aside():
            own = {name: ServerConfig.model_fields[name].default for name in drawn_settings.drawn(0)}
        drawn_settings.use(own)
        os.environ.clear()
        os.environ.update(variables)


def test_a_seed_draws_legal_settings_and_always_the_same() -> None:
    for seed in range(50):
        drawn = drawn_settings.drawn(seed)
        ServerConfig(**drawn)
        assert drawn == drawn_settings.drawn(seed)
    assert len({str(drawn_settings.drawn(seed)) for seed in range(50)}) > 40


def test_the_seeds_of_the_suite_draw_every_value_and_its_folders_are_there() -> None:
    for name, values in drawn_settings._VALUES.items():
        assert {drawn_settings.drawn(seed)[name] for seed in drawn_settings.SEEDS} == set(values), name
    assert all(Path(name).is_dir() for name in drawn_settings.FOLDERS)
    assert not {"tests/bench"}.intersection(drawn_settings.FOLDERS), "it measures"
    assert f"in {len(drawn_settings.FOLDERS)} of the folders" in Path("docs/trust.md").read_text()


def test_a_seed_that_is_to_be_drawn_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(drawn_settings.VARIABLE, "any")
    draw = drawn_settings.draw_of_the_run(is_suite=False)
    assert draw.is_everywhere
    assert drawn_settings.draw_of_the_run(is_suite=True) == draw
    monkeypatch.setenv(drawn_settings.VARIABLE, "7")
    assert drawn_settings.draw_of_the_run(is_suite=True) == Draw(7, is_everywhere=True)


def test_a_commit_has_a_seed_by_its_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn_settings, "_commit", lambda: "ff" * 20)
    monkeypatch.setenv(drawn_settings.VARIABLE, "commit")
    draw = drawn_settings.draw_of_the_run(is_suite=True)
    assert draw == Draw(drawn_settings.SEEDS[int("ff" * 20, 16) % 3], is_everywhere=True)
    assert os.environ[drawn_settings.VARIABLE] == str(draw.seed), "processes that pytest starts have the same"


def test_only_the_suite_draws_unasked_and_only_where_all_seeds_have_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(drawn_settings.VARIABLE, raising=False)
    assert drawn_settings.draw_of_the_run(is_suite=False) == Draw(None)
    draw = drawn_settings.draw_of_the_run(is_suite=True)
    assert draw.seed in drawn_settings.SEEDS
    assert draw == drawn_settings.draw_of_the_run(is_suite=True)
    assert draw.is_of("tests/server/test_limits.py::test_something")
    assert not draw.is_of("tests/bench/test_wire.py::test_something")
    monkeypatch.setenv(drawn_settings.VARIABLE, "none")
    assert drawn_settings.draw_of_the_run(is_suite=True) == Draw(None)


def test_a_copy_without_its_history_has_a_seed_of_the_day(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise FileNotFoundError("git")

    monkeypatch.delenv(drawn_settings.VARIABLE, raising=False)
    monkeypatch.setattr(drawn_settings, "_commit", missing)
    assert drawn_settings.draw_of_the_run(is_suite=True).seed in drawn_settings.SEEDS


@pytest.mark.parametrize("given", ["yes", "-1", "0x7"])
def test_what_is_no_seed_is_refused_and_not_drawn(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(drawn_settings.VARIABLE, given)
    with pytest.raises(ValueError, match="give it a number, any, commit or none"):
        drawn_settings.draw_of_the_run(is_suite=True)


@pytest.mark.usefixtures("_as_before")
def test_a_draw_turns_from_folder_to_folder() -> None:
    defaults, draw = ServerConfig(), Draw(6)
    for test, expected in (("tests/server/test_x.py", 1000), ("tests/bench/test_x.py", defaults.rows_max)) * 2:
        draw.turn_to(test)
        assert (ServerConfig().rows_max, load().config.rows_max) == (expected, expected)
    assert ServerConfig() == load().config == defaults


def test_a_test_that_fails_says_how_to_repeat_it(tmp_path: Path) -> None:
    folder = tmp_path / "tests" / "server"
    folder.mkdir(parents=True)
    (folder / "test_failing.py").write_text("def test_it():\n    assert False\n")
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--rootdir={tmp_path}",
        "-c",
        os.devnull,
    ]
    variables = {**os.environ, drawn_settings.VARIABLE: "6", "PYTHONPATH": str(Path.cwd())}
    ended = subprocess.run(
        [*command, str(folder)], cwd=tmp_path, env=variables, stdout=subprocess.PIPE, text=True, check=False
    )
    assert ended.returncode == 1
    assert "PEQUOD_SETTINGS_SEED=6 .venv/bin/pytest 'tests/server/test_failing.py::test_it'" in ended.stdout
    assert "servers had settings at random: PEQUOD_SETTINGS_SEED=6: rows_max 1000" in ended.stdout


@pytest.mark.usefixtures("_as_before")
def test_servers_have_what_is_drawn_and_the_defaults_where_it_is_set_aside() -> None:
    defaults = ServerConfig()
    drawn = {"rows_max": 10, "memory_limit": "4GiB", "uvloop": False}
    drawn_settings.use(drawn)
    for config in (ServerConfig(), load().config):
        assert {name: getattr(config, name) for name in drawn} == drawn
    with drawn_settings.set_aside():
        assert ServerConfig() == load().config == defaults
    for config in (ServerConfig(rows_max=3), load(None, {"rows_max": "3"}).config):
        assert (config.rows_max, config.memory_limit) == (3, "4GiB")
