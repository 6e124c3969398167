"""Settings that are drawn for the servers of a run of tests: legal ones, the same by the same seed, and set aside."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pequod_server import ServerConfig
from pequod_server.settings import load

from tests import drawn_settings


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


def test_a_seed_that_is_not_given_is_drawn_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(drawn_settings.VARIABLE, raising=False)
    assert drawn_settings.seed_of_the_run() is None
    monkeypatch.setenv(drawn_settings.VARIABLE, "any")
    seed = drawn_settings.seed_of_the_run()
    assert seed is not None
    assert drawn_settings.seed_of_the_run() == seed
    monkeypatch.setenv(drawn_settings.VARIABLE, "7")
    assert drawn_settings.seed_of_the_run() == 7


def test_a_commit_has_a_seed_by_its_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn_settings, "_commit", lambda: "ff" * 20)
    monkeypatch.setenv(drawn_settings.VARIABLE, "commit")
    seed = drawn_settings.seed_of_the_run()
    assert seed == int("ff" * 20, 16) % 1_000_000
    assert os.environ[drawn_settings.VARIABLE] == str(seed), "processes that pytest starts have the same"


@pytest.mark.parametrize("given", ["yes", "-1", "0x7"])
def test_what_is_no_seed_is_refused_and_not_drawn(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(drawn_settings.VARIABLE, given)
    with pytest.raises(ValueError, match="give it a number, any or commit"):
        drawn_settings.seed_of_the_run()


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
