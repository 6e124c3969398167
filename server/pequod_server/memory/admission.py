"""The memory for messages on their way: one pool of bytes for all calls.

    request -> read() -------------------> parsed, handled -> reply
               places for unread requests
    scan ----> some() or bytes() --------> chunk made, sent and taken -> given back

The size of a request is not known before gRPC has all of it, so a request has to wait for a place before it is read:
see `places.py`. A client that begins a call and sends nothing would keep its place. So places are given back after a
moment: a request that is sent at once has come by then. In a stream of batches, only the first batch needs a place; a
stream must be allowed to read the next ones before anyone knows when they come. `pressure.py` bounds what such calls
receive nevertheless.

A chunk that its client does not take keeps its bytes, for as long as the client likes: gRPC cannot take it back. So a
scan gets a small share of the free bytes. The more chunks are not taken, the smaller the next ones are; when nothing is
free, scans wait for a while and are then refused. A call that waits holds nothing that others wait for. The pieces of a
batch's reply get a share in the same way, but never wait: they have at least 16 KiB, and only longer ones count. A row
that is too long for such a piece waits like a scan.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final, TypeVar

from pequod.engine import UNLIMITED, LimitExceededError
from pequod_server.config import ServerConfig
from pequod_server.memory.begun import connection_calls_max
from pequod_server.memory.keeper import limit_bytes
from pequod_server.memory.places import Places
from pequod_server.memory.pressure import Pressure
from pequod_server.setting_kinds import MIB

Message = TypeVar("Message")
#: The default length of the longest request, as a share of the limit of memory and in bytes.
_LONGEST_SHARE: Final = 1 / 64
_LONGEST_BYTES: Final = (4 * MIB, 64 * MIB)
#: The pool's share of the limit, and its size without a limit.
_POOL_SHARE: Final = 1 / 16
_POOL_BYTES: Final = 1024 * MIB
#: The memory for request ids: this part of the limit, and no more than these bytes.
_IDS_SHARE: Final = 64
_IDS_BYTES: Final = 64 * MIB
#: A message is in memory this many times while it is read or sent: in gRPC's buffers, as bytes and as a message.
COPIES: Final = 4
#: How long a call waits for memory before it is refused.
WAIT_S: Final = 5.0
#: A piece of a batch's reply with at most this many bytes of rows is not counted.
SMALL_BYTES: Final = 16 << 10
#: A scan gets the free bytes divided by the first, and at least the second; the third, a share of the pool, is kept for
#: such smallest pieces.
_SHARES: Final = 8
_SOME_BYTES_MIN: Final = 16 << 10
_SMALLEST_SHARE: Final = 1 / 3


def message_bytes_max(config: ServerConfig) -> int:
    """Return the length of the longest message."""
    if config.message_bytes_max:
        return config.message_bytes_max
    least, most = _LONGEST_BYTES
    return int(min(max(limit_bytes(config.memory_limit) * _LONGEST_SHARE, least), most))


def messages_bytes_max(config: ServerConfig) -> int:
    """Return the memory for messages on their way, together."""
    if config.messages_bytes_max:
        return config.messages_bytes_max
    limit = limit_bytes(config.memory_limit)
    return _POOL_BYTES if limit >= UNLIMITED else int(limit * _POOL_SHARE)


def request_ids_bytes_max(config: ServerConfig) -> int:
    """Return the memory for request ids and their outcomes, together."""
    return config.request_ids_bytes_max or min(limit_bytes(config.memory_limit) // _IDS_SHARE, _IDS_BYTES)


class Admission:
    """A pool of bytes; waiting calls are served in their order.

    Invariants:
        1. ``free_bytes`` and the held bytes make ``bytes_max``. Pieces of batches take bytes without waiting, so it may
        be negative.
    """

    def __init__(self, config: ServerConfig) -> None:
        self.bytes_max = messages_bytes_max(config)
        self.free_bytes = self.bytes_max
        self._kept_bytes = int(self.bytes_max * _SMALLEST_SHARE)
        self._reply_bytes_max = config.reply_bytes_max
        #: The free bytes with which a small reply may be made at once; those with which a piece has no other limit.
        self._least_bytes = self._kept_bytes + _SHARES * COPIES * SMALL_BYTES
        self._plenty_bytes = self._kept_bytes + _SHARES * COPIES * max(config.reply_bytes_max, SMALL_BYTES)
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        longest_bytes = message_bytes_max(config)
        #: Where requests wait to be read.
        self.places = Places(self.bytes_max // COPIES, longest_bytes)
        #: Ends calls whose requests do not come, if memory is short.
        self.pressure = Pressure(
            limit_bytes(config.memory_limit),
            max(self.bytes_max // longest_bytes, 1),
            self.places,
            # One connection that has all calls that it may have is no reason to refuse those of others.
            calls_at_ease=2 * connection_calls_max(config),
        )

    async def read(self, peer: str, read: Callable[[], Awaitable[Message]]) -> Message:
        """Return a request that ``read`` reads, once there is a place for it; ``peer`` names the connection.

        Raises:
            LimitExceededError: The request did not come in a moment, and the server is above its limit of memory or
                has as many calls as it may have.
        """
        async with self.places.reading(peer) as reading:
            message = await read()
            # Anything else is the end of the requests.
            if isinstance(message, bytes):
                reading.size_bytes = len(message)
            return message

    @asynccontextmanager
    async def some(self, wanted_bytes: int) -> AsyncIterator[int]:
        """Hold bytes for a part of a longer reply; yield how many, at most ``wanted_bytes``.

        Raises:
            LimitExceededError: There was no room for a while.
        """
        granted = min(wanted_bytes, max((self.free_bytes - self._kept_bytes) // _SHARES, _SOME_BYTES_MIN))
        async with self.bytes(granted):
            yield granted

    @property
    def at_once_bytes(self) -> int:
        """How long a piece of a reply may be that is made at once; 0: none may, since calls wait for memory."""
        if self._waiting or self.free_bytes < self._least_bytes:
            return 0
        return self._reply_bytes_max if self.free_bytes >= self._plenty_bytes else self.piece_bytes_max()

    def chunks(self, chunk_bytes: int) -> Chunks:
        """Return what holds memory for the chunks of a reply, of ``chunk_bytes`` at most on the wire."""
        return Chunks(self, chunk_bytes)

    def piece_bytes_max(self) -> int:
        """Return the size of the next piece of a batch's reply: plain integers, since each batch calls this.

        The piece is counted when it is made, if it is larger than ``SMALL_BYTES``, which it may always be.
        """
        granted = (self.free_bytes - self._kept_bytes) // (_SHARES * COPIES)
        if granted > self._reply_bytes_max:
            return self._reply_bytes_max
        return granted if granted > SMALL_BYTES else min(SMALL_BYTES, self._reply_bytes_max)

    @contextmanager
    def taken(self, count: int) -> Iterator[None]:
        """Count bytes that are in memory already."""
        self.free_bytes -= count
        try:
            yield
        finally:
            self.release(count)

    @asynccontextmanager
    async def bytes(self, count: int) -> AsyncIterator[int]:
        """Hold bytes, and yield how many: a call that needs more than the whole pool gets the whole pool.

        Raises:
            LimitExceededError: There was no room for a while.
        """
        count = await self.acquire(count)
        try:
            yield count
        finally:
            self.release(count)

    async def acquire(self, count: int) -> int:
        """Take bytes, and return how many, which the caller gives back; see `bytes`."""
        count = min(count, self.bytes_max)
        if not self._waiting and count <= self.free_bytes:
            self.free_bytes -= count
            return count
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = count, admitted
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(WAIT_S):
                await admitted
        except BaseException as error:
            if admitted.done() and not admitted.cancelled():
                self.release(count)
            else:
                with suppress(ValueError):
                    self._waiting.remove(entry)
                self._admit()
            if isinstance(error, TimeoutError):
                used_bytes = self.bytes_max - self.free_bytes
                raise LimitExceededError("messages_bytes_max", used_bytes + count, self.bytes_max) from None
            raise
        return count

    def release(self, count: int) -> None:
        """Give bytes back."""
        self.free_bytes += count
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._waiting[0][0] <= self.free_bytes:
            count, admitted = self._waiting.popleft()
            if not admitted.done():
                self.free_bytes -= count
                admitted.set_result(None)


class Chunks:
    """Memory for the chunks of one reply, which are made and sent one after another.

    A chunk may have a part of the memory that is free. If its first row needs more than this, the chunk is not sent:
    it is made again, with memory for this row.
    """

    __slots__ = ("_admission", "_chunk_bytes", "_room_bytes", "_row_bytes")

    def __init__(self, admission: Admission, chunk_bytes: int) -> None:
        self._admission = admission
        self._chunk_bytes = chunk_bytes
        #: The bytes that the present chunk may have on the wire.
        self._room_bytes = 0
        #: The bytes of the next chunk's first row, if they did not fit into the present chunk; else 0.
        self._row_bytes = 0

    @asynccontextmanager
    async def room(self) -> AsyncIterator[int]:
        """Hold memory for the next chunk, and yield how many bytes it may have on the wire.

        Raises:
            LimitExceededError: There was no room for a while.
        """
        parts, row_bytes = self._admission, self._row_bytes
        async with parts.bytes(COPIES * row_bytes) if row_bytes else parts.some(COPIES * self._chunk_bytes) as held:
            self._room_bytes = held // COPIES
            yield self._room_bytes

    def has_room(self, size_bytes: int) -> bool:
        """Return whether a chunk of this size may be sent; else it is made again with the next room."""
        is_larger = not self._row_bytes and size_bytes > self._room_bytes
        self._row_bytes = size_bytes if is_larger else 0
        return not is_larger
