"""Settings that are drawn for the servers of a run of tests: legal ones, and the same by the same seed."""

from __future__ import annotations

import pytest
from pequod_server import ServerConfig

from tests import drawn_settings


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
