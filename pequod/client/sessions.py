"""Sessions of the clients of servers: each call shows at least what the session has seen.

session.put    -> the put as always                          the reply's token is merged into the session's
session.get    -> a read after the session's token           the same
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from pequod_proto import pequod_pb2 as pb

from pequod.calls import AnyToken, to_token
from pequod.client.columns import Columns, Reply
from pequod.client.requests import ServerCalls
from pequod.client.stream import Deliver
from pequod.errors import PequodError
from pequod.freshness import WAIT_S, Freshness, Token
from pequod.interface import AsyncSession
from pequod.interface.commands import Turn
from pequod.interface.seen import Seen

T = TypeVar("T")


class AsyncServerSession(ServerCalls, AsyncSession):
    """A view of a client that never goes back: see `AsyncCalls.session`."""

    def __init__(self, client: ServerCalls, token: AnyToken | None, wait_s: float) -> None:
        self._client = client
        self._link = client._link
        self._seen = Seen(to_token(token), wait_s)
        self._unary = self._noted_unary

    @property
    def token(self) -> Token:
        """The state that the session has seen; as text, in a cookie or a message, it goes to another session."""
        return self._seen.token

    async def close(self) -> None:
        """End the session; the client, which others may use, stays open."""

    def session(self, token: AnyToken | None = None, *, wait_s: float = WAIT_S) -> AsyncServerSession:
        """Return a view of this client whose reads never go back: they show what calls of the session have shown.

        A read shows what the session has written and read by the calls that ended before it, whichever server beside
        the same database it asks; otherwise it fails with StaleError after ``wait_s``.

        Args:
            token: What an earlier session has seen; this one goes on from there.
        """
        return AsyncServerSession(self._client, token, wait_s)

    def send(self, columns: Columns, deliver: Deliver) -> None:
        """Send a batch, in the event loop; ``deliver`` is called once, with the reply or with the error.

        Reads that the server cuts short are continued first. The columns must not change any more.
        """
        self._link.run_in_order(columns, self._send, deliver)

    def _send(self, columns: Columns, deliver: Deliver) -> None:
        if columns.has_reads():
            columns.freshness = self._seen.level(columns.freshness)
            columns.overrides = {at: self._seen.added(freshness) for at, freshness in columns.overrides.items()}

        def note_first(outcome: Reply | PequodError) -> None:
            if not isinstance(outcome, PequodError):
                self._seen.note(outcome.token)
            deliver(outcome)

        self._client.send(columns, note_first)

    def _level(self, freshness: Freshness | None) -> Freshness | None:
        return self._seen.level(freshness)

    def _writing(self) -> Turn:
        turn = self._client._writing()
        turn.tell(self._seen)
        return turn

    def _reading(self, freshness: Freshness | None) -> Turn:
        turn = self._client._reading(self._seen.level(freshness))
        turn.tell(self._seen)
        return turn

    async def _noted_unary(
        self, name: str, request: object, text: str | None = None, *, timeout_s: float | None = None
    ) -> Any:
        reply = await self._client._unary(name, request, text, timeout_s=timeout_s)
        self._seen.note(reply.header.token)
        return reply

    async def _in_loop(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return await self._client._in_loop(coroutine)

    def _note(self, header: pb.Header) -> None:
        super()._note(header)
        self._seen.note(header.token)
