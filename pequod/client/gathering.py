"""Commands of one turn of the event loop, in one message.

get, put, scan ... -> turn -> flush -> send -> Lane -> reply -> results
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from pequod.calls import Result
from pequod.client.columns import Columns, Reply
from pequod.client.connection import ServerConnection
from pequod.client.lane import Lane
from pequod.errors import ClosedError, PequodError, UnavailableError

#: The greatest number of commands in an automatic batch: larger ones gain nothing.
COMMANDS_MAX: Final = 512
#: The greatest size of their arguments, without the last command: servers limit the size of messages.
ARGUMENT_BYTES_MAX: Final = 1 << 20

#: Called once, with all results of a batch or with its error.
Deliver = Callable[[list[Result] | PequodError], None]


class Awaited(Protocol):
    """How a caller waits for the result of one command: by a future of the loop, or in another thread."""

    def done(self) -> bool:
        """Return whether there is a result, or the caller has given up."""

    def set_result(self, result: Result, /) -> None:
        """Set the result."""


class Gathered(Columns):
    """The commands of one turn, with the futures of their callers."""

    __slots__ = ("_argument_bytes", "_flush", "_loop", "futures")

    def __init__(self, flush: Callable[[Gathered], None]) -> None:
        super().__init__()
        self.futures: list[Awaited] = []
        self._loop = asyncio.get_running_loop()
        self._flush = flush
        self._argument_bytes = 0

    def last_result(self, argument_bytes: int) -> asyncio.Future[Result]:
        """Return the future of the command that was just added; all commands of the turn are sent as one message."""
        future: asyncio.Future[Result] = self._loop.create_future()
        self.expect(argument_bytes, future)
        return future

    def expect(self, argument_bytes: int, future: Awaited) -> None:
        """Note the future of the command that was just added; it gets the result, or the error as a result."""
        futures = self.futures
        if not futures:
            self._loop.call_soon(self._flush, self)
        futures.append(future)
        self._argument_bytes += argument_bytes
        if len(futures) >= COMMANDS_MAX or self._argument_bytes >= ARGUMENT_BYTES_MAX:
            self._flush(self)


class Gathering:
    """Gathers commands into batches, and sends batches."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._lane = Lane(connection.execute, connection.target, connection.timeout_s, connection.retries)
        #: Batches sent so far.
        self.batches_sent = 0
        #: The commands of this turn; None before the first.
        self._turn: Gathered | None = None

    async def close(self) -> None:
        """End; batches under way fail."""
        await self._lane.close()

    def open(self) -> Gathered:
        """Return the batch of this turn of the loop, to add a command to.

        Raises:
            ClosedError: The connection is closed.
        """
        if self._connection.is_closed:
            raise ClosedError
        return self._opened()

    def add(self, command: Columns, argument_bytes: int, future: Awaited) -> None:
        """Add the command of another thread to this turn of the loop; ``future`` gets its result."""
        turn = self._opened()
        turn.kinds += command.kinds
        turn.arguments += command.arguments
        turn.numbers += command.numbers
        turn.expect(argument_bytes, future)

    def _opened(self) -> Gathered:
        if self._turn is None:
            self._turn = Gathered(self._flush)
        return self._turn

    def _flush(self, turn: Gathered) -> None:
        if turn is not self._turn:
            # The batch was full, and was sent before the loop called this.
            return
        self._turn = None
        deadline = asyncio.get_running_loop().time() + self._connection.timeout_s
        self.send(turn, partial(self._settle, turn, turn.futures, deadline), deadline)

    def _settle(
        self,
        columns: Columns,
        futures: list[Awaited],
        deadline: float,
        results: list[Result] | PequodError,
    ) -> None:
        """Give each call of a batch its result."""
        if not isinstance(results, PequodError):
            _resolve(futures, results)
            return
        is_unknown = isinstance(results, UnavailableError) and not results.is_unapplied
        if is_unknown and self._connection.retries and columns.has_writes():
            # The message was not sent again because of its writes; its reads are sent again alone.
            reads, positions = columns.reads()
            reading = [futures[position] for position in positions]
            if reading:
                self.send(reads, partial(self._settle, reads, reading, deadline), deadline)
                reread = set(positions)
                futures = [future for position, future in enumerate(futures) if position not in reread]
        _resolve(futures, [results] * len(futures))

    def send(self, columns: Columns, deliver: Deliver, deadline: float | None = None) -> None:
        """Send a batch; ``deliver`` is called once, with all results or with the error.

        The columns must not change any more.

        Args:
            deadline: By the loop's clock; without it, ``timeout_s`` from now.
        """
        self.batches_sent += 1
        self._lane.send(columns, partial(self._take, deliver), deadline)

    def _take(self, deliver: Deliver, reply: Reply | PequodError) -> None:
        if isinstance(reply, PequodError):
            deliver(reply)
            return
        self._connection.note(reply.server_id, reply.revision)
        deliver(reply.results)


def _resolve(futures: Sequence[Awaited], results: list[Result]) -> None:
    for future, result in zip(futures, results, strict=True):
        if not future.done():
            future.set_result(result)
