"""A wire between a client and a server that a test may cut."""

import asyncio
from contextlib import suppress
from typing import Self


class Relay:
    """Passes bytes between whoever connects and a server, until it is told not to."""

    def __init__(self, target: str) -> None:
        self.lead_to(target)
        self._writers: set[asyncio.StreamWriter] = set()
        #: How many connections were made.
        self.connections = 0
        #: Bytes that the server sent are no longer passed on while this is not set.
        self.passing = asyncio.Event()
        self.passing.set()
        #: Clear ``passing`` once so many more bytes of the server have been passed on.
        self.halt_after: int | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.target = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.passing.set()
        self.cut()
        await self._server.wait_closed()

    def lead_to(self, target: str) -> None:
        """Have connections made from now on lead to a server."""
        self._host, _, port = target.rpartition(":")
        self._port = int(port)

    def cut(self) -> None:
        """Break all connections."""
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            there, back = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        await asyncio.gather(self._pass(reader, back), self._pass(there, writer, is_reply=True))
        self._writers -= {writer, back}

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_reply: bool = False
    ) -> None:
        with suppress(OSError):
            while piece := await reader.read(1 << 16):
                if is_reply:
                    await self.passing.wait()
                    self._count(len(piece))
                writer.write(piece)
                await writer.drain()
        writer.transport.abort()

    def _count(self, size: int) -> None:
        if self.halt_after is not None:
            self.halt_after -= size
            if self.halt_after < 0:
                self.halt_after = None
                self.passing.clear()
