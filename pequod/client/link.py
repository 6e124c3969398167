"""What the calls of a client go through: a connection to one server, or those to the servers of a cluster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Protocol

from pequod_proto import pequod_pb2 as pb

from pequod.calls import WatchEvent, token_of_reply
from pequod.client.columns import Columns
from pequod.client.decode import age_ms_of
from pequod.client.stream import Deliver
from pequod.client.watch_ranges import RangesEvent, WatchedRange
from pequod.freshness import Token


class Sender(Protocol):
    """Sends batches; ``deliver`` is called once, with the reply or the error. The columns must not change any more."""

    def send(self, columns: Columns, deliver: Deliver, deadline: float | None = None) -> None:
        """Send a batch in the order of sending.

        Args:
            deadline: By the loop's clock; without it, ``timeout_s`` from now.
        """

    def send_reached(self, columns: Columns, deliver: Deliver, deadline: float) -> None:
        """Send reads after tokens that the latest reply has reached, so that none is likely to wait."""

    def send_waiting(self, columns: Columns, deliver: Deliver, deadline: float) -> None:
        """Send reads that may wait for their levels, in no order with other batches."""

    async def close(self) -> None:
        """End; batches under way fail."""


class Link(ABC):
    """The way of a client's calls to a server or a cluster, for one event loop.

    Args:
        timeout_s: How long a call may take, all attempts together.
        retries: How often a call is tried again.
    """

    def __init__(self, target: str, timeout_s: float, retries: int) -> None:
        self.target = target
        #: The transport of its calls; of a cluster, that of each of its seeds.
        self.transport = ""
        self.timeout_s = timeout_s
        self.retries = retries
        #: The server's id and revision in the latest reply; 0 before the first, and after a reply of several servers.
        self.server_id = 0
        self.revision = 0
        #: The state that it shows, and how old that was at most; None if it is not known.
        self.token = b""
        self.age_ms: int | None = None
        #: Whether calls are refused.
        self.is_closed = False

    def refuse_calls(self) -> None:
        """Refuse calls from now on; calls under way continue until `close`."""
        self.is_closed = True

    @abstractmethod
    async def close(self) -> None:
        """Close the connections; calls under way fail. Closing twice is no error."""

    @abstractmethod
    def sender(self) -> Sender:
        """Return what sends batches."""

    def has_reached(self, token: Token) -> bool:
        """Return whether a read after this token may share a batch with others: it is not likely to wait."""
        return token_of_reply(self.token).has(token)

    def run_in_order(self, columns: Columns, send: Callable[[Columns, Deliver], None], deliver: Deliver) -> None:
        """Send a batch of a session whose reads show at least the writes before them; one server runs it in order.

        Args:
            send: Sends commands with what the session has seen by then.
        """
        send(columns, deliver)

    @abstractmethod
    async def unary(self, name: str, request: Any, text: str | None = None, *, timeout_s: float | None = None) -> Any:
        """Make a call that has one reply, and return the reply.

        Args:
            name: The name of the method.
            text: The text that a join error points into.
        """

    @abstractmethod
    def chunks(self, request: pb.ScanRequest, note: Callable[[pb.Header], None]) -> AsyncGenerator[pb.ScanReply]:
        """Yield the chunks of a scan; if a connection breaks, continue after the last chunk.

        Args:
            note: Notes the state that a chunk shows.
        """

    @abstractmethod
    def watch(
        self, request: pb.WatchRequest, reconnect_s: float, note: Callable[[pb.Header], None]
    ) -> AsyncGenerator[WatchEvent]:
        """Yield the events of a range, the first as soon as the watch is established.

        Args:
            reconnect_s: How long to try to reach a server again.
            note: Notes the state that an event shows.
        """

    @abstractmethod
    def watch_ranges(
        self, ranges: Sequence[WatchedRange], progress_ms: int, note: Callable[[pb.Header], None]
    ) -> AsyncGenerator[RangesEvent]:
        """Yield the events of many ranges, the first as soon as the watch is established.

        Args:
            note: Notes the state that an event shows.
        """

    def note_header(self, header: pb.Header) -> None:
        """Note the state that a reply shows."""
        self.note(header.server_id, header.revision, header.token, age_ms_of(header))

    def note(self, server_id: int, revision: int, token: bytes = b"", age_ms: int | None = None) -> None:
        """Note the server's id and revision in a reply, and the state that it shows."""
        # Replies to concurrent calls may overtake each other.
        self.revision = max(self.revision, revision) if server_id == self.server_id else revision
        self.server_id = server_id
        self.token = token
        self.age_ms = age_ms
