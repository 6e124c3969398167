"""The hot calls of a connection that do not come alone, or that Python has to take note of.

kept back -> run -> note what they have done -> flush
replies of hot calls that came alone -> send, once the disk has what they say
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Protocol

from pequod.errors import PequodError
from pequod.native.http2 import HotRan, NativeSession
from pequod_server.transport.exchange import Exchange
from pequod_server.transport.hot_calls import HotCalls

log = logging.getLogger("pequod.server")


class HotHost(Protocol):
    """The server of a connection, as its hot calls see it."""

    #: None: no calls are hot.
    hot: HotCalls | None

    @property
    def connections(self) -> Collection[Any]:
        """The present connections."""


class HotConnection(asyncio.BufferedProtocol):
    """A connection, as far as its hot calls are concerned."""

    __slots__ = ("_host", "_is_held", "_kept", "exchanges", "session", "transport")

    transport: asyncio.Transport
    peer: str
    rules: object
    rights_end_s: float
    meters: list[Any]

    def __init__(self, host: HotHost, session: NativeSession) -> None:
        self._host = host
        self.session = session
        #: The calls that have begun and whose streams are open.
        self.exchanges: dict[int, Exchange] = {}
        #: Whether replies wait for the disk, and those that the session has given away already.
        self._is_held = False
        self._kept = b""

    @abstractmethod
    def auth_context(self) -> Mapping[str, list[bytes]]:
        """Return what is known of the client."""

    @abstractmethod
    def flush(self) -> None:
        """Send what there is."""

    def abort(self) -> None:
        """Close at once; what was to be sent is dropped."""
        self.transport.abort()

    @abstractmethod
    def _take(self, events: Iterable[tuple[int, int, object] | None]) -> None:
        """Take events of the session."""

    @abstractmethod
    def _note(self) -> None:
        """Note what the connection holds."""

    def _run_hot(self, most: int, allowed_bytes: int) -> None:
        """Answer hot calls, and send their replies, if possible. Those that are not answered are calls as any.

        Args:
            most: Of them, and of batches.
            allowed_bytes: No call is begun while as many bytes of replies wait.
        """
        session, hot = self.session, self._host.hot
        assert hot is not None, "calls are kept back for it"
        turn = None if session.unsent_bytes > allowed_bytes else hot.turn(self)
        if turn is None:
            session.hand_over()
        else:
            try:
                ran = session.run_hot(most, allowed_bytes, turn)
            except Exception as error:
                self._end_for(error)
                return
            self._take_note(ran)
        self._take(session.events())
        if turn is not None:
            self.flush()

    def _take_note(self, ran: HotRan) -> None:
        """Take note of what hot calls have done, whose replies go if they may."""
        hot = self._host.hot
        assert hot is not None, "it has said what holds for them"
        try:
            if self._note_hot(hot, ran):
                self._is_held = not hot.settled(self._settled)
        except Exception as error:
            self._end_for(error)

    def _end_for(self, error: Exception) -> None:
        """End the connection: nobody knows what has run, and the client is not to wait for it."""
        log.error("a defect ended a connection", exc_info=error)
        self.abort()

    def _send(self, replies: bytes) -> None:
        """Send the replies of hot calls, if the disk lets them leave."""
        hot = self._host.hot
        assert hot is not None, "they are its"
        if hot.settled(self._settled):
            self.transport.write(replies)
        else:
            self._kept, self._is_held = replies, True
            self._note()

    def _note_hot(self, hot: HotCalls, ran: HotRan) -> bool:
        """Take note of what has run, and go on with a batch that is not quick; return whether there may be replies."""
        answered, slow, streams, slow_batches, begun = ran
        if slow or slow_batches:
            hot.were_slow(slow or (), slow_batches or ())
        if streams:
            hot.answered([self._task_of(stream) for stream in streams])
        if begun is not None:
            stream, batch = begun
            self.exchanges[stream].readable(hot.go_on(self._task_of(stream), batch))
        return answered > 0 or streams is not None or begun is not None

    def _task_of(self, stream: int) -> asyncio.Task[None]:
        task = self.exchanges[stream].task
        assert task is not None, "it has taken a message"
        return task

    def _settled(self, error: PequodError | None) -> None:
        """Send what has waited for the disk, or nothing of it: what its clients would be told is undone."""
        if error is not None:
            self.abort()
        elif self in self._host.connections:
            kept, self._kept, self._is_held = self._kept, b"", False
            if kept:
                self.transport.write(kept)
            self.flush()
