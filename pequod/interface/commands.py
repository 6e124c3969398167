"""The commands of batches, which calls of one command share."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from pequod.calls import Data, Result


class Commands(Protocol):
    """Commands in the order in which they will run; one with wrong arguments raises and is not added."""

    def get(self, key: Data) -> None:
        """Get a value."""

    def put(self, key: Data, value: Data) -> None:
        """Write a base key."""

    def remove(self, key: Data) -> None:
        """Remove a base key."""

    def scan(
        self,
        first: Data = b"",
        last: Data | None = None,
        *,
        prefix: Data = b"",
        limit: int | None = None,
        reverse: bool = False,
    ) -> None:
        """Read the rows of ``[first, last)`` that start with ``prefix``; without ``last`` to the end."""

    def count(self, first: Data = b"", last: Data | None = None, *, prefix: Data = b"") -> None:
        """Count the keys of ``[first, last)`` that start with ``prefix``; without ``last`` to the end."""


class Turn(Commands, Protocol):
    """Commands of calls: each call adds one and waits for its result. Concurrent calls may share a turn."""

    def last_result(self, argument_bytes: int, /) -> Awaitable[Result]:
        """Return the result of the command that was just added; ``argument_bytes`` is its approximate length."""
