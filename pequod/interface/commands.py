"""The commands of batches, which calls of one command share."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from pequod.calls import Data, Result
from pequod.freshness import Freshness
from pequod.interface.seen import Seen


class Commands(Protocol):
    """Commands in the order in which they will run; one with wrong arguments raises and is not added.

    A read may say how fresh its answer has to be; otherwise it is as fresh as all of them.
    """

    def get(self, key: Data, *, freshness: Freshness | None = None) -> None:
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
        freshness: Freshness | None = None,
    ) -> None:
        """Read the rows of ``[first, last)`` that start with ``prefix``; without ``last`` to the end."""

    def count(
        self,
        first: Data = b"",
        last: Data | None = None,
        *,
        prefix: Data = b"",
        freshness: Freshness | None = None,
    ) -> None:
        """Count the keys of ``[first, last)`` that start with ``prefix``; without ``last`` to the end."""


class Turn(Commands, Protocol):
    """Commands of calls: each call adds one and waits for its result. Concurrent calls may share a turn."""

    def last_result(self, argument_bytes: int, /) -> Awaitable[Result]:
        """Return the result of the command that was just added; ``argument_bytes`` is its approximate length."""

    def tell(self, session: Seen, /) -> None:
        """Have a session note the state that the command shows, before its caller gets the result."""
