"""A differential random walk: the engine and the naive model take the same steps and must agree after each.

    python -m tests.engine.random_walk --seconds 60 --seed 1

Much quicker than the Hypothesis machine, which draws from the same alphabets. A difference is shrunk by leaving out
steps, and printed as steps that `replay` takes again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TypeVar

from pequod.engine import (
    BackedKeyError,
    Backfill,
    BackfillEndedError,
    Engine,
    JoinError,
    JoinSpec,
    LimitExceededError,
    MissingError,
    NotBackfillableError,
    NotWatchableError,
    Operator,
    Pattern,
    Push,
    SearchRange,
    Slot,
    Snapshot,
    Source,
    Watch,
)
from pequod.engine.base import presence, rows
from pequod.engine.memory.ledger import UNLIMITED
from pequod.engine.reads import execution
from pequod.engine.testing import NaiveModel, select
from pequod.engine.writes import changes
from tests.engine import searching
from tests.engine.backfilling import draw_pieces, source_rows
from tests.engine.draw import BASE_TABLES, draw_bound, draw_join, draw_key, draw_range
from tests.engine.draw_records import draw_record_join, draw_searching_join, draw_value

T = TypeVar("T")

#: A read needs no more rounds of loads than its joins have sources, one after the other.
ROUNDS_MAX = 20


class DifferenceError(AssertionError):
    """The engine and the model disagree."""


@dataclass(frozen=True)
class Step:
    """One call, with everything that it needs to be made again."""

    kind: str
    arguments: tuple[object, ...] = ()


class Walker:
    """An engine and a model that take the same steps; what the model holds of backed tables is the database."""

    def __init__(self) -> None:
        self.backed: tuple[bytes, ...] = ()
        #: Draws what the database gives beside what it is searched for.
        self.extras = Random(0)
        self.engine = Engine()
        self.model = NaiveModel()
        self.now = 0.0
        #: (moment, all rows then), for snapshot joins; the last entry is of now.
        #: Arguments of scans, which are made again: the engine remembers how it answered.
        self.scanned: list[tuple[bytes, bytes | None, int | None, bool]] = []
        #: Watches, and what somebody who followed their changes has.
        self.followed: list[tuple[Watch, dict[bytes, bytes]]] = []
        #: Backfills, and the base rows when they began.
        self.backfills: list[tuple[Backfill, dict[bytes, bytes]]] = []
        #: Mostly backfills are drawn.
        self.is_backfilling = False
        self._past: list[tuple[float, dict[bytes, bytes]]] = [(0.0, {})]

    @property
    def specs(self) -> list[JoinSpec]:
        """The installed joins."""
        return self.model.joins

    def take(self, step: Step) -> None:
        """Take a step and compare."""
        getattr(self, "_" + step.kind)(*step.arguments)
        self.engine._check()
        self._within_limit()

    def _within_limit(self) -> None:
        """What a call takes may be over the limit until the next one; what is over it then was refused."""
        if self._is_limited and self.engine.make_room():
            assert self.engine.ledger.total_bytes <= self.engine.ledger.limit_bytes

    @property
    def _is_limited(self) -> bool:
        return self.engine.ledger.limit_bytes < UNLIMITED

    def _back(self, *tables: bytes) -> None:
        self.backed = tables
        self.engine = Engine(backed=tables)

    def _back_searched(self, *tables: bytes) -> None:
        """The same with a database that can be asked by some fields."""
        self.backed = tables
        self.engine = Engine(backed=tables, can_search=searching.can_search)

    def _is_backed(self, key: bytes) -> bool:
        name, delimiter, _ = key.partition(b"|")
        return bool(delimiter) and name in self.backed

    def _load(self, first: bytes, last: bytes | None) -> None:
        with suppress(LimitExceededError):
            self._load_from_model(first, last)

    def _load_from_model(self, first: bytes, last: bytes | None) -> None:
        self.engine.load(first, last, [row for row in self.model.base.items() if self._is_backed(row[0])])

    def _search(self, found: SearchRange) -> None:
        first, last = found.search.keys
        rows = [row for row in self.model.base.items() if self._is_backed(row[0]) and first <= row[0] < last]
        searching.answer(self.engine, found, rows, self.extras)

    def _forget(self, first: bytes, last: bytes | None) -> None:
        self.engine.forget(first, last)

    def _loading(self, read: Callable[[], T]) -> T:
        """Read, and load what is missing, until nothing is."""
        for _ in range(ROUNDS_MAX):
            try:
                return read()
            except MissingError as error:
                for first, last in error.ranges:
                    if not first < last or any(a < last and first < b for a, b in self.engine.loaded()):
                        raise DifferenceError(f"{first!r} .. {last!r} is said to be missing") from error
                    self._load_from_model(first, last)
                for found in error.searches:
                    self._search(found)
                self.engine._check()
        raise DifferenceError(f"something is missing after {ROUNDS_MAX} rounds of loads")

    def _add(self, spec: JoinSpec) -> None:
        try:
            self.engine.add_joins([spec])
        except JoinError:
            return
        self.model.add(spec)
        self._changed()

    def _drop(self, number: int) -> None:
        if not self.specs:
            return
        join = self.engine.joins()[number % len(self.specs)]
        self.engine.drop_join(join.name)
        self.model.drop(join.spec)
        self._changed()

    def _put(self, key: bytes, value: bytes) -> None:
        if not self.model.computes(key):
            with suppress(LimitExceededError):
                if self._is_backed(key):
                    self.engine.apply(key, value)
                else:
                    self.engine.put(key, value)
                self.model.put(key, value)
            self._changed()

    def _put_all(self, rows: tuple[tuple[bytes, bytes], ...]) -> None:
        if any(self.model.computes(key) or self._is_backed(key) for key, _ in rows):
            return
        with suppress(LimitExceededError):
            self.engine.put_all([key for key, _ in rows], [value for _, value in rows])
            for key, value in rows:
                self.model.put(key, value)
        self._changed()

    def _remove(self, key: bytes) -> None:
        if not self.model.computes(key):
            if self._is_backed(key):
                self.engine.apply(key, None)
                self.model.remove(key)
            else:
                self._same(self.engine.remove(key), self.model.remove(key))
            self._changed()

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
        self._same(sorted(rows.items()), self.model.scan(watch.first, watch.last))

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
        self._same(source_rows(backfill, random.choice([1, 2, 100])), dict(within))
        counters = backfill.join.counters
        for _ in range(2):
            chosen = random.sample(pieces, random.randint(0, len(pieces)))
            computed = counters.computed_ranges
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
                self._same(backfill.join.coverage.gaps(piece.first, piece.last), [])
                self._loading(lambda piece=piece: self.engine.scan(piece.first, piece.last, now=self.now))  # type: ignore[misc]
            if not backfill.join.downstreams:
                self._same(counters.computed_ranges, computed)

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
        self._same(self.engine.remove_range(first, last, limit), doomed)
        for key in doomed:
            self.model.remove(key)
        self._changed()

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
            self._same(value, self.model.get(key))

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
                absent = {key for _, past in self._recent() for key, _ in select(past, first, last)} - rows.keys()
                self._plausible({**rows, **dict.fromkeys(absent)})
            return
        expected = self.model.scan(first, last, limit=limit, reverse=reverse)
        self._same(pairs, expected)
        if limit is None:
            self._same(count, len(expected))

    def _changed(self) -> None:
        if self._is_timed():
            self._past.append((self.now, self.model.evaluate()))

    def _is_timed(self) -> bool:
        return any(isinstance(spec.maintenance, Snapshot) for spec in self.specs)

    def _recent(self) -> list[tuple[float, dict[bytes, bytes]]]:
        """The moments that reads may still show: those not over for longer than all snapshots' ages together."""
        ages = [spec.maintenance.age_s for spec in self.specs if isinstance(spec.maintenance, Snapshot)]
        oldest = self.now - float(sum(ages))
        over = [moment for moment, _ in self._past[1:]] + [self.now]
        return [entry for entry, until in zip(self._past, over, strict=True) if until >= oldest]

    def _plausible(self, rows: dict[bytes, bytes | None]) -> None:
        """Each row must have been so at a moment that a snapshot may still show; what no snapshot feeds, now.

        Joins over snapshots mix moments, and so do a snapshot and another join that compute one key: neither is
        compared.
        """
        recent = [past for _, past in self._recent()]
        timed = [spec for spec in self.specs if isinstance(spec.maintenance, Snapshot)]
        for key, value in rows.items():
            computing = [spec for spec in self.specs if NaiveModel_computes(spec, key)]
            is_mixed = len(computing) > 1 and any(spec in timed for spec in computing)
            if is_mixed or any(self._reads_joins(spec) for spec in computing):
                continue
            moments = recent if any(spec in timed for spec in computing) else recent[-1:]
            if value not in [past.get(key) for past in moments]:
                raise DifferenceError(f"{key!r} is {value!r}, never so since a snapshot ago")

    def _reads_joins(self, spec: JoinSpec) -> bool:
        outputs = {other.output.literal_prefix.split(b"|")[0] for other in self.specs}
        return any(source.pattern.literal_prefix.split(b"|")[0] in outputs for source in spec.sources)

    @staticmethod
    def _same(found: object, expected: object) -> None:
        if found != expected:
            raise DifferenceError(f"the engine says {found!r}, the model {expected!r}")


def NaiveModel_computes(spec: JoinSpec, key: bytes) -> bool:  # noqa: N802 - reads as the method that it calls
    """Tell whether one join computes ``key``."""
    model = NaiveModel()
    model.add(spec)
    return model.computes(key)


def draw_limit(random: Random) -> int:
    """Draw a limit of memory, of the order of what a walk takes: a table alone has 3 KB."""
    return random.choice([12_000, 16_000, 20_000, 24_000, 28_000, 40_000, 100_000])


def draw_step(random: Random, walker: Walker, *, snapshots: bool, limits: bool = False) -> Step:
    """Draw the next step."""
    specs, base = walker.specs, walker.model.base
    chance = random.random()
    if chance < 0.32:
        return Step("put", (draw_key(random, specs), draw_value(random, specs)))
    if chance < 0.35:
        rows = tuple((draw_key(random, specs), draw_value(random, specs)) for _ in range(random.randrange(1, 8)))
        return Step("put_all", (rows if random.random() < 0.3 else tuple(sorted(dict(rows).items())),))
    if chance < 0.49:
        keys = sorted(base)
        return Step("remove", (random.choice(keys) if keys else b"s|a",))
    if walker.backed and random.random() < 0.15:
        kind = random.choice(["forget", "forget", "load"])
        if random.random() < 0.5:
            key = draw_key(random, specs)
            return Step(kind, (key, key + b"\0"))
        return Step(kind, draw_range(random, specs))
    if random.random() < (0.4 if walker.is_backfilling else 0.12):
        return draw_backfill_step(random, walker)
    if chance < 0.5:
        return Step("remove_range", (*draw_range(random, specs), random.choice([None, 1, 2])))
    if chance < 0.54:
        return Step("evict", (random.randrange(1, 3),))
    if chance < 0.55:
        return Step("invalidate", draw_range(random, specs))
    if chance < 0.555 and limits:
        return Step("limit", (draw_limit(random),))
    if chance < 0.58:
        draw = draw_record_join if any(spec.has_records for spec in specs) else draw_join
        return Step("add", (draw(random, snapshots=snapshots),))
    if chance < 0.6:
        return Step("drop", (random.randrange(10),))
    if chance < 0.64:
        return Step("wait", (random.choice([0.5, 1.0, 3.0]),))
    if chance < 0.66:
        return Step("watch", draw_range(random, specs))
    if chance < 0.72:
        return Step("settle", (random.randrange(10),))
    if chance < 0.78:
        return Step("get", (draw_bound(random, specs),))
    if chance < 0.88:
        return Step("again", (random.randrange(10),))
    first, last = draw_range(random, specs)
    return Step("scan", (first, last, random.choice([None] * 4 + [1, 2]), random.random() < 0.15))


def draw_backfill_step(random: Random, walker: Walker) -> Step:
    """Draw a step of a backfill."""
    chance = random.random()
    if walker.backfills and chance < 0.65:
        return Step("load_pieces", (random.randrange(1 << 30),))
    if chance > 0.95:
        return Step("end", (random.randrange(3),))
    first, last = draw_range(random, walker.specs) if random.random() < 0.3 else (b"", None)
    level = random.choice([None, None, None, 0, 1, 2])
    return Step("begin", (random.randrange(10), first, last, level, random.choice([1 << 20, 1 << 20, 1000])))


def draw_timeline(random: Random) -> JoinSpec:
    """Draw a join of the timeline's kind: a check of one open slot, and a copy of slots with widths."""
    x, y, z = Slot("x"), Slot("y", random.choice([1, 2])), Slot("z", random.choice([None, 1]))
    check = Source(Operator.CHECK, Pattern((b"s|", x, b"|", z)))
    copy = Source(Operator.COPY, Pattern((b"p|", z, b"|", y)))
    return JoinSpec(Pattern((b"t|", x, b"|", y, b"|", z)), (check, copy))


def draw_fit_join(random: Random, *, records: bool = False) -> JoinSpec:
    """Draw a join that can be backfilled; often the timeline, which has loops of its own."""
    if not records and random.random() < 0.3:
        return draw_timeline(random)
    while True:
        spec = (draw_record_join if records else draw_join)(random)
        tables = {source.pattern.literal_prefix.partition(b"|")[0] for source in spec.sources}
        if spec.sources[-1].operator is not Operator.CHECK and spec.maintenance == Push() and tables <= {*BASE_TABLES}:
            return spec


def walk(
    seed: int,
    step_count: int,
    *,
    backed: bool = False,
    backfills: bool = False,
    records: bool = False,
    searched: bool = False,
) -> list[Step] | None:
    """Walk ``step_count`` steps; return the shortest found script of a difference, None if there was none."""
    random = Random(seed)
    snapshots = random.random() < 0.2
    limits = random.random() < 0.5
    with small_limits(random):
        walker = Walker()
        walker.is_backfilling = backfills
        script = [Step("add", (draw_join(random, snapshots=snapshots),)) for _ in range(random.choice([1, 1, 2, 3]))]
        if searched:
            script = [Step("add", (draw_searching_join(random, snapshots=snapshots),)) for _ in script]
        elif backfills:
            draws = range(random.choice([1, 1, 2]))
            script = [Step("add", (draw_fit_join(random, records=records),)) for _ in draws]
        elif records:
            script = [Step("add", (draw_record_join(random, snapshots=snapshots),)) for _ in script]
            script += [Step("add", (draw_join(random),)) for _ in range(random.choice([0, 0, 1]))]
        if backed:
            kind = "back_searched" if searched else "back"
            script.insert(0, Step(kind, tuple(random.sample(BASE_TABLES, random.choice([1, 2, 3])))))
        if limits:
            script.append(Step("limit", (draw_limit(random),)))
        try:
            for step in script:
                walker.take(step)
            for _ in range(step_count):
                script.append(draw_step(random, walker, snapshots=snapshots, limits=limits))
                walker.take(script[-1])
        except Exception as error:
            return shrink(script, type(error))
    return None


class small_limits:  # noqa: N801 - used like a function
    """Make leaves, logs and loaded parts small at random, so that splits and overflows happen."""

    def __init__(self, random: Random) -> None:
        self._leaf, self.log_max = random.choice([2, 4, 1024]), random.choice([2, 10_000, 10_000])
        self._part, self._at_a_time = random.choice([1, 2, 512]), random.choice([0, 1, 8192])

    def __enter__(self) -> None:
        self._leaf_before = rows.set_leaf_max(self._leaf)
        self._before = changes.LOG_MAX, presence.PART_ROWS_MAX, execution.ROWS_AT_A_TIME
        changes.LOG_MAX = self.log_max
        presence.PART_ROWS_MAX, execution.ROWS_AT_A_TIME = self._part, self._at_a_time

    def __exit__(self, *_: object) -> None:
        rows.set_leaf_max(self._leaf_before)
        changes.LOG_MAX, presence.PART_ROWS_MAX, execution.ROWS_AT_A_TIME = self._before


def replay(script: Sequence[Step]) -> None:
    """Take all steps of a script; raises where the engine is wrong."""
    walker = Walker()
    for step in script:
        walker.take(step)


def shrink(script: list[Step], kind: type[Exception]) -> list[Step]:
    """Leave out steps as long as the script still fails in the same way."""
    shorter = True
    while shorter:
        shorter = False
        for at in reversed(range(len(script))):
            without = script[:at] + script[at + 1 :]
            try:
                replay(without)
            except kind:
                script, shorter = without, True
            except Exception:
                continue
    return script


def describe(step: Step) -> str:
    """Print a step as it can be pasted, with joins in the language."""
    shown = [str(part) if isinstance(part, JoinSpec) else repr(part) for part in step.arguments]
    return f"{step.kind:7} {'  '.join(shown)}"


def main() -> int:
    """Walk from consecutive seeds for some seconds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--backed", action="store_true", help="with a database behind some tables")
    parser.add_argument("--backfills", action="store_true", help="with joins that can be backfilled, and backfills")
    parser.add_argument("--records", action="store_true", help="with joins over the fields of records")
    parser.add_argument("--searched", action="store_true", help="with a database that can be asked by fields")
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    seed = options.seed
    while time.monotonic() < end:
        script = walk(
            seed,
            options.steps,
            backed=options.backed or options.searched,
            backfills=options.backfills,
            records=options.records or options.searched,
            searched=options.searched,
        )
        if script is not None:
            print(f"seed {seed}:", *map(describe, script), sep="\n")
            replay(script)
            return 1
        seed += 1
    print(f"{seed - options.seed} walks of {options.steps} steps, no difference")
    return 0


if __name__ == "__main__":
    sys.exit(main())
