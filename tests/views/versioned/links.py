"""Links between nodes, each of which listens behind an address of its own: a held link keeps what is sent, for later.

A node of Cassandra says in the first bytes of a connection who it is: four bytes, the flags, the length of an address
and a port, and these.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

_HEAD_BYTES: Final = 15
_CHUNK_BYTES: Final = 1 << 16


class Links:
    """Links to nodes.

    Args:
        places: Where the node listens that others reach at an address.
        port: That of each address, here and there.
    """

    def __init__(self, places: Mapping[str, str], port: int) -> None:
        self._places = places
        self._port = port
        #: Nodes that hear nothing, and are not heard.
        self._held: set[str] = set()
        self._free = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._servers: list[asyncio.Server] = []

    def open(self) -> None:
        """Begin to listen.

        Raises:
            OSError: Another process listens there.
        """
        self._thread.start()
        for address in self._places:
            asyncio.run_coroutine_threadsafe(self._listen(address), self._loop).result()

    def hold(self, node: str) -> None:
        """Keep what is sent to a node and by it, until `free`; links to it can be made."""
        self._held.add(node)
        self._loop.call_soon_threadsafe(self._free.clear)

    def free(self) -> None:
        """Send what was kept, and all that follows."""
        self._held.clear()
        self._loop.call_soon_threadsafe(self._free.set)

    def close(self) -> None:
        """Cut all links."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._cancel(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    async def _cancel(self) -> None:
        for server in self._servers:
            server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self, address: str) -> None:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._join(address, reader, writer)
            writer.close()

        self._servers.append(await asyncio.start_server(accept, address, self._port))

    async def _join(self, to: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readexactly(_HEAD_BYTES)
        ends = {to, ".".join(map(str, head[9:13]))}
        there_reader, there_writer = await asyncio.open_connection(self._places[to], self._port)
        there_writer.write(head)
        await asyncio.gather(self._carry(ends, reader, there_writer), self._carry(ends, there_reader, writer))

    async def _carry(self, ends: set[str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await reader.read(_CHUNK_BYTES):
                while ends & self._held:
                    await self._free.wait()
                writer.write(chunk)
                await writer.drain()
        writer.close()
