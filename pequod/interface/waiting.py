"""How a synchronous client waits for a call of an asynchronous one."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Coroutine, Generator
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Waiter(Protocol):
    """Runs calls to their end."""

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return what a call returns."""

    def iterate(self, items: AsyncGenerator[T]) -> Generator[T]:
        """Yield what an asynchronous iterator yields."""


class Immediate:
    """Runs calls that never give way, in the thread that asks and without an event loop."""

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return what a call returns."""
        try:
            coroutine.send(None)
        except StopIteration as done:
            result: T = done.value
            return result
        raise AssertionError("a call that was to wait for nothing gave way")

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
