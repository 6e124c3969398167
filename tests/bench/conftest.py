"""Servers of runs that are forked: `pequod serve` with its flags, but without half a second of imports for each."""

from __future__ import annotations

import pytest

from tests.bench.forked_process import forked_process

#: The modules that start processes: most by `systems.server.started_server`.
_STARTING = ("systems.server", "systems.site", "feed.run", "views.stage")


@pytest.fixture
def forked_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have runs fork their servers; for each way of starting them there are tests without this."""
    for module in _STARTING:
        monkeypatch.setattr(f"pequod_bench.{module}.ServerProcess", forked_process)
