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
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from pequod.calls import Page, RangeRead, Result
from pequod.client.aio import AsyncClient
from pequod.client.backfills import AsyncBackfills
from pequod.client.background import BackgroundLoop, result_of
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
        result: Future[Result] = Future()
        self._background.call(self._gathering.add, self, argument_bytes, result)
        return result_of(result)


class InCaller(Immediate):
    """Runs the calls of a PostingClient in the caller's thread, and its iterators in the loop."""

    def __init__(self, background: BackgroundLoop) -> None:
        self._background = background

    def iterate(self, items: AsyncGenerator[T]) -> Generator[T]:
        """Yield what an asynchronous iterator yields."""
        return self._background.iterate(items)
