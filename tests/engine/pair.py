"""An engine and the naive model beside it, whose base data are the database's where a table is backed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import NamedTuple, TypeVar

from pequod.engine import (
    Backfill,
    Engine,
    JoinSpec,
    LimitExceededError,
    MissingError,
    SearchRange,
    Snapshot,
    Watch,
)
from pequod.engine.memory.ledger import UNLIMITED
from pequod.engine.testing import NaiveModel
from tests.engine import searching

T = TypeVar("T")


#: A read needs no more rounds of loads than its joins have sources, one after the other.
ROUNDS_MAX = 20


class DifferenceError(AssertionError):
    """The engine and the model disagree."""


class Moment(NamedTuple):
    """What there was from a time on, until the next change."""

    begun_s: float
    rows: dict[bytes, bytes]
    specs: tuple[JoinSpec, ...]


class Pair:
    """An engine and a model; what the model holds of backed tables is the database."""

    def __init__(self) -> None:
        self.backed: tuple[bytes, ...] = ()
        #: Draws what the database gives beside what it is searched for.
        self.extras = Random(0)
        self.engine = Engine(at_once=False)
        self.model = NaiveModel()
        self.now = 0.0
        #: Slices that were computed for reads that lacked them.
        self.slice_count = 0
        #: Arguments of scans, which are made again: the engine remembers how it answered.
        self.scanned: list[tuple[bytes, bytes | None, int | None, bool]] = []
        #: Watches, and what somebody who followed their changes has.
        self.followed: list[tuple[Watch, dict[bytes, bytes]]] = []
        #: Backfills, and the base rows when they began.
        self.backfills: list[tuple[Backfill, dict[bytes, bytes]]] = []
        #: Mostly backfills are drawn.
        self.is_backfilling = False
        #: Often joins take the places of others.
        self.is_replacing = False
        #: For snapshot joins; the last one is of now.
        self._past: list[Moment] = [Moment(0.0, {}, ())]

    @property
    def specs(self) -> list[JoinSpec]:
        """The installed joins."""
        return self.model.joins

    def _within_limit(self) -> None:
        """What a call takes may be over the limit until the next one; what is over it then was refused."""
        if self._is_limited and self.engine.make_room():
            assert self.engine.ledger.total_bytes <= self.engine.ledger.limit_bytes

    @property
    def _is_limited(self) -> bool:
        return self.engine.ledger.limit_bytes < UNLIMITED

    def _back(self, *tables: bytes) -> None:
        self.backed = tables
        self.engine = Engine(backed=tables, at_once=False)

    def _back_searched(self, *tables: bytes) -> None:
        """The same with a database that can be asked by some fields."""
        self.backed = tables
        self.engine = Engine(backed=tables, can_search=searching.can_search, at_once=False)

    def is_backed(self, key: bytes) -> bool:
        name, delimiter, _ = key.partition(b"|")
        return bool(delimiter) and name in self.backed

    def _load(self, first: bytes, last: bytes | None) -> None:
        with suppress(LimitExceededError):
            self._load_from_model(first, last)

    def _load_from_model(self, first: bytes, last: bytes | None) -> None:
        self.engine.load(first, last, [row for row in self.model.base.items() if self.is_backed(row[0])])

    def _search(self, found: SearchRange) -> None:
        first, last = found.search.keys
        rows = [row for row in self.model.base.items() if self.is_backed(row[0]) and first <= row[0] < last]
        searching.answer(self.engine, found, rows, self.extras)

    def _forget(self, first: bytes, last: bytes | None) -> None:
        self.engine.forget(first, last)

    def _loading(self, read: Callable[[], T]) -> T:
        """Read, load what is missing and make the indexes that are, until nothing is."""
        for _ in range(ROUNDS_MAX):
            try:
                return read()
            except MissingError as error:
                self._provide(error)
        raise DifferenceError(f"something is missing after {ROUNDS_MAX} rounds of loads")

    def _provide(self, error: MissingError) -> None:
        for first, last in error.ranges:
            if not first < last or any(a < last and first < b for a, b in self.engine.loaded()):
                raise DifferenceError(f"{first!r} .. {last!r} is said to be missing") from error
            self._load_from_model(first, last)
        for found in error.searches:
            self._search(found)
        for index in error.indexes:
            while self.engine.index_some(index):
                self.engine._check()
        for lacking in error.uncomputed:
            at: bytes | None = lacking.first
            while at is not None:
                try:
                    at = self.engine.compute_some(lacking, at, now=self.now)
                except MissingError as further:
                    self._provide(further)
                self.slice_count += 1
                self.engine._check()
        self.engine._check()

    def changed(self) -> None:
        if self._is_timed():
            self._past.append(Moment(self.now, self.model.evaluate(), tuple(self.specs)))

    def _is_timed(self) -> bool:
        return any(isinstance(spec.maintenance, Snapshot) for spec in self.specs)

    def _recent(self) -> list[Moment]:
        """The moments that reads may still show: those not over for longer than all snapshots' ages together."""
        ages = [spec.maintenance.age_s for spec in self.specs if isinstance(spec.maintenance, Snapshot)]
        oldest = self.now - float(sum(ages))
        over = [moment.begun_s for moment in self._past[1:]] + [self.now]
        return [moment for moment, until in zip(self._past, over, strict=True) if until >= oldest]

    @staticmethod
    def same(found: object, expected: object) -> None:
        if found != expected:
            raise DifferenceError(f"the engine says {found!r}, the model {expected!r}")
