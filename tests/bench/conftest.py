"""Servers of runs that are forked: `pequod serve` with its flags, but without half a second of imports for each."""

from __future__ import annotations

import pytest
from pequod_bench import backed_twip, cluster_latency, cluster_site, sessions, wire_twip
from pequod_bench.compare import pequod_system

from tests.bench.forked_site import ForkedSiteServer
from tests.forked import started_server

_STARTING = (backed_twip, cluster_latency, pequod_system, sessions, wire_twip)


@pytest.fixture
def forked_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have runs fork their servers; each command and each kind of site has a test without this."""
    for module in _STARTING:
        monkeypatch.setattr(module, "started_server", started_server)
    monkeypatch.setattr(cluster_site, "SiteServer", ForkedSiteServer)
