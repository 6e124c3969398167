"""Installs and drops joins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pequod.engine.calls.composed import Composed
from pequod.engine.joins import indexes
from pequod.engine.joins.compiled import JoinInfo
from pequod.engine.joins.indexes import Growth
from pequod.engine.joins.installed import InstalledJoin
from pequod.engine.shown.silence import Silence, hidden_by
from pequod.language.missing import Uncomputed, Unindexed
from pequod.language.spec import JoinSpec


class JoinCalls(Composed):
    """Installing and dropping joins."""

    def fresh_joins(self, specs: Sequence[JoinSpec]) -> list[JoinSpec]:
        """Return those of some joins that are not installed; nothing changes.

        Raises:
            JoinError: `add_joins` would refuse them.

        Cost:
            O(keys of the output tables).
        """
        return self._catalog.fresh(specs)

    def add_joins(self, specs: Sequence[JoinSpec], *, names: Mapping[JoinSpec, str] = {}) -> list[JoinInfo]:
        """Install joins, all or none; one that is installed already is left as it is.

        Args:
            names: What to call new ones, by names that no other join has; the others are named after their tables.

        Raises:
            JoinError: A join is malformed, part of a cycle, or computes keys that clients have written.

        Cost:
            O(keys of the output tables), and a look at some thousands of the sources' keys;
            dependants of the new joins are computed again when they are read.
        """
        before = set(self._catalog)
        joins, is_new = self._catalog.add(specs, names)
        self._hits.clear()
        self.backfills.review()
        self.revision += is_new
        for join in self._catalog:
            if join not in before:
                self._directory.end_watches_over(join)
        silence = Silence(self._directory)
        return [
            replace(self._shown(join), notes=silence.installed(join))
            for join in (self._catalog.find(info.name) for info in joins)
        ]

    @staticmethod
    def _shown(join: InstalledJoin) -> JoinInfo:
        """Return a join with the warnings that depend on the joins beside it."""
        return replace(join.info, warnings=(*join.info.warnings, *hidden_by(join)))

    def computes(self, first: bytes, last: bytes | None) -> bool:
        """Return whether installed joins may compute keys of ``[first, last)`` (None: to the end)."""
        joins = self._catalog.over(first, last)
        return any(join.match_output(first) for join in joins) if last == first + b"\0" else bool(joins)

    def drop_join(self, name: str) -> None:
        """Drop a join and its outputs.

        Raises:
            UnknownJoinError: No join has this name.
        """
        dropped = self._catalog.find(name)
        self._replacing.note_drop(name)
        self._catalog.drop(name)
        self._hits.clear()
        self.backfills.review()
        self.revision += 1
        self._directory.end_watches_over(dropped)

    def index_some(self, lacking: Unindexed) -> bool:
        """Make a slice of an index that a read lacks; return whether there is more of it to make.

        Meanwhile everything else may happen: rows change, ranges are loaded and forgotten, joins come and go. If no
        join needs the index any more, or joins have come to compute rows of its source, there is nothing to make.

        Raises:
            LimitExceededError: There is no memory for it, even after eviction; nothing of it is kept.

        Cost:
            O(`SLICE_ROWS`), or the time to parse `SLICE_BYTES` and one value more.
        """
        index = self._catalog.index_of(lacking)
        self._reads.begin()
        if index is None or index.computed_by:
            return False
        match index.grow(indexes.SLICE_ROWS, indexes.SLICE_BYTES):
            case Growth.MORE:
                return True
            case Growth.WHOLE:
                return False
            case Growth.NO_ROOM:
                self.ledger.count_refusal()
                raise self._memory.refusal(max(self.ledger.total_bytes, self.ledger.limit_bytes) + 1)

    def joins(self) -> list[JoinInfo]:
        """Return the installed joins, the earliest first."""
        return [self._shown(join) for join in self._catalog]

    def compute_some(self, lacking: Uncomputed, first: bytes, *, now: float) -> bytes | None:
        """Compute a slice of a range that a read lacks, from ``first`` on; return where the next one begins.

        Meanwhile everything else may happen. What memory has no room for is evicted, and the read, which may ask once
        more then, computes it at once, or is refused.

        Returns:
            None if there is no more of it.

        Raises:
            MissingError: Ranges of backed tables that this needs are not loaded, or an index is not made.
            LimitExceededError: The slice does not fit into memory.

        Cost:
            O(`SLICE_KEYS` of the join's first source), and what the joins have for each of them.
        """
        return self._scans.compute(first, lacking.last, self._reads.begin(now))

    @property
    def is_timed(self) -> bool:
        """Whether the result of reads depends on ``now``: a snapshot join is installed."""
        return self._catalog.is_timed
