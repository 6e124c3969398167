"""One Execute stream: batches go out in order, and their replies come back in the same order.

    send(batch) -> queue -> wire
    wire -> the oldest batch; the pieces of a reply are appended

A transport brings the way to the wire and back: tasks that await (see awaited_stream.py), or functions that are called
(see pushed_stream.py).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import grpc
from grpc.aio import AioRpcError
from pequod_proto.pequod_pb2 import ExecuteReply

from pequod.calls import token_of_reply
from pequod.client.columns import Columns, Reply, decode_reply, decode_whole, encode_request
from pequod.client.decode import refusal, unavailable
from pequod.errors import PequodError, UnavailableError

#: Takes a reply, or the error in its place.
Deliver = Callable[[Reply | PequodError], None]

#: Codes of a stream's end that would come again at another attempt. A server that dies may end it with any other code.
_REFUSALS: Final = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNIMPLEMENTED,
)


def _ignore(_: Reply | PequodError) -> None:
    """Ignore the reply to a batch whose caller has given up."""


@dataclass(slots=True, eq=False)
class Sending:
    """A batch on its way, over one stream or several."""

    columns: Columns
    #: The function that gets the outcome; afterwards one that ignores it.
    deliver: Deliver
    #: Ends the batch at its deadline.
    timer: asyncio.TimerHandle | None = None
    #: Its number in the present stream.
    number: int = 0
    #: How often it was returned without a reply, and the error while it waits for the next attempt.
    tries: int = 0
    error: PequodError | None = None
    #: The pieces of its reply so far, appended; None before the first.
    begun: ExecuteReply | None = None
    #: Whether the present stream has begun to write it; before, the server certainly did not apply it.
    is_sent: bool = False

    def take(self, message: bytes) -> Reply | None:
        """Take a message of its reply; return the reply with the last one, None before."""
        if self.begun is None and not self.is_over and (reply := decode_whole(self.columns.kinds, message)) is not None:
            return reply
        piece = ExecuteReply.FromString(message)
        if self.is_over:
            # Its caller does not wait, but its pieces come before the other replies.
            return None if piece.more else Reply(piece.batch, piece.server_id, piece.revision, [], piece.token)
        whole = self.add(piece)
        return None if piece.more else decode_reply(self.columns.kinds, whole)

    def add(self, piece: ExecuteReply) -> ExecuteReply:
        """Append a piece to those before; return them together."""
        if self.begun is None:
            self.begun = piece
        else:
            statuses = self.begun.statuses + piece.statuses
            token = token_of_reply(self.begun.token).merged(token_of_reply(piece.token))
            # All columns are repeated fields, to which this appends.
            self.begun.MergeFrom(piece)
            self.begun.statuses = statuses
            if token.positions:
                self.begun.token = bytes(token)
        return self.begun

    def outcome_of(self, error: PequodError) -> PequodError:
        """Return the error of this batch when its stream has ended with ``error``."""
        if not isinstance(error, UnavailableError):
            return error
        if self.is_sent:
            return error.of(writes=self.columns.has_writes())
        return UnavailableError(error.target, error.reason, is_unapplied=True)

    def end(self, outcome: Reply | PequodError) -> None:
        """Deliver the outcome, if none was delivered before."""
        if self.timer is not None:
            self.timer.cancel()
        deliver, self.deliver = self.deliver, _ignore
        deliver(outcome)

    @property
    def is_over(self) -> bool:
        """Whether an outcome was delivered."""
        return self.deliver is _ignore


#: Gets the batches without a whole reply, in their order, and the error of the stream.
TakeBack = Callable[[list["Sending"], PequodError], None]
#: Gets a batch for which a piece of the reply has come that is not the last one.
Renew = Callable[["Sending"], None]


class BatchStream(ABC):
    """A live Execute call; when it breaks, the batches under way are returned, and a new stream must be made.

    Nothing is written before there is a connection: a transport would take it, and not say whether it went out.

    Invariants:
        1. Batches under way are in ``_waiting`` in the order of their sending. A batch that met its deadline stays
        there until its reply comes, since replies come in order.
        2. Once ``broken`` is set, no batch is waiting.
    """

    def __init__(self, target: str, take_back: TakeBack, renew: Renew) -> None:
        self._target = target
        self._take_back = take_back
        self._renew = renew
        self._waiting: deque[Sending] = deque()
        self._outgoing: deque[Sending] = deque()
        self._sent = 0
        #: The error of a stream that cannot be used any more.
        self.broken: PequodError | None = None

    def send(self, sending: Sending) -> None:
        """Send a batch; it ends with its reply, or is returned."""
        assert self.broken is None, "a broken stream is replaced"
        self._sent += 1
        sending.number = self._sent
        self._waiting.append(sending)
        self._outgoing.append(sending)
        self._go_on()

    @abstractmethod
    def doubt(self) -> None:
        """See whether the server is alive, since a reply is late."""

    @abstractmethod
    def _go_on(self) -> None:
        """Write what there is, as soon as that is possible."""

    @abstractmethod
    def _leave(self) -> None:
        """End the call: the stream is broken."""

    @abstractmethod
    async def close(self) -> None:
        """End the call; batches under way fail."""

    def _next_request(self) -> bytes | None:
        """Return the message of the next batch, which is written now; None: no batch is to be sent."""
        while self._outgoing:
            sending = self._outgoing.popleft()
            if sending.is_over:
                # It is late before it was sent: its caller has given up, so it must not change anything.
                self._waiting.remove(sending)
                continue
            sending.is_sent = True
            columns = sending.columns
            request = encode_request(sending.number, columns.kinds, columns.arguments, columns.numbers)
            # Fields of a message may come in any order.
            return request + columns.other_fields()
        return None

    def _take(self, message: bytes) -> None:
        """Take a message of the oldest batch's reply."""
        if not self._waiting:
            self._break(UnavailableError(self._target, "it replied to a batch that was not sent"))
            return
        sending = self._waiting[0]
        reply = sending.take(message)
        if reply is not None:
            if reply.batch != sending.number:
                text = f"it replied to batch {reply.batch} of a stream before batch {sending.number}"
                self._break(UnavailableError(self._target, text))
                return
            self._waiting.popleft()
            sending.end(reply)
        elif not sending.is_over:
            self._renew(sending)

    def _why(self, status: AioRpcError) -> PequodError:
        """Return the error of the ended stream; unless it is clearly our fault, the server went away."""
        code = status.code()
        if code in _REFUSALS:
            return refusal(status, self._target)
        reason = status.details() or f"the server ended the stream ({code.name})"
        return unavailable(self._target, reason, status.trailing_metadata())

    def _break(self, error: PequodError) -> None:
        if self.broken is not None:
            return
        self.broken = error
        self._leave()
        unanswered = [sending for sending in self._waiting if not sending.is_over]
        self._waiting.clear()
        self._take_back(unanswered, error)

    def abandon(self, error: PequodError) -> None:
        """End the call at once, as if it had broken with this error."""
        self._break(error)

    def _lost_track(self) -> UnavailableError:
        """Return the error of a defect of ours: the callers get it, and the next call makes a new stream."""
        return UnavailableError(self._target, "the client lost track of its stream")
