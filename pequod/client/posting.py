"""Calls from any thread, for an event loop in a thread of its own.

    caller's thread                        the loop's thread
    get, put, scan ... -> Posted ----->    Gathering: in one batch with the commands of other threads
                          result <-----    reply
    other calls, in a coroutine  ----->    Connection
                          result <-----    reply

To post a command takes the client a tenth less CPU than to run a coroutine in the loop that adds it to a batch.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from functools import partial
from threading import Lock
from typing import Any, TypeVar

from pequod.calls import Page, RangeRead, Result
from pequod.client.aio import AsyncClient
from pequod.client.backfills import AsyncBackfills
from pequod.client.background import WAIT_S, BackgroundLoop
from pequod.client.columns import Columns
from pequod.client.gathering import Gathering
from pequod.interface.waiting import Immediate

T = TypeVar("T")


class PostingClient(AsyncClient):
    """An AsyncClient whose calls are for other threads than that of its loop.

    The coroutine of a call runs in the caller's thread and never gives way: it blocks until the loop has the result.
    Asynchronous iterators, `send` and `close` run in the loop.
    """

    _background: BackgroundLoop

    def post_to(self, background: BackgroundLoop) -> None:
        """Take a loop; required before the first call."""
        unary = self._connection.unary

        async def posted_unary(
            name: str, request: object, text: str | None = None, *, timeout_s: float | None = None
        ) -> Any:
            return background.run(unary(name, request, text, timeout_s=timeout_s))

        self._background = background
        self._turn = partial(Posted, background, self._gathering)
        self._unary = posted_unary
        self.backfills = AsyncBackfills(posted_unary)

    async def _keys(self, read: RangeRead) -> list[bytes]:
        return self._background.run(super()._keys(read))

    async def _page(self, read: RangeRead) -> Page:
        return self._background.run(super()._page(read))


class Posted(Columns):
    """One command of a caller in another thread than that of the loop."""

    __slots__ = ("_background", "_gathering")

    def __init__(self, background: BackgroundLoop, gathering: Gathering) -> None:
        super().__init__()
        self._background = background
        self._gathering = gathering

    async def last_result(self, argument_bytes: int) -> Result:
        """Have the command sent, and wait for its result.

        Raises:
            ClosedError: The loop is closed.
        """
        outcome = _Outcome()
        self._background.call(self._gathering.add, self, argument_bytes, outcome)
        return outcome.wait()


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
