"""Proxies whose cable can be cut or held: between a server and PostgreSQL, and between any two processes over TCP."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Final

#: How PostgreSQL calls its socket in a directory, on its usual port.
SOCKET: Final = ".s.PGSQL.5432"


class Proxy:
    """Passes bytes between a socket in ``directory`` and that of PostgreSQL in ``behind``."""

    def __init__(self, directory: Path, behind: Path) -> None:
        self.directory = directory
        #: Where new connections go.
        self.behind = behind
        self._flows = asyncio.Event()
        self._flows.set()
        #: How long each piece takes.
        self.delay_s = 0.0
        self._is_open = True
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_unix_server(self._serve, self.directory / SOCKET)

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(self.behind / SOCKET)

    async def stop(self) -> None:
        """Close everything."""
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Break all connections, in the middle of what they say."""
        for writer in self._writers:
            writer.transport.abort()

    async def hold(self, seconds: float) -> None:
        """Pass nothing on for a while."""
        self._flows.clear()
        await asyncio.sleep(seconds)
        self._flows.set()

    def hold_on(self) -> None:
        """Pass nothing on until `let_go`; nobody is told."""
        self._flows.clear()

    def forget(self) -> None:
        """Pass nothing more on of what is connected now, for good; nobody is told. New connections are passed on."""
        self._flows.clear()
        self._flows = asyncio.Event()
        self._flows.set()

    def take_away(self) -> None:
        """Break all connections and take none until `let_go`."""
        self._is_open = False
        self.cut()

    def let_go(self) -> None:
        """Pass everything on again."""
        self._is_open = True
        self._flows.set()

    async def shut(self, seconds: float) -> None:
        """Break all connections and take none for a while."""
        self._is_open = False
        self.cut()
        await asyncio.sleep(seconds)
        self._is_open = True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._is_open:
            writer.transport.abort()
            return
        try:
            back_reader, back_writer = await self._connected()
        except OSError:
            writer.transport.abort()
            return
        both = {writer, back_writer}
        self._writers |= both
        pumps = [asyncio.create_task(self._pump(*ends)) for ends in ((reader, back_writer), (back_reader, writer))]
        self._tasks |= {*pumps}
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            for one in both:
                one.transport.abort()
            self._writers -= both
            self._tasks -= {*pumps}

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        flows = self._flows
        with suppress(OSError):
            while data := await reader.read(65536):
                await asyncio.sleep(self.delay_s)
                await flows.wait()
                writer.write(data)
                await writer.drain()
        # A machine that lost its power, or its link, does not say that its connections are closed either.
        await flows.wait()


class TcpProxy(Proxy):
    """Passes bytes between a port of the loopback and an address behind it."""

    def __init__(self, behind: str) -> None:
        super().__init__(Path(), Path())
        self._host, _, self._port = behind.rpartition(":")
        #: Where it listens; known once it is started.
        self.address = ""

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self._host, int(self._port))
