"""A server of a benchmark's cluster that is forked."""

from __future__ import annotations

from typing import Any, cast

from pequod_bench.systems.server import ServerProcess
from pequod_bench.systems.site import SiteServer

from tests.forked import ForkedServer


class _Forked:
    """What is asked of a process, by a server that listens once this is made."""

    def __init__(self, *flags: str) -> None:
        self._server = ForkedServer(*flags)
        self.pid = self._server.pid
        self.kill = self._server.kill
        self.end = self._server.terminate

    def wait(self, *_: Any) -> None:
        """Return at once: it listens."""


class ForkedSiteServer(SiteServer):
    """The same server, forked."""

    def start(self, *flags: str) -> ServerProcess:
        return cast("ServerProcess", _Forked(*flags))
