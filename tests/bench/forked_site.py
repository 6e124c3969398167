"""A server of a benchmark's cluster that is forked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

import psutil
from pequod_bench.cluster_site import SiteServer
from pequod_bench.process import Usage, usage
from pequod_bench.systems.server import free_port

from pequod.cluster.servers import ServerEntry
from tests.forked import ForkedServer


class ForkedSiteServer(SiteServer):
    """The same server, which listens once this is made."""

    def __init__(self, entry: ServerEntry, arguments: Sequence[str], said: IO[bytes]) -> None:
        del said
        self.entry = entry
        self._metrics = f"127.0.0.1:{free_port()}"
        self._server = ForkedServer("--listen", entry.address, "--metrics", self._metrics, *arguments)
        self.was_killed = False

    def wait(self) -> None:
        """Return at once: it listens."""

    def kill(self) -> None:
        """End it without a word."""
        self.was_killed = True
        self._server.kill()

    def usage(self) -> Usage | None:
        """Return what it has used, None if it is gone."""
        try:
            return usage(self._server.pid)
        except psutil.Error:
            return None

    def stop(self) -> None:
        """Have it end."""
        self._server.terminate()
