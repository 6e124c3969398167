"""How a synchronous client waits for a call of an asynchronous one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine, Generator
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Waiter(Protocol):
    """Runs calls to their end."""

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return what a call returns."""

    def iterate(self, items: AsyncGenerator[T]) -> Generator[T]:
        """Yield what an asynchronous iterator yields."""
