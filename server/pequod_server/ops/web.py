"""A small HTTP server in the same event loop: `/metrics`, `/healthz`, `/readyz`.

aiohttp, and in the loop rather than in a thread of prometheus_client's: the engine may only be read between two of its
calls, and an answer from the loop is proof that the loop answers, which is what `/healthz` is asked for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

#: From what the client accepts to the metrics and their content type.
Scrape = Callable[[str], Awaitable[tuple[bytes, str]]]
#: How long requests that are under way may take at the end.
_END_S: Final = 1.0


def _is_fault(record: logging.LogRecord) -> bool:
    """Return whether a line is about us: aiohttp logs a malformed request as an error, with a traceback."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


#: The log of a listener.
faults: Final = logging.getLogger("pequod.server.web")
faults.addFilter(_is_fault)


def runner_of(routes: Mapping[str, Callable[[web.Request], Awaitable[web.StreamResponse]]]) -> web.AppRunner:
    """Return what runs a small server, by the paths that it answers."""
    application = web.Application()
    for path, answer in routes.items():
        application.router.add_get(path, answer)
    return web.AppRunner(application, access_log=None, logger=faults, shutdown_timeout=_END_S)


async def listen(runner: web.AppRunner, address: str) -> str:
    """Listen at HOST:PORT, and return the URL; port 0 takes a free one.

    Requires:
        The runner is set up.

    Raises:
        OSError: The address cannot be listened on.
    """
    host, _, port = address.rpartition(":")
    try:
        await web.TCPSite(runner, host.strip("[]"), int(port)).start()
    except OSError as error:
        raise OSError(f"cannot listen on {address} for metrics: {error.strerror or error}") from error
    bound_host, bound_port = runner.addresses[0][:2]
    return f"http://[{bound_host}]:{bound_port}" if ":" in bound_host else f"http://{bound_host}:{bound_port}"


async def alive(_request: web.Request) -> web.Response:
    """Answer `/healthz`: the loop does."""
    return web.Response(text="alive\n")


class WebServer:
    """Serves metrics and health until it is stopped.

    Args:
        down: Returns the home groups that a compute needs, if none of them answers.
        stale: Returns why reads without a level of freshness fail; empty if they do not.
        step: Returns what the start is at; empty if that is said nowhere else.
    """

    def __init__(
        self,
        scrape: Scrape,
        is_ready: Callable[[], bool],
        down: Callable[[], tuple[str, ...]],
        stale: Callable[[], str] = str,
        step: Callable[[], str] = str,
    ) -> None:
        self._step = step
        self._stale = stale
        self._down = down
        self._scrape = scrape
        self._is_ready = is_ready
        self._runner = runner_of({"/metrics": self._metrics, "/healthz": alive, "/readyz": self._readyz})

    async def start(self, address: str) -> str:
        """Listen at HOST:PORT, and return the URL; port 0 takes a free one. Or at unix:PATH.

        Raises:
            OSError: The address cannot be listened on.
        """
        host, _, port = address.rpartition(":")
        await self._runner.setup()
        if host == "unix":
            # Left behind by the process that was this worker before.
            await asyncio.to_thread(Path(port).unlink, missing_ok=True)
            await web.UnixSite(self._runner, port).start()
            return address
        return await listen(self._runner, address)

    async def stop(self) -> None:
        """Stop listening and close all connections; fine if it never listened."""
        await self._runner.cleanup()

    async def _metrics(self, request: web.Request) -> web.Response:
        body, content_type = await self._scrape(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _readyz(self, _request: web.Request) -> web.Response:
        if self._is_ready():
            if down := self._down():
                return web.Response(status=503, text=f"not ready: no home group answers: {', '.join(down)}\n")
            if stale := self._stale():
                return web.Response(status=503, text=f"not ready: {stale}\n")
            return web.Response(text="ready\n")
        step = self._step()
        return web.Response(status=503, text=f"not ready: {step or 'starting or stopping'}\n")
