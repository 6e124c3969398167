"""Servers of runs that are forked: `pequod serve` with its flags, but without half a second of imports for each."""

from __future__ import annotations

import pytest

from tests.bench.forked_site import ForkedSiteServer
from tests.forked import started_server

#: The modules that start servers.
_STARTING = ("systems.pequod_system", "twip", "wire.places")


@pytest.fixture
def forked_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have runs fork their servers; for each way of starting them there are tests without this."""
    for module in _STARTING:
        monkeypatch.setattr(f"pequod_bench.{module}.started_server", started_server)
    monkeypatch.setattr("pequod_bench.systems.site.SiteServer", ForkedSiteServer)
