"""Replacements of joins in a store in the process: done by the thread that asks, between the calls of others."""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from pequod_grammar import parse_one

from pequod.answers.joins import ReplacementStatus
from pequod.engine import Engine, Replacement
from pequod.errors import JoinError

#: How many replacements are listed.
_LISTED_MAX: Final = 16


T = TypeVar("T")


class Run(Protocol):
    """Asks the engine."""

    def __call__(self, ask: Callable[[Engine], T], /) -> T:
        """Return what ``ask`` returns, which has the engine for itself."""


class _Noted:
    """A replacement, and when it began and ended."""

    def __init__(self, replacement: Replacement) -> None:
        self.replacement = replacement
        self._id = secrets.randbits(63)
        self._begun_s = time.monotonic()
        self._ended_s: float | None = None

    def status(self) -> ReplacementStatus:
        found = self.replacement
        if found.ended is not None and self._ended_s is None:
            self._ended_s = time.monotonic()
        return ReplacementStatus(
            id=self._id,
            join=found.name,
            text=str(found.new.spec),
            ranges_built=found.ranges_built,
            ranges_expected=found.ranges_expected,
            age_s=(time.monotonic() if self._ended_s is None else self._ended_s) - self._begun_s,
            is_in_place=found.is_in_place,
            ended=found.ended or "",
        )


class EmbeddedReplacements:
    """The replacements of one store.

    Args:
        run: Asks the engine while no other thread does.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._noted: deque[_Noted] = deque(maxlen=_LISTED_MAX)

    def replace(self, name: str, text: str | None) -> ReplacementStatus:
        """Put a join in the place of another (None: what it was before); other threads have their turn between steps.

        Raises:
            UnknownJoinError, JoinError, NotReplaceableError: As `Engine.begin_replacement`.
        """
        try:
            noted = self._run(lambda engine: self._begin(engine, name, text))
            while self._run(lambda engine: engine.replace_some(now=time.monotonic())):
                pass
        except JoinError as error:
            if text is None:
                raise
            raise error.with_text(text) from None
        return noted.status()

    def _begin(self, engine: Engine, name: str, text: str | None) -> _Noted:
        spec = engine.replaced_spec(name) if text is None else parse_one(text)
        replacement = engine.begin_replacement(name, spec)
        for noted in self._noted:
            if noted.replacement is replacement:
                return noted
        self._noted.appendleft(_Noted(replacement))
        return self._noted[0]

    def cancel(self, name: str) -> None:
        """End the replacement of a join, if it is under way."""
        self._run(lambda engine: _cancel(engine, name))

    def statuses(self) -> list[ReplacementStatus]:
        """Return the replacement under way, and then the latest that ended."""
        return self._run(lambda _: [noted.status() for noted in self._noted])


def _cancel(engine: Engine, name: str) -> None:
    if engine.replacement is not None and engine.replacement.name == name:
        engine.end_replacement(engine.replacement, "it was cancelled")
