"""What an engine shows of its inside."""

from __future__ import annotations

from collections.abc import Generator

from pequod.answers.explanations import JoinExplanation, RangeExplanation
from pequod.answers.statistics import Statistics
from pequod.engine.calls.composed import Composed
from pequod.engine.memory.story import Dropped
from pequod.engine.shown import splits
from pequod.engine.shown.explain import explain_coverage, explain_dropped, explain_join
from pequod.engine.shown.silence import Silence, hidden_by
from pequod.engine.shown.statistics import collect
from pequod.language.ranges import prefix_end
from pequod.language.spec import DELIMITER


class ShownCalls(Composed):
    """Explanations, statistics and samples; nothing is computed for them."""

    def explain_join(self, name: str) -> JoinExplanation:
        """Return how a join is evaluated and kept.

        Raises:
            UnknownJoinError: No join has this name.
        """
        join = self._catalog.find(name)
        return explain_join(join, hidden_by(join), Silence(self._directory).explained(join))

    def explain_range(self, first: bytes, last: bytes | None, *, now: float = 0.0) -> RangeExplanation:
        """Return what a read of ``[first, last)`` would find and would have to do; nothing is computed."""
        is_empty = last is not None and first >= last
        joins = [] if is_empty else self._catalog.over(first, last)
        return RangeExplanation(
            first,
            last,
            0 if is_empty else self._store.count(first, last),
            tuple(explain_coverage(join, *join.clip(first, last), now) for join in joins),
            () if is_empty else explain_dropped(self._story.over(first, last), now),
            notes=() if is_empty else Silence(self._directory).range(first, last, joins),
        )

    def stored(self, prefix: bytes) -> tuple[int, int]:
        """Return how many client-written keys the tables have whose names begin with a prefix, and the bytes of these.

        Bytes are those of keys and values. A prefix that ends with the delimiter is one table; else keys without a
        table are counted as well. Of a paged table only what is here counts.

        Cost:
            O(tables that are meant), and O(keys without a table) where some of these are.
        """
        last = prefix_end(prefix)
        tables = self._store.tables_of(prefix, last)
        count = sum([table.entry_count for table in tables])
        size = sum([table.key_bytes + table.value_bytes for table in tables])
        if DELIMITER in prefix or not self._store.loose.rows:
            return count, size
        keys, values = self._store.loose.rows.slice(prefix, last)
        return count + len(keys), size + sum(map(len, keys)) + sum(map(len, values))

    def stored_bytes(self, key: bytes) -> int | None:
        """Return how many bytes a client-written key and its value have; None if it is not here."""
        value = self._store.get(key)
        return None if value is None else len(key) + len(value)

    @property
    def rows_computed(self) -> int:
        """Return how many rows reads had to compute since the engine was made."""
        return self._reads.rows_computed

    def dropped(self, after: int = 0) -> list[Dropped]:
        """Return which ranges were dropped or forgotten, when and why: computed ones, and loaded ones of backed tables.

        Args:
            after: Leave out those up to this number; 0: return all that are kept.

        Returns:
            At most the latest 256, the earliest first. If the first has a higher number than ``after + 1``, the ones in
            between are not kept any more.
        """
        return self._story.since(after)

    def tell_time(self, now: float) -> None:
        """Set the time by which later changes and drops are dated, for `JoinStatistics.age_s` and `dropped`."""
        self._story.now_s = self._now_s = now

    def statistics(self, *, now: float = 0.0) -> Statistics:
        """Return what is stored and materialised, and counts of events so far.

        Cost:
            O(computed rows + contexts): 35 ns a row and 2 µs a context.
        """
        steps = self.statistics_in_steps(now=now)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                statistics: Statistics = end.value
                return statistics

    def statistics_in_steps(self, *, now: float = 0.0) -> Generator[None, None, Statistics]:
        """Collect the same in steps of a millisecond or less; between them the engine may be used.

        Yields:
            None, after each step. The statistics are what the generator returns.

        Ensures:
            Rows that change between steps are counted as of some moment, the others exactly.
        """
        return collect(self._store, self._catalog, self.ledger, lambda: self.revision, now)

    def sampled(self, first: bytes, last: bytes | None, parts: int) -> list[tuple[bytes, int, int]]:
        """Return client-written and loaded keys of a range, each with the rows and the bytes that it stands for.

        Args:
            parts: As many parts of equal numbers of rows can be told apart.

        Cost:
            O(groups in the range, some thousands of them at most): a few ms.
        """
        return splits.sizes(self._store, first, last, parts)

    def splits(self, first: bytes, last: bytes | None, count: int) -> list[bytes]:
        """Return keys that cut ``[first, last)`` into about ``count`` parts of about equal numbers of rows.

        Rows that are held count: nothing is computed or loaded for it. The keys ascend, and lie above ``first``.

        Cost:
            O(groups and status ranges in the range, some thousands of them at most): a few ms.
        """
        return splits.find(self._store, self._catalog.over(first, last), first, last, count)
