"""A store for callers that wait: the calls of `AsyncEmbedded`, which are at their end before they would give way."""

from __future__ import annotations

import sys
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator
from typing import Any, TypeVar

from pequod.embedded.aio import AsyncEmbedded
from pequod.embedded.batch import EmbeddedBatch
from pequod.embedded.store import Store
from pequod.engine import Statistics
from pequod.interface import Calls

T = TypeVar("T")


class Embedded(Calls):
    """A store in the process; safe to use from many threads.

    Each call is done when it returns. What a watch tells is kept until it is taken, however much it is.

    Example:
        with pequod.open() as client:
            client.put("p|bob|0000000100", "Hi")
    """

    def __init__(self, *, key_bytes_max: int, value_bytes_max: int) -> None:
        self._store = Store(key_bytes_max=key_bytes_max, value_bytes_max=value_bytes_max)
        super().__init__(AsyncEmbedded(self._store, _ThreadNews), _Immediate())

    def close(self) -> None:
        """Close the client; calls under way fail, and so do those that follow. Closing twice is no error."""
        self._store.close()

    def batch(self) -> EmbeddedBatch:
        """Return an empty batch of commands, to be sent together."""
        return EmbeddedBatch(self._store.run)

    def statistics(self) -> Statistics:
        """Return counts of what is held and of what was done."""
        return self._wait(self._calls.statistics())


class _ThreadNews:
    """Tells a watch whose thread waits."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.set = self._event.set

    async def wait(self, timeout_s: float | None) -> bool:
        """Wait for news since the last wait, without giving way to other coroutines: there are none."""
        is_set = self._event.wait(timeout_s)
        self._event.clear()
        return is_set


class _Immediate:
    """Runs calls that never give way, in the thread that asks and without an event loop."""

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return what a call returns."""
        try:
            coroutine.send(None)
        except StopIteration as done:
            result: T = done.value
            return result
        raise AssertionError("a store in the process gave way")

    def iterate(self, items: AsyncGenerator[T]) -> Generator[T]:
        """Yield what an asynchronous iterator yields."""
        try:
            while piece := self._take(items):
                yield from piece
        finally:
            self.run(items.aclose())

    def _take(self, items: AsyncGenerator[T]) -> list[T]:
        """Return the next item in a list; an empty one at the end."""
        # An event loop that runs in this thread is not to know of the iterator: it would close it at its own end.
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(None, None)
        try:
            return [self.run(items.__anext__())]
        except StopAsyncIteration:
            return []
        finally:
            sys.set_asyncgen_hooks(*hooks)
