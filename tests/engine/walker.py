"""The engine and the naive model, which take the same steps and must agree after each."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random

from pequod.engine import (
    BackedKeyError,
    BackfillEndedError,
    JoinError,
    JoinSpec,
    LimitExceededError,
    MissingError,
    NotBackfillableError,
    NotWatchableError,
    Snapshot,
)
from pequod.engine.testing import NaiveModel, select
from pequod.language.conditions import Condition
from pequod.language.transactions import Transaction
from tests.engine.backfilling import draw_pieces, source_rows
from tests.engine.deciding import take_add, take_write_if
from tests.engine.draw_transactions import outcome_of
from tests.engine.pair import DifferenceError, Pair
from tests.engine.replacing import take_end_replacement, take_replace, take_replace_some
from tests.engine.stems import stems_of

#: More timelines are not read one after the other.
STEMS_MAX = 12


@dataclass(frozen=True)
class Step:
    """One call, with everything that it needs to be made again."""

    kind: str
    arguments: tuple[object, ...] = ()


class Walker(Pair):
    """An engine and a model that take the same steps."""

    def take(self, step: Step) -> None:
        """Take a step and compare."""
        getattr(self, "_" + step.kind)(*step.arguments)
        self.engine._check()
        self._within_limit()

    def _add(self, spec: JoinSpec) -> None:
        try:
            self.engine.add_joins([spec])
        except JoinError:
            return
        self.model.add(spec)
        self.changed()

    def _drop(self, number: int) -> None:
        if not self.specs:
            return
        join = self.engine.joins()[number % len(self.specs)]
        self.engine.drop_join(join.name)
        self.model.drop(join.spec)
        self.changed()

    def _replace(self, number: int, spec: JoinSpec) -> None:
        take_replace(self, number, spec)

    def _replace_some(self, step_count: int) -> None:
        take_replace_some(self, step_count)

    def _end_replacement(self) -> None:
        take_end_replacement(self)

    def _put(self, key: bytes, value: bytes) -> None:
        if not self.model.computes(key):
            with suppress(LimitExceededError):
                if self.is_backed(key):
                    self.engine.apply(key, value)
                else:
                    self.engine.put(key, value)
                self.model.put(key, value)
            self.changed()

    def _put_all(self, rows: tuple[tuple[bytes, bytes], ...]) -> None:
        backed = [self.is_backed(key) for key, _ in rows]
        if any(self.model.computes(key) for key, _ in rows) or (any(backed) and not all(backed)):
            return
        if all(backed):
            at = 0
            while at < len(rows):
                before = at
                at, _ = self.engine.apply_some(rows, at, 3)
                for key, value in rows[before:at]:
                    self.model.put(key, value)
            self.changed()
            return
        with suppress(LimitExceededError):
            self.engine.put_all([key for key, _ in rows], [value for _, value in rows])
            for key, value in rows:
                self.model.put(key, value)
        self.changed()

    def _remove(self, key: bytes) -> None:
        if not self.model.computes(key):
            if self.is_backed(key):
                self.engine.apply(key, None)
                self.model.remove(key)
            else:
                self.same(self.engine.remove(key), self.model.remove(key))
            self.changed()

    def _write_if(self, key: bytes, value: bytes | None, condition: Condition) -> None:
        take_write_if(self, key, value, condition)

    def _add_to(self, key: bytes, delta: bytes) -> None:
        take_add(self, key, delta)

    def _transact(self, transaction: Transaction) -> None:
        if not any(self.model.computes(key) or self.is_backed(key) for key in transaction.decided_by()):
            try:
                found = self._loading(lambda: outcome_of(self.engine, transaction, self.now))
            except (LimitExceededError, DifferenceError):
                # There is no memory for what its reads lack, or not for all of it at once.
                if not self._is_limited:
                    raise
                return
            if found is not None:
                expected = self.model.transact(transaction)
                self.changed()
                self.same(expected if self._is_timed() else found, expected)

    def _watch(self, first: bytes, last: bytes | None) -> None:
        try:
            watch = self._loading(lambda: self.engine.watch(first, last, lambda: None, now=self.now))
        except (NotWatchableError, LimitExceededError):
            return
        self.followed.append((watch, dict(self.model.scan(first, last))))

    def _settle(self, number: int) -> None:
        if not self.followed:
            return
        watch, rows = self.followed[number % len(self.followed)]
        try:
            told = self._loading(lambda: self.engine.settle(watch, now=self.now))
        except LimitExceededError as error:
            told, watch.ended = [], str(error)
        for key, old, new in told:
            if rows.get(key) != old or old == new:
                raise DifferenceError(f"a watch tells {old!r} -> {new!r} for {key!r}, which was {rows.get(key)!r}")
            if new is None:
                del rows[key]
            else:
                rows[key] = new
        if watch.ended is not None:
            self.engine.unwatch(watch)
            self.followed.remove((watch, rows))
            return
        self.same(sorted(rows.items()), self.model.scan(watch.first, watch.last))

    def _begin(self, number: int, first: bytes, last: bytes | None, level: int | None, bytes_max: int) -> None:
        if not self.specs:
            return
        name = self.engine.joins()[number % len(self.specs)].name
        begin = partial(self.engine.backfills.begin, name, first, last, level=level, record_bytes_max=bytes_max)
        try:
            backfill = self._loading(lambda: begin(self.engine.revision))
        except (NotBackfillableError, LimitExceededError):
            return
        self.backfills.append((backfill, dict(self.model.base)))

    def _load_pieces(self, seed: int) -> None:
        """Load some of the pieces that there should be, in any order; some may have been loaded before."""
        if not self.backfills:
            return
        random = Random(seed)
        backfill, base = random.choice(self.backfills)
        pieces = draw_pieces(random, backfill, base)
        if backfill.ended is not None:
            self.backfills.remove((backfill, base))
            return
        within = [row for row in base.items() if any(first <= row[0] < last for first, last in backfill.sources)]
        self.same(source_rows(backfill, random.choice([1, 2, 100])), dict(within))
        counters = backfill.join.counters
        for _ in range(2):
            chosen = random.sample(pieces, random.randint(0, len(pieces)))
            computed, slice_count = counters.computed_ranges, self.slice_count
            try:
                self.engine.backfills.load(backfill, chosen, now=self.now)
            except LimitExceededError:
                pass
            except BackfillEndedError:
                # Rows of its sources were evicted meanwhile.
                assert self._is_limited
                assert self.backed
                return
            self.engine._check()
            if self._is_limited:
                continue
            for piece in chosen:
                self.same(backfill.join.coverage.gaps(piece.first, piece.last), [])
                self._loading(lambda piece=piece: self.engine.scan(piece.first, piece.last, now=self.now))  # type: ignore[misc]
            # A slice is of all joins of the table.
            if not backfill.join.downstreams and slice_count == self.slice_count:
                self.same(counters.computed_ranges, computed)

    def _end(self, number: int) -> None:
        if self.backfills:
            backfill, _ = self.backfills.pop(number % len(self.backfills))
            self.engine.backfills.end(backfill, "cancelled")

    def _remove_range(self, first: bytes, last: bytes | None, limit: int | None) -> None:
        try:
            self.engine.remove_range(first, last, 0)
        except BackedKeyError:
            return
        doomed = [key for key, _ in select(self.model.base, first, last)[:limit]]
        self.same(self.engine.remove_range(first, last, limit), doomed)
        for key in doomed:
            self.model.remove(key)
        self.changed()

    def _evict(self, count: int) -> None:
        self.engine.evict(count)

    def _limit(self, limit_bytes: int) -> None:
        self.engine.limit_memory(limit_bytes)

    def _invalidate(self, first: bytes, last: bytes | None) -> None:
        self.engine.invalidate(first, last)

    def _wait(self, seconds: float) -> None:
        self.now += seconds

    def _get(self, key: bytes) -> None:
        try:
            value = self._loading(lambda: self.engine.get(key, now=self.now))
        except LimitExceededError:
            return
        if self._is_timed():
            self._plausible({key: value})
        else:
            self.same(value, self.model.get(key))

    def _index(self, first: bytes, last: bytes | None, slices: int) -> None:
        """Begin to make what a scan lacks of indexes, and leave it half made; the scan does not come back."""
        with suppress(LimitExceededError):
            try:
                self.engine.scan(first, last, now=self.now)
            except MissingError as error:
                for index in error.indexes:
                    for _ in range(slices):
                        self.engine.index_some(index)

    def _again(self, number: int) -> None:
        if self.scanned:
            self._scan(*self.scanned[number % len(self.scanned)])

    def _scan(self, first: bytes, last: bytes | None, limit: int | None, reverse: bool) -> None:
        if (first, last, limit, reverse) not in self.scanned:
            self.scanned.append((first, last, limit, reverse))
        try:
            found = self._loading(lambda: self.engine.scan(first, last, limit=limit, reverse=reverse, now=self.now))
            count = self._loading(lambda: self.engine.count(first, last, now=self.now))
        except LimitExceededError:
            return
        pairs = list(zip(found.keys, found.values, strict=True))
        if self._is_timed():
            rows = dict(pairs)
            if limit is None:
                absent = {key for moment in self._recent() for key, _ in select(moment.rows, first, last)} - rows.keys()
                self._plausible({**rows, **dict.fromkeys(absent)})
            return
        expected = self.model.scan(first, last, limit=limit, reverse=reverse)
        self.same(pairs, expected)
        if limit is None:
            self.same(count, len(expected))

    def _check(self, stem: int, row: int, is_cold: bool) -> None:
        """Read a timeline from one of its rows on to the end, or from right behind it, maybe as its first read."""
        if not (stems := stems_of(self.model)):
            return
        first, last = stems[stem % len(stems)]
        if is_cold:
            self.engine.invalidate(first, last)
        keys = [key for key, _ in self.model.scan(first, last)]
        since = keys[row % len(keys)]
        self._scan(since if row % 3 else since + b"\0", last, None, False)

    def _look_over(self) -> None:
        """Read what joins compute under each value of a first slot, to its end, as one reads timelines."""
        for first, last in stems_of(self.model)[:STEMS_MAX]:
            self._scan(first, last, None, False)

    def _plausible(self, rows: dict[bytes, bytes | None]) -> None:
        """Each row must have been so at a moment that a snapshot may still show; what no snapshot feeds, now.

        Joins over snapshots mix moments, and so do a snapshot and another join that compute one key: neither is
        compared. Nor is what a snapshot had under a join that has been dropped since: no moment has shown it.
        """
        moments = self._recent()
        recent = [moment.rows for moment in moments]
        dropped = {spec for moment in moments for spec in moment.specs if spec not in self.specs}
        timed = [spec for spec in self.specs if isinstance(spec.maintenance, Snapshot)]
        for key, value in rows.items():
            computing = [spec for spec in self.specs if _computes(spec, key)]
            hiding = [spec for spec in dropped if _computes(spec, key)]
            is_mixed = len(computing + hiding) > 1 and any(spec in timed for spec in computing)
            if is_mixed or any(self._reads_joins(spec) for spec in computing):
                continue
            shown = recent if any(spec in timed for spec in computing) else recent[-1:]
            if value not in [past.get(key) for past in shown]:
                raise DifferenceError(f"{key!r} is {value!r}, never so since a snapshot ago")

    def _reads_joins(self, spec: JoinSpec) -> bool:
        outputs = {other.output.literal_prefix.split(b"|")[0] for other in self.specs}
        return any(source.pattern.literal_prefix.split(b"|")[0] in outputs for source in spec.sources)


def _computes(spec: JoinSpec, key: bytes) -> bool:
    """Tell whether one join computes ``key``."""
    model = NaiveModel()
    model.add(spec)
    return model.computes(key)
