"""One connection as an asyncio protocol: between a socket and the native session, and from its events to calls."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, Protocol, cast

import grpc

from pequod.errors import PequodError
from pequod.native.http2 import EventKind, Fields, HotRan, new_session
from pequod_server.transport.budget import LEAST_BYTES, Budget
from pequod_server.transport.call_turns import CallTurns
from pequod_server.transport.chain import CallDetails
from pequod_server.transport.counts import CallCounts
from pequod_server.transport.exchange import Exchange
from pequod_server.transport.headers import Opening
from pequod_server.transport.hot_calls import HotCalls
from pequod_server.transport.hot_connection import HotConnection
from pequod_server.transport.identity import address_of, auth_context_of
from pequod_server.transport.share import Share

log = logging.getLogger("pequod.server")

#: The bytes that the socket gets at a time, and in one turn of the event loop.
_OUTPUT_BYTES: Final = 64 << 10
_TURN_BYTES: Final = 256 << 10
_HEADER_BYTES_MAX: Final = 16 << 10
#: How many hot calls run when they have just been read, a fifth of a millisecond; and how many in the place of another
#: call, when their turn comes.
_HOT_A_READ: Final = 128
_HOT_A_TURN: Final = 32
_OPENED, _READABLE, _CLOSED = EventKind.OPENED, EventKind.READABLE, EventKind.CLOSED


class Host(Protocol):
    """The server, as its connections see it."""

    loop: asyncio.AbstractEventLoop
    turns: CallTurns
    budget: Budget
    counts: CallCounts
    #: None: no calls are hot.
    hot: HotCalls | None
    #: Where all connections read to: what one has read is taken before the next one reads.
    buffer: memoryview
    #: The present connections, the oldest first.
    connections: dict[WireConnection, None]
    #: Returns the handler of a call.
    find: Callable[[Any], Awaitable[Any]]
    status_of: Callable[[PequodError], grpc.Status]

    @property
    def message_bytes_max(self) -> int:
        """The longest message."""

    @property
    def streams_max(self) -> int:
        """How many streams one connection may have."""

    @property
    def unread_bytes_max(self) -> int:
        """How much of a request a client may send before the call asks for it."""

    def begin(self, exchange: Exchange) -> asyncio.Task[None]:
        """Run a call in a task of its own."""


class WireConnection(HotConnection):
    """One connection of a server.

    Invariants:
        1. ``exchanges`` has the calls that have begun and whose streams are open, ``waiting`` the headers of those
           that have not begun.
    """

    __slots__ = (
        "_begun_count", "_is_flushing", "_is_full", "_pinged_s", "_server", "_share", "buffer_updated",
        "get_buffer", "message_bytes_max", "meters", "number", "opened_s", "peer", "ping_count", "rights_end_s",
        "rules", "waiting",
    )  # fmt: skip

    #: Functions of the session, which the event loop calls for each read of the socket. It calls `_go_on` if there are
    #: more than hot calls.
    get_buffer: Callable[[int], memoryview]  # type: ignore[assignment]
    buffer_updated: Callable[[int], None]  # type: ignore[assignment]

    def __init__(self, server: Host) -> None:
        super().__init__(
            server,
            new_session(server.message_bytes_max, _HEADER_BYTES_MAX, server.streams_max, server.unread_bytes_max),
        )
        self._server = server
        self.message_bytes_max = server.message_bytes_max
        #: By which access rules the session knows rights of hot calls.
        self.rules: object = None
        self.rights_end_s = math.inf
        self.meters: list[Any] = []
        self.get_buffer, self.buffer_updated = self.session.buffer, self.session.updated
        if server.hot is not None:
            self.session.use_hot(server.hot.native, server.hot.has_guard)
        #: The address of the client, as gRPC writes it.
        self.peer = ""
        #: Which connection of the server it is.
        self.number = 0
        self.waiting: dict[int, Fields] = {}
        self._is_flushing = False
        #: Whether the socket takes no more, so that nothing is read from it.
        self._is_full = False
        self._share = Share(self.session, server)
        #: When it began, and when the last ping was sent; 0: none was.
        self.opened_s = server.loop.time()
        self._pinged_s = 0.0
        self._begun_count = self.ping_count = 0

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet the client."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=_OUTPUT_BYTES)
        self.peer = address_of(transport.get_extra_info("peername"), self.number)
        server = self._server
        server.connections[self] = None
        hot = server.hot
        turn = None if hot is None else partial(hot.turn, self)
        send = self.transport.write if hot is None or not hot.has_disk else self._send
        self.session.attach(server.buffer, turn, send, self._go_on, _HOT_A_READ, LEAST_BYTES, _OUTPUT_BYTES)
        self.flush()

    def eof_received(self) -> bool:
        """Close the connection: no client of gRPC closes half of it."""
        return False

    def pause_writing(self) -> None:
        """Read nothing from a client that takes nothing."""
        self._is_full = True
        self.transport.pause_reading()
        self._note()

    def resume_writing(self) -> None:
        """Go on."""
        self._is_full = False
        self.transport.resume_reading()
        self.flush()

    def connection_lost(self, _error: Exception | None) -> None:
        """End its calls."""
        self._server.connections.pop(self, None)
        self._server.turns.remove(self.begin)
        self.waiting.clear()
        self._is_full = False
        self.session.close()
        exchanges, self.exchanges = self.exchanges, {}
        for exchange in exchanges.values():
            self._closed(exchange)
        self._share.give_back()

    @property
    def own_name(self) -> str:
        """The address of this side."""
        return address_of(self.transport.get_extra_info("sockname"), self.number)

    @property
    def read_s(self) -> float:
        """When something came last."""
        return self.session.read_s or self.opened_s

    @property
    def pinged_s(self) -> float | None:
        """When the last ping was sent that nothing has followed; None: there is none."""
        return self._pinged_s if self._pinged_s > self.session.read_s else None

    @property
    def begun_count(self) -> int:
        """How many calls have begun."""
        return self._begun_count + self.session.hot_answered

    # What calls ask of it.

    @property
    def is_crowded(self) -> bool:
        """Whether more replies wait than may."""
        return self._share.is_crowded

    def flush_soon(self) -> None:
        """Send what there is, after this turn of the event loop."""
        if not self._is_flushing:
            self._is_flushing = True
            self._server.loop.call_soon(self.flush)

    def flush_reply(self) -> None:
        """Send what there is: at once if there is no other call, whose reply would go with it."""
        if len(self.exchanges) == 1 and not self.waiting:
            self.flush()
        else:
            self.flush_soon()

    def auth_context(self) -> Mapping[str, list[bytes]]:
        """Return what is known of the client."""
        return auth_context_of(self.transport)

    async def find(self, details: CallDetails) -> Any:
        """Return the handler of a call; None: there is no such method."""
        return await self._server.find(details)

    # What the server asks of it.

    def flush(self) -> None:
        """Send what there is, until the socket takes no more; the rest of much in the next turn."""
        self._is_flushing = False
        written = 0
        try:
            while not (self._is_full or self._is_held):
                if written >= _TURN_BYTES:
                    self.flush_soon()
                    break
                data = self.session.output(_OUTPUT_BYTES)
                if data:
                    written += len(data)
                    self.transport.write(data)
                if len(data) < _OUTPUT_BYTES:
                    break
        except ConnectionError as error:
            self._break(error)
            return
        if events := self.session.events():
            self._take(events)
        self._note()
        if self.session.is_over and not self._is_held:
            self.transport.close()

    def ping(self) -> None:
        """Ask for a sign of life."""
        self._pinged_s = self._server.loop.time()
        self.ping_count += 1
        self.session.ping()
        self.flush()

    def say_last(self, *, is_notice: bool) -> None:
        """Tell the client that no more calls are taken."""
        self.session.say_last(is_notice)
        self.flush()

    def abort(self) -> None:
        """Close at once; what was to be sent is dropped."""
        self.transport.abort()

    def cut_off(self) -> list[asyncio.Task[None]]:
        """Cancel the calls that are under way, and return their tasks."""
        self.waiting.clear()
        tasks = [exchange.task for exchange in self.exchanges.values() if exchange.task is not None]
        for task in tasks:
            task.cancel()
        return tasks

    # Inside.

    def _take(self, events: Iterable[tuple[int, int, object] | None]) -> None:
        for event in events:
            if event is None:
                continue
            kind, stream, detail = event
            if kind == _OPENED:
                self.waiting[stream] = cast("Fields", detail)
            elif kind == _CLOSED:
                if (exchange := self.exchanges.pop(stream, None)) is not None:
                    self._closed(exchange)
                else:
                    self.waiting.pop(stream, None)
            elif (exchange := self.exchanges.get(stream)) is None:
                continue
            elif kind == _READABLE:
                exchange.readable()
            else:
                exchange.drained()

    def _closed(self, exchange: Exchange) -> None:
        exchange.closed()
        # As gRPC does: one that was over before it ran has begun, and has not ended.
        if exchange.has_run:
            self._server.counts.end(is_ok=exchange.is_ok)

    def begin(self) -> bool:
        """Begin the next call, or some hot ones; return whether more may begin."""
        if self.is_crowded:
            self._share.wait(self)
            return False
        if self.session.hot_count and not self._is_held:
            self._run_hot(_HOT_A_TURN, self._share.allowed_bytes)
            return bool(self.waiting or self.session.hot_count)
        if not self.waiting:
            return False
        if (exchange := self.open(next(iter(self.waiting)))) is not None:
            exchange.task = self._server.begin(exchange)
        return bool(self.waiting)

    def _go_on(self, found: Exception | HotRan | None) -> None:
        """Take what a read of the socket has brought, as far as it was not answered; see `NativeSession.attach`."""
        session = self.session
        if isinstance(found, ConnectionError):
            self._break(found)
            return
        if isinstance(found, Exception):
            self._end_for(found)
            return
        if found is not None:
            self._take_note(found)
        if events := session.events():
            self._take(events)
        if found is None and session.hot_count and not self._is_held:
            self._run_hot(_HOT_A_READ, self._share.allowed_bytes)
        if found is not None:
            # All replies go by one write.
            self.flush()
        if self.waiting:
            self._server.turns.begin(self.begin, session.read_s)
        if session.has_output or session.is_over:
            self.flush_soon()
        self._note()

    def open(self, stream: int) -> Exchange | None:
        """Return a call with what its headers say; None: it is refused."""
        fields = self.waiting.pop(stream)
        self._server.counts.begin()
        self._begun_count += 1
        opening = Opening(fields or ())
        if opening.timeout_s is not None:
            # On its way to another worker, its client has waited already.
            opening.timeout_s = max(opening.timeout_s - self.session.waited_s(stream), 0.0)
        exchange = self.exchanges[stream] = Exchange(self, stream, opening, self._server.loop)
        if opening.refusal or fields is None:
            exchange.end_unknown(opening.refusal or "its headers are too long", is_too_long=fields is None)
            return None
        return exchange

    def _note(self) -> None:
        """Note what the connection holds, and whether there is something to do for it beside hot calls."""
        self._share.note(self)
        self.session.is_calm = not (self.waiting or self._is_held or self._is_full)

    @property
    def buffered_bytes(self) -> int:
        """The bytes that the socket has not taken, once it takes no more, and those that wait for the disk."""
        return len(self._kept) + (self.transport.get_write_buffer_size() if self._is_full else 0)

    @property
    def has_calls(self) -> bool:
        """Whether calls wait to begin; hot ones do not while replies wait for the disk."""
        return bool(self.waiting or (self.session.hot_count and not self._is_held))

    def hand_over(self) -> None:
        """Make hot calls that wait, but for those that wait for the disk, calls as any."""
        if self.session.hot_count and not self._is_held:
            self.session.hand_over()
            self._take(self.session.events())

    def _break(self, error: ConnectionError) -> None:
        log.debug("a connection ends", extra={"peer": self.peer, "reason": str(error)})
        self.transport.close()
