"""One connection of a client as an asyncio protocol: between a socket and the native session, and calls.

made -> greeted by the server: calls begin -> leaving: no more calls begin, and it closes with the last -> lost
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from typing import Any, Final, Protocol, cast

from grpc import StatusCode

from pequod.native.http2.client import ClientEvent, End, NativeClientSession
from pequod.wire.call import WireCall
from pequod.wire.ends import Status
from pequod.wire.metadata import timeout_of

#: The bytes that the socket gets at a time, and in one turn of the event loop; and those that are read at a time.
_OUTPUT_BYTES: Final = 64 << 10
_TURN_BYTES: Final = 256 << 10
_INPUT_BYTES: Final = 64 << 10
#: How long a server has to give a sign of life after a call was late.
_SIGN_S: Final = 5.0
#: How long a connection may take to close.
_END_S: Final = 0.5
_DONE, _MESSAGE, _EMPTIED, _ENDED = ClientEvent.DONE, ClientEvent.MESSAGE, ClientEvent.EMPTIED, ClientEvent.ENDED
_GREETED: Final = ClientEvent.GREETED
_SILENT: Final = "the server gave no sign of life"


class ConnectionOwner(Protocol):
    """The channel of a connection."""

    loop: asyncio.AbstractEventLoop
    #: A connection with calls that has said nothing for so long is asked for a sign of life, and has as long to answer;
    #: 0: none is asked.
    keepalive_s: float

    def leave(self, connection: ClientConnection) -> None:
        """Begin no more calls on a connection: the server takes none."""

    def lost(self, connection: ClientConnection) -> None:
        """Forget a connection."""


class ClientConnection(asyncio.BufferedProtocol):
    """One connection to a server.

    Invariants:
        1. ``calls`` has the calls that have a stream of it, by their streams.
    """

    __slots__ = (
        "_buffer", "_doubt", "_is_flushing", "_is_full", "_is_pinged", "_look", "_owner", "_read_count", "_seen_count",
        "calls", "greeted", "is_leaving", "over", "session", "transport", "why",
    )  # fmt: skip

    def __init__(self, owner: ConnectionOwner, session: NativeClientSession) -> None:
        self._owner = owner
        self.session = session
        self.calls: dict[int, WireCall] = {}
        #: The server has said hello, or the connection is lost before.
        self.greeted = asyncio.Event()
        self._buffer = memoryview(bytearray(_INPUT_BYTES))
        self._is_flushing = False
        #: Whether the socket takes no more.
        self._is_full = False
        #: Why the connection is lost.
        self.why = ""
        #: Whether the server takes no more calls.
        self.is_leaving = False
        #: Set when the connection is lost.
        self.over = asyncio.Event()
        #: How many reads there were, and how many of them before the last look; whether the server was asked at that.
        self._read_count = self._seen_count = 0
        self._is_pinged = False
        self._look: asyncio.TimerHandle | None = None
        #: Gives the connection up, if nothing comes before.
        self._doubt: asyncio.TimerHandle | None = None

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet the server."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=_OUTPUT_BYTES)
        end: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        if end is not None and end.selected_alpn_protocol() != "h2":
            self._lose("the server does not offer HTTP/2 over TLS")
            return
        if self._owner.keepalive_s:
            self._look = self._owner.loop.call_later(self._owner.keepalive_s, self._look_after)
        self.flush()

    def get_buffer(self, _size: int) -> memoryview:
        """Return where the bytes of the next read go."""
        return self._buffer

    def buffer_updated(self, size: int) -> None:
        """Take what a read has brought."""
        self._read_count += 1
        session = self.session
        try:
            events = session.receive(self._buffer[:size])
        except ConnectionError as error:
            self._lose(str(error))
            return
        if events:
            self._take(events)
        if session.has_output or session.is_over:
            self.flush_soon()

    def eof_received(self) -> bool:
        """Close the connection: no server of gRPC closes half of it."""
        return False

    def pause_writing(self) -> None:
        """Give the socket no more."""
        self._is_full = True

    def resume_writing(self) -> None:
        """Go on."""
        self._is_full = False
        self.flush()

    def connection_lost(self, error: Exception | None) -> None:
        """End its calls."""
        for timer in (self._look, self._doubt):
            if timer is not None:
                timer.cancel()
        self.greeted.set()
        self.why = self.why or (f"the connection was lost: {error}" if error else "the server closed the connection")
        self._owner.lost(self)
        calls, self.calls = self.calls, {}
        lost = Status(StatusCode.UNAVAILABLE, self.why, [])
        for call in calls.values():
            call.lose(lost)
        self.session.close()
        self.over.set()

    # What the channel and calls ask of it.

    def begin(self, call: WireCall) -> bool:
        """Begin a call; return False if the connection takes no more."""
        stream = call.open(self, timeout_of)
        if stream:
            self.calls[stream] = call
            self.flush_soon()
        return bool(stream)

    def drop(self, stream: int) -> None:
        """Forget a call."""
        self.calls.pop(stream, None)

    def doubt(self) -> None:
        """Ask the server for a sign of life, since a call was late; close the connection of one that gives none."""
        if self._doubt is None and not self.over.is_set():
            self._doubt = self._owner.loop.call_later(_SIGN_S, self._end_doubt, self._read_count)
            self.session.ping()
            self.flush_soon()

    def flush_soon(self) -> None:
        """Send what there is, after this turn of the event loop."""
        if not self._is_flushing:
            self._is_flushing = True
            self._owner.loop.call_soon(self.flush)

    def flush(self) -> None:
        """Send what there is, until the socket takes no more; the rest of much in the next turn."""
        self._is_flushing = False
        session, written = self.session, 0
        try:
            while not self._is_full:
                if written >= _TURN_BYTES:
                    self.flush_soon()
                    break
                data = session.output(_OUTPUT_BYTES)
                if data:
                    written += len(data)
                    self.transport.write(data)
                if len(data) < _OUTPUT_BYTES:
                    break
        except ConnectionError as error:
            self._lose(str(error))
            return
        if events := session.events():
            self._take(events)
        if session.is_over:
            self._close()

    async def end(self) -> None:
        """Close the connection; it has no calls."""
        self.session.terminate()
        self.flush()
        self._close()
        try:
            async with asyncio.timeout(_END_S):
                await self.over.wait()
        except TimeoutError:
            # The server takes nothing, or does not end its part of TLS.
            self.transport.abort()
            await self.over.wait()

    # Inside.

    def _take(self, events: Iterable[tuple[int, int, Any]]) -> None:
        calls = self.calls
        for kind, stream, detail in events:
            if kind == _DONE:
                if (call := calls.pop(stream, None)) is not None:
                    call.finished(detail)
            elif kind == _ENDED:
                if (call := calls.pop(stream, None)) is not None:
                    call.ended(End(*detail))
            elif kind == _GREETED:
                self.greeted.set()
            elif not stream:
                self.is_leaving = True
                self._owner.leave(self)
            elif (call := calls.get(stream)) is not None:
                if kind == _MESSAGE:
                    call.message(detail)
                else:
                    call.emptied()

    def _look_after(self) -> None:
        """Ask a server that has said nothing for a sign of life; close the connection of one that gives none."""
        if self._read_count > self._seen_count or not self.calls:
            self._seen_count, self._is_pinged = self._read_count, False
        elif self._is_pinged:
            self._lose(_SILENT)
            return
        else:
            self._is_pinged = True
            self.session.ping()
            self.flush()
        self._look = self._owner.loop.call_later(self._owner.keepalive_s, self._look_after)

    def _end_doubt(self, read_count: int) -> None:
        self._doubt = None
        if self._read_count == read_count:
            self._lose(_SILENT)

    def _lose(self, why: str) -> None:
        self.why = why
        self._owner.leave(self)
        self.transport.abort()

    def _close(self) -> None:
        # Of a transport of TLS that closes, asyncio lets go at the second time: it could not be aborted any more.
        if not self.transport.is_closing():
            self.transport.close()
