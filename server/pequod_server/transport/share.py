"""The share of one connection in its server's budget, and what becomes of its calls where it is passed.

it sends more than calls take      -> its newest requests are refused
it does not read what calls reply  -> its calls do not begin   -> it reads: they begin
                                                               -> it does not for a while: they are refused
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import grpc

from pequod.errors import LimitExceededError, PequodError
from pequod.native.http2 import Fields, NativeSession
from pequod_server.memory import admission
from pequod_server.transport.budget import Budget
from pequod_server.transport.call_turns import CallTurns
from pequod_server.transport.exchange import Exchange


class Holder(Protocol):
    """A connection, as its share sees it."""

    exchanges: dict[int, Exchange]
    #: The headers of calls that have not begun, by their streams.
    waiting: dict[int, Fields]

    @property
    def buffered_bytes(self) -> int:
        """The bytes that the socket has not taken, once it takes no more, and those that wait for the disk."""

    @property
    def has_calls(self) -> bool:
        """Whether calls wait to begin."""

    def begin(self) -> bool:
        """Begin the next call; return whether more may begin."""

    def open(self, stream: int) -> Exchange | None:
        """Return a call with what its headers say; None: it is refused."""

    def hand_over(self) -> None:
        """Make hot calls that wait calls as any."""


class Host(Protocol):
    """The server, as a share sees it."""

    loop: asyncio.AbstractEventLoop
    turns: CallTurns
    budget: Budget
    #: Returns what clients see of an error.
    status_of: Callable[[PequodError], grpc.Status]


class Share:
    """The share of one connection.

    Invariants:
        1. ``_noted_bytes`` of the server's budget are this connection's.
    """

    __slots__ = ("_noted_bytes", "_refusing", "_server", "_session")

    def __init__(self, session: NativeSession, server: Host) -> None:
        self._session = session
        self._server = server
        self._noted_bytes = 0
        #: Refuses the calls that have waited too long for the client to read; None: no call waits for this.
        self._refusing: asyncio.TimerHandle | None = None

    @property
    def allowed_bytes(self) -> int:
        """The bytes that the connection may hold now."""
        return self._server.budget.allowed_bytes(self._noted_bytes)

    @property
    def is_crowded(self) -> bool:
        """Whether more replies wait than may."""
        return self._session.unsent_bytes > self.allowed_bytes

    def note(self, holder: Holder) -> None:
        """Note what the connection holds, and keep it to its share."""
        session, budget = self._session, self._server.budget
        held_bytes = session.total_bytes + holder.buffered_bytes
        if not (held_bytes or self._noted_bytes or holder.has_calls):
            return
        budget.held_bytes += held_bytes - self._noted_bytes
        self._noted_bytes = session.noted_bytes = held_bytes
        if session.held_bytes + session.header_bytes > budget.allowed_bytes(held_bytes):
            self._shed(holder)
        if holder.has_calls:
            if self.is_crowded:
                self.wait(holder)
            else:
                self._server.turns.add(holder.begin)

    def wait(self, holder: Holder) -> None:
        """Begin calls once the client has read of its replies; if it does not for a while, refuse those of now."""
        if self._refusing is None:
            holder.hand_over()
            last = next(reversed(holder.waiting), 0)
            self._refusing = self._server.loop.call_later(admission.WAIT_S, self._refuse, holder, last)

    def give_back(self) -> None:
        """Note that the connection holds nothing any more."""
        if self._refusing is not None:
            self._refusing.cancel()
        self._server.budget.held_bytes -= self._noted_bytes
        self._noted_bytes = 0

    def _refuse(self, holder: Holder, last: int) -> None:
        """Refuse the calls up to a stream that still wait, unless there is room: the client, or others, have read."""
        self._refusing = None
        if self.is_crowded:
            status, error = self._refusal(self._session.unsent_bytes)
            for stream in [stream for stream in holder.waiting if stream <= last]:
                if (exchange := holder.open(stream)) is not None:
                    exchange.refuse(status, error)
        self.note(holder)

    def _shed(self, holder: Holder) -> None:
        """Refuse requests that wait, the newest first, until the connection holds no more than its share."""
        session, allowed = self._session, self.allowed_bytes
        status, error = self._refusal(session.held_bytes + session.header_bytes)
        holder.hand_over()
        for stream in reversed(tuple(holder.waiting)):
            if session.held_bytes + session.header_bytes <= allowed:
                return
            if (exchange := holder.open(stream)) is not None:
                exchange.refuse(status, error)
        for exchange in reversed(tuple(holder.exchanges.values())):
            if session.held_bytes + session.header_bytes <= allowed:
                return
            if not exchange.is_reading:
                exchange.refuse(status, error)

    def _refusal(self, held_bytes: int) -> tuple[grpc.Status, Any]:
        error = LimitExceededError("messages_bytes_max", held_bytes, self.allowed_bytes)
        return self._server.status_of(error), error
