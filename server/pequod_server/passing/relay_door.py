"""Where a worker takes reads that others pass on: their bytes go to the native core, and its replies back.

read of a socket -> RelayEnd.run -> replies -> a disk has what they say -> write
                    lacks a state      waits for it a little; what is not reached goes back
                    lacks rights       those of the role
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Literal, Protocol, cast

from pequod.errors import PequodError
from pequod.native.http2 import HotTurn, NativeHotCalls, Ranges, SlowBatch, SlowCall
from pequod.native.http2.relay import Lack, new_relay_end

log = logging.getLogger("pequod.server")

#: One read of a link: what is answered in one turn of the event loop.
_READ_BYTES: Final = 16 << 10
#: How long a state is waited for, and how often it is looked for.
_WAIT_S: Final = 0.02
_LOOK_S: Final = 0.001


class RelayHost(Protocol):
    """The hot calls of this worker, as its door sees them."""

    native: NativeHotCalls

    def relay_turn(self) -> HotTurn | None:
        """Return what holds for the calls of a read; None: none may be answered."""

    def has_come_to(self, token: bytes) -> bool:
        """Return whether a state is reached that a token names."""

    def readable_as(self, authorization: bytes) -> Ranges | Literal[False]:
        """Return what a role may read, by the header of a worker; False: there is no such role."""

    @property
    def rules(self) -> object:
        """The access rules; another object where they have changed."""

    def settled(self, then: Callable[[PequodError | None], None]) -> bool:
        """Return whether replies may leave; if not, ``then`` is called when they may, or with why they may not."""

    def were_slow(self, calls: Sequence[SlowCall], batches: Sequence[SlowBatch]) -> None:
        """Take note of calls that took long."""


class _Connection(asyncio.BufferedProtocol):
    """One connection of another worker.

    Invariants:
        1. Nothing runs while a state is waited for, and nothing is written while replies are held.
    """

    def __init__(self, host: RelayHost, connections: set[_Connection]) -> None:
        self._host = host
        self._connections = connections
        self._native = new_relay_end(host.native)
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._transport: asyncio.Transport
        self._rules: object = None
        self._waiting: asyncio.Task[None] | None = None
        #: Replies that wait for the disk.
        self._held = b""
        self._is_held = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take calls."""
        self._transport = cast("asyncio.Transport", transport)
        self._connections.add(self)

    def connection_lost(self, _error: Exception | None) -> None:
        """Forget it."""
        self._connections.discard(self)
        if self._waiting is not None:
            self._waiting.cancel()

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return where the next bytes go."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Answer what has come."""
        self._native.receive(self._buffer[:nbytes])
        if self._waiting is None:
            self._run()

    def _run(self) -> None:
        host, native = self._host, self._native
        turn = host.relay_turn()
        if host.rules is not self._rules:
            self._rules = host.rules
            native.forget()
        try:
            while lack := native.run(turn):
                if lack == Lack.RIGHTS:
                    native.admit(host.readable_as(native.role))
                elif host.has_come_to(native.token):
                    native.reach(True)  # noqa: FBT003 - native
                else:
                    self._waiting = asyncio.get_running_loop().create_task(self._wait(native.token))
                    break
        except ConnectionError as error:
            log.error("a link of another worker is broken", extra={"reason": str(error)})  # noqa: TRY400
            self.abort()
            return
        if (slow := native.take_slow()) is not None:
            host.were_slow(slow, ())
        self._send(native.output())

    async def _wait(self, token: bytes) -> None:
        """Go on once a state is reached, or has not been for a while."""
        loop, host = asyncio.get_running_loop(), self._host
        end_s = loop.time() + _WAIT_S
        while not (is_reached := host.has_come_to(token)) and loop.time() < end_s:  # noqa: ASYNC110 - many wait
            await asyncio.sleep(_LOOK_S)
        self._waiting = None
        self._native.reach(is_reached)
        self._run()

    def _send(self, replies: bytes) -> None:
        if self._is_held:
            self._held += replies
        elif not replies:
            return
        elif self._host.settled(self._settled):
            self._transport.write(replies)
        else:
            self._held, self._is_held = replies, True

    def _settled(self, error: PequodError | None) -> None:
        """Send what has waited for the disk, or nothing of it: what it shows is undone."""
        held, self._held, self._is_held = self._held, b"", False
        if error is not None:
            self.abort()
        elif self in self._connections:
            self._send(held)

    def abort(self) -> None:
        """Close at once: the calls of the other worker begin anew."""
        self._transport.abort()


class RelayDoor:
    """The socket where other workers reach this one."""

    def __init__(self, host: RelayHost, path: str) -> None:
        self._host = host
        self._path = Path(path)
        self._connections: set[_Connection] = set()
        self._server: asyncio.AbstractServer | None = None

    async def open(self) -> None:
        """Take calls of other workers.

        Raises:
            OSError: The socket cannot be made.
        """
        # Left behind by the process that was this worker before.
        self._path.unlink(missing_ok=True)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: _Connection(self._host, self._connections), self._path)

    async def close(self) -> None:
        """Take no more calls."""
        if self._server is None:
            return
        self._server.close()
        for connection in tuple(self._connections):
            connection.abort()
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
        self._server = None
