"""What each kind of client does for the calls of `AsyncCalls`."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final

from pequod.answers.explanations import JoinExplanation, RangeExplanation
from pequod.answers.joins import Join, ReplacementStatus
from pequod.answers.rows import Rows
from pequod.answers.transacted import Transacted
from pequod.calls import Page, RangeRead, Result, WatchEvent
from pequod.errors import PequodError, ReplacementEndedError
from pequod.freshness import Freshness
from pequod.interface.commands import Turn
from pequod.language.transactions import Transaction

log: Final = logging.getLogger("pequod.joins")


def logged(joins: list[Join]) -> list[Join]:
    """Return joins, after their warnings have gone to the log."""
    for join in joins:
        for warning in join.warnings:
            log.warning("join %s: %s", join.name, warning)
    return joins


def in_place(status: ReplacementStatus) -> ReplacementStatus:
    """Return the status of a replacement that has ended with the new join in its place.

    Raises:
        ReplacementEndedError: It has ended without that.
    """
    if not status.is_in_place:
        raise ReplacementEndedError(status.join, status.ended)
    return status


def outcome_of(result: Result) -> Any:
    """Return the result of a call, or raise it."""
    if isinstance(result, PequodError):
        # All calls of a failed batch share the exception; each raises it with its own traceback.
        raise result.with_traceback(None)
    return result


class Carried(ABC):
    """Carries out calls whose ranges, keys and limits are checked and converted."""

    #: Returns the turn to which the next write is added; raises ClosedError once the client is closed.
    _writing: Callable[[], Turn]
    #: Returns the turn to which the next read of this freshness is added; raises the same.
    _reading: Callable[[Freshness | None], Turn]

    @abstractmethod
    async def _multi_get(self, keys: list[bytes], freshness: Freshness | None) -> list[bytes | None]: ...

    @abstractmethod
    async def _multi_put(self, keys: list[bytes], values: list[bytes], ttl_ms: int) -> None: ...

    @abstractmethod
    async def _transact(self, transaction: Transaction, freshness: Freshness | None) -> Transacted: ...

    @abstractmethod
    async def _remove_range(self, first: bytes, last: bytes | None) -> int: ...

    @abstractmethod
    def _chunks(self, read: RangeRead) -> AsyncGenerator[Rows]: ...

    @abstractmethod
    async def _keys(self, read: RangeRead) -> list[bytes]: ...

    @abstractmethod
    async def _page(self, read: RangeRead) -> Page: ...

    @abstractmethod
    async def _splits(self, first: bytes, last: bytes | None, count: int) -> list[bytes]: ...

    @abstractmethod
    def _watch(
        self,
        first: bytes,
        last: bytes | None,
        *,
        rows: bool,
        reconnect_s: float,
        progress_s: float | None,
        after: WatchEvent | None,
        freshness: Freshness | None,
    ) -> AsyncGenerator[WatchEvent]: ...

    @abstractmethod
    async def _add_join(self, text: str) -> list[Join]: ...

    @abstractmethod
    async def _drop_join(self, name: str) -> None: ...

    @abstractmethod
    async def _replace_join(self, name: str, text: str | None) -> ReplacementStatus: ...

    @abstractmethod
    async def _replacements(self) -> list[ReplacementStatus]: ...

    @abstractmethod
    async def _cancel_replacement(self, name: str) -> None: ...

    @abstractmethod
    async def _joins(self) -> list[Join]: ...

    @abstractmethod
    async def _explain_join(self, name: str) -> JoinExplanation: ...

    @abstractmethod
    async def _explain_range(self, first: bytes, last: bytes | None) -> RangeExplanation: ...

    @abstractmethod
    async def _invalidate_range(self, first: bytes, last: bytes | None) -> int: ...

    @abstractmethod
    async def _invalidate_join(self, name: str) -> int: ...
