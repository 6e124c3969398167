"""Calls from any thread, for an event loop in a thread of its own.

    caller's thread                        the loop's thread
    get, put, scan ... -> Posted ----->    Gathering: in one batch with the commands of other threads
                          result <-----    reply
    other calls, in a coroutine  ----->    Connection
                          result <-----    reply

To post a command takes the client a tenth less CPU than to run a coroutine in the loop that adds it to a batch.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine, Generator
from concurrent.futures import Future
from functools import partial
from threading import Lock
from typing import Any, TypeVar

from pequod.calls import Result, Results
from pequod.client.aio import AsyncClient
from pequod.client.backfills import AsyncBackfills
from pequod.client.background import WAIT_S, BackgroundLoop
from pequod.client.batches import results_of
from pequod.client.columns import Columns, Reply
from pequod.client.gathering import Gathering
from pequod.client.requests import ServerCalls
from pequod.errors import PequodError
from pequod.freshness import Freshness
from pequod.interface.commands import Turn
from pequod.interface.seen import Seen
from pequod.interface.waiting import Immediate

T = TypeVar("T")


class PostingClient(AsyncClient):
    """An AsyncClient whose calls are for other threads than that of its loop.

    The coroutine of a call runs in the caller's thread and never gives way: it blocks until the loop has the result.
    Asynchronous iterators, `send` and `close` run in the loop, and so do the pieces of `_in_loop`.
    """

    _background: BackgroundLoop

    def post_to(self, background: BackgroundLoop) -> None:
        """Take a loop; required before the first call."""
        unary = self._link.unary

        async def posted_unary(
            name: str, request: object, text: str | None = None, *, timeout_s: float | None = None
        ) -> Any:
            return background.run(unary(name, request, text, timeout_s=timeout_s))

        self._background = background
        self._writing = self._reading = partial(Posted, background, self._gathering)
        self._unary = posted_unary
        self.backfills = AsyncBackfills(posted_unary)

    async def _in_loop(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._background.run(coroutine)


class Posted(Columns, Turn):
    """One command of a caller in another thread than that of the loop."""

    __slots__ = ("_background", "_gathering", "_session")

    def __init__(self, background: BackgroundLoop, gathering: Gathering, freshness: Freshness | None = None) -> None:
        super().__init__(freshness)
        self._background = background
        self._gathering = gathering
        self._session: Seen | None = None

    def tell(self, session: Seen) -> None:
        """Have a session note the state that the command shows, before its caller gets the result."""
        self._session = session

    async def last_result(self, argument_bytes: int) -> Result:
        """Have the command sent, and wait for its result.

        Raises:
            ClosedError: The loop is closed.
        """
        outcome = _Outcome()
        self._background.call(self._gathering.add, self, self._session, argument_bytes, outcome)
        return outcome.wait()


def posted(background: BackgroundLoop, calls: ServerCalls, columns: Columns) -> Future[Results]:
    """Have a batch sent from another thread than that of the loop."""
    future: Future[Results] = Future()

    def deliver(outcome: Reply | PequodError) -> None:
        if not future.set_running_or_notify_cancel():
            return
        if isinstance(outcome, PequodError):
            future.set_exception(outcome)
        else:
            future.set_result(results_of(outcome))

    background.call(calls.send, columns, deliver)
    return future


class _Outcome:
    """The result of one command, for one thread that waits.

    A call takes the client 6 % less CPU than with a future of `concurrent.futures`, which has a condition.
    """

    __slots__ = ("_is_open", "_result")

    def __init__(self) -> None:
        self._is_open = Lock()
        self._is_open.acquire()

    def done(self) -> bool:
        """Return whether there is a result."""
        return not self._is_open.locked()

    def set_result(self, result: Result) -> None:
        """Set the result, which there is not yet."""
        self._result = result
        self._is_open.release()

    def wait(self) -> Result:
        """Return the result when there is one, in the only thread that waits for it."""
        # In pieces: a Ctrl-C right before a wait would only be noticed at its end.
        while not self._is_open.acquire(timeout=WAIT_S):
            pass
        return self._result


class InCaller(Immediate):
    """Runs the calls of a PostingClient in the caller's thread, and its iterators in the loop."""

    def __init__(self, background: BackgroundLoop) -> None:
        self._background = background

    def iterate(self, items: AsyncGenerator[T]) -> Generator[T]:
        """Yield what an asynchronous iterator yields."""
        return self._background.iterate(items)
