"""Commands of one turn of the event loop, in one message.

get, put, scan ... -> turn -> flush -> send -> Sender -> reply -> results
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Final, Protocol

from pequod.calls import Result
from pequod.client.columns import Columns, Reply
from pequod.client.link import Link
from pequod.client.stream import Deliver
from pequod.client.tracing import caller_trace
from pequod.errors import ClosedError, PequodError, UnavailableError
from pequod.freshness import After, AnyState, Freshness
from pequod.interface.commands import Turn
from pequod.interface.seen import Seen

#: The greatest number of commands in an automatic batch: larger ones gain nothing.
COMMANDS_MAX: Final = 512
#: The greatest size of their arguments, without the last command: servers limit the size of messages.
ARGUMENT_BYTES_MAX: Final = 1 << 20


class Awaited(Protocol):
    """How a caller waits for the result of one command: by a future of the loop, or in another thread."""

    def done(self) -> bool:
        """Return whether there is a result, or the caller has given up."""

    def set_result(self, result: Result, /) -> None:
        """Set the result."""


class Group(Enum):
    """Commands that ask for several levels, and share a batch all the same."""

    #: Each names a token that the latest reply of the server has reached, so that none is likely to wait.
    REACHED = "reached"


class Gathered(Columns, Turn):
    """The commands of one turn that ask for the same freshness, with the futures of their callers.

    Args:
        flush: Sends them; called after this turn of the loop, or as soon as they are many.
    """

    __slots__ = ("_argument_bytes", "_flush", "_loop", "futures", "group", "sessions")

    def __init__(self, flush: Callable[[Gathered], None], group: Freshness | Group | None) -> None:
        super().__init__(None if isinstance(group, Group) else group)
        self.group = group
        self.futures: list[Awaited] = []
        #: The sessions of these calls, which get the token of the reply.
        self.sessions: set[Seen] = set()
        self._loop = asyncio.get_running_loop()
        self._flush = flush
        self._argument_bytes = 0
        self._loop.call_soon(flush, self)

    def last_result(self, argument_bytes: int) -> asyncio.Future[Result]:
        """Return the future of the command that was just added; all commands of the turn are sent as one message."""
        future: asyncio.Future[Result] = self._loop.create_future()
        self.expect(argument_bytes, future)
        return future

    def expect(self, argument_bytes: int, future: Awaited) -> None:
        """Note the future of the command that was just added; it gets the result, or the error as a result."""
        futures = self.futures
        futures.append(future)
        self._argument_bytes += argument_bytes
        if len(futures) >= COMMANDS_MAX or self._argument_bytes >= ARGUMENT_BYTES_MAX:
            self._flush(self)

    def tell(self, session: Seen) -> None:
        """Have a session get the token of the reply, before the callers get their results."""
        self.sessions.add(session)


class Gathering:
    """Gathers commands into batches, and sends batches."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._sender = link.sender()
        #: Batches sent so far.
        self.batches_sent = 0
        #: The commands of this turn, by the freshness that they ask for.
        self._turns: dict[Freshness | Group | None, Gathered] = {}

    async def close(self) -> None:
        """End; batches under way fail."""
        await self._sender.close()

    def open(self, freshness: Freshness | None = None) -> Gathered:
        """Return the batch of this turn of the loop, to add a command to.

        Args:
            freshness: What a read asks for.

        Raises:
            ClosedError: The connection is closed.
        """
        if self._link.is_closed:
            raise ClosedError
        return self._opened(freshness)

    def add(self, command: Columns, session: Seen | None, argument_bytes: int, future: Awaited) -> None:
        """Add the command of another thread to this turn of the loop; ``future`` gets its result."""
        turn = self._opened(command.freshness)
        if session is not None:
            turn.tell(session)
        turn.kinds += command.kinds
        turn.arguments += command.arguments
        turn.numbers += command.numbers
        turn.expect(argument_bytes, future)

    def _opened(self, freshness: Freshness | None) -> Gathered:
        group = freshness if freshness is None else self._group_of(freshness)
        turn = self._turns.get(group)
        if turn is None:
            turn = self._turns[group] = Gathered(self._flush, group)
        if group is Group.REACHED:
            assert freshness is not None, "it names a token"
            turn.overrides[len(turn)] = freshness
        if not turn.trace:
            turn.trace = caller_trace()
        return turn

    def _group_of(self, freshness: Freshness) -> Freshness | Group | None:
        match freshness:
            case AnyState():
                return None
            case After(token):
                # Hundreds of sessions, each with a token of its own, share a batch.
                return Group.REACHED if self._link.has_reached(token) else freshness
            case _:
                return freshness

    def _flush(self, turn: Gathered) -> None:
        if self._turns.get(turn.group) is not turn:
            # The batch was full, and was sent before the loop called this.
            return
        del self._turns[turn.group]
        # The arguments of the last command may have been refused, or those of the only one.
        turn.overrides.pop(len(turn), None)
        if not turn.futures:
            return
        deadline = asyncio.get_running_loop().time() + self._link.timeout_s
        self._send_gathered(turn, partial(self._settle, turn, turn.sessions, turn.futures, deadline), deadline)

    def _send_gathered(self, columns: Columns, deliver: Deliver, deadline: float) -> None:
        self._count(columns)
        take = partial(self._take, deliver)
        if columns.freshness is not None:
            self._sender.send_waiting(columns, take, deadline)
        elif columns.overrides:
            self._sender.send_reached(columns, take, deadline)
        else:
            self._sender.send(columns, take, deadline)

    def _settle(
        self,
        columns: Columns,
        sessions: set[Seen],
        futures: list[Awaited],
        deadline: float,
        outcome: Reply | PequodError,
    ) -> None:
        """Give each call of a batch its result, and the sessions of these calls the state of the reply."""
        if not isinstance(outcome, PequodError):
            for session in sessions:
                session.note(outcome.token)
            _resolve(futures, outcome.results)
            return
        is_unknown = isinstance(outcome, UnavailableError) and not outcome.is_unapplied
        if is_unknown and self._link.retries and not columns.is_harmless_twice():
            # The message was not sent again because of its plain writes; all others are sent again alone.
            rest, positions = columns.harmless_twice()
            waiting = [futures[position] for position in positions]
            if waiting:
                settle = partial(self._settle, rest, sessions, waiting, deadline)
                self._send_gathered(rest, settle, deadline)
                resent = set(positions)
                futures = [future for position, future in enumerate(futures) if position not in resent]
        _resolve(futures, [outcome] * len(futures))

    def send(self, columns: Columns, deliver: Deliver, deadline: float | None = None) -> None:
        """Send a batch; ``deliver`` is called once, with the reply or with the error.

        The columns must not change any more.

        Args:
            deadline: By the loop's clock; without it, ``timeout_s`` from now.
        """
        self._count(columns)
        self._sender.send(columns, partial(self._take, deliver), deadline)

    def _count(self, columns: Columns) -> None:
        """Count a batch that is sent, and have its writes be such that they may be sent again, as far as that goes."""
        self.batches_sent += 1
        if self._link.retries:
            columns.protect()

    def _take(self, deliver: Deliver, outcome: Reply | PequodError) -> None:
        if not isinstance(outcome, PequodError):
            self._link.note(outcome.server_id, outcome.revision, outcome.token, outcome.age_ms)
        deliver(outcome)


def _resolve(futures: Sequence[Awaited], results: Sequence[Result]) -> None:
    for future, result in zip(futures, results, strict=True):
        if not future.done():
            future.set_result(result)
