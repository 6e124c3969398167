"""What an engine consists of, and how its parts know each other.

reads      Scans -> Reader -> Execution            rows for a range
writes     PutAdmission -> Writer                  a changed key, and everything that depends on it
           Catalog, Backed, Loading                joins, databases, and what was computed elsewhere
holds      Store, Directory, Hits, Story           rows, who reads them, what answered, what was dropped
memory     Ledger, Evictor                         what is dropped when memory is short
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Literal

from pequod.answers.rows import Rows
from pequod.engine.base.deadlines import Deadlines
from pequod.engine.base.presence import Part
from pequod.engine.base.store import Store
from pequod.engine.joins.contexts import Context
from pequod.engine.joins.hits import Hits
from pequod.engine.joins.indexes import Index
from pequod.engine.joins.installed import materialised_rows
from pequod.engine.joins.relations import Directory
from pequod.engine.memory.eviction import VALUE_STEP, Evictable, Evictor
from pequod.engine.memory.ledger import UNLIMITED, Ledger
from pequod.engine.memory.story import Reason, Story
from pequod.engine.read import Reads
from pequod.engine.reads.building import Building
from pequod.engine.reads.counts import Counts
from pequod.engine.reads.following import Following
from pequod.engine.reads.loading import Loading
from pequod.engine.reads.reader import Reader
from pequod.engine.reads.scans import Scans
from pequod.engine.writes.admission import PutAdmission
from pequod.engine.writes.backed import Backed
from pequod.engine.writes.catalog import Catalog
from pequod.engine.writes.changes import Writer
from pequod.engine.writes.paged_tables import PagedTables
from pequod.engine.writes.replacement import Replacing
from pequod.language.errors import PequodError
from pequod.language.missing import Search
from pequod.native import core


class HotEngine:
    """What quick commands look at in an engine, and change in it, and the quick half of each command."""

    __slots__ = (
        "_closed",
        "_deadlines",
        "_effects",
        "_ends",
        "_key_bytes_max",
        "_log_max",
        "_now_s",
        "_reads",
        "_recording",
        "_relations",
        "_value_bytes_quick",
        "_writer",
        "ledger",
        "revision",
    )

    revision: int
    _deadlines: Deadlines

    def _put_quick(self, _key: bytes, _value: bytes) -> bool:
        """Put a row if that takes a look-up and a copy; return False, and nothing has changed, if it takes more.

        Natively, so do the others; here all takes more. Which commands are quick is said in pequod/native/verbs.hpp.
        """
        return False

    def _put_for_quick(self, _key: bytes, _value: bytes, _ttl_ms: int) -> bool:
        """Put a row that expires; return False, and nothing has changed, if it takes more."""
        return False

    def _remove_quick(self, _key: bytes) -> bool | None:
        """Remove a row; return whether it was there, None if it takes more."""
        return None

    def _expire_quick(self, _keys_max: int) -> tuple[int, bytes | None]:
        """Remove keys that are due; return how many, and the next one, without its deadline, if it takes more."""
        return 0, self._deadlines.take_due()

    def _get_quick(self, _key: bytes, _now: float) -> bytes | Literal[False] | None:
        """Return the value of a key, None if it is absent, False if it takes more."""
        return False

    def _scan_quick(
        self, _first: bytes, _last: bytes | None, _limit: int | None, _reverse: object, _now: float
    ) -> Rows | None:
        """Return the rows of a range, None if it takes more."""
        return None


if not TYPE_CHECKING and core is not None:
    HotEngine = core.HotEngine


class Composed(HotEngine):
    """The parts of an engine, and what they do with each other."""

    def __init__(
        self,
        *,
        key_bytes_max: int = 4096,
        value_bytes_max: int = 1 << 20,
        backed: Iterable[bytes] = (),
        can_search: Callable[[Search], bool] = lambda _: False,
        at_once: bool = True,
        memory_limit: int = UNLIMITED,
        priorities: Mapping[str, int] | None = None,
    ) -> None:
        #: Grows with every change of base data and of joins, and when a range is invalidated.
        self.revision = 0
        self._key_bytes_max = key_bytes_max
        self._value_bytes_quick = min(value_bytes_max, VALUE_STEP)
        self._store = Store()
        self._deadlines = self._store.deadlines
        self._directory = Directory(self._store)
        self._relations = self._directory.by_name
        #: The bytes of all data. Code that keeps changes for watches reports them by `Ledger.change_watches`.
        self.ledger = Ledger(memory_limit)
        self._reads = Reads()
        self._memory = Evictor(self.ledger, self._store, key_bytes_max, self._reads, self._drop)
        self._admission = PutAdmission(self._store, self._directory, self._memory, key_bytes_max, value_bytes_max)
        self._hits = Hits(memory_limit)
        self._view_by_last = self._hits.by_last
        self._ends = self._hits.ends
        self._story = Story()
        self._writer = Writer(self._memory, self._hits, self._story)
        self._recording = self._writer.backfills
        self._effects: dict[bytes, bytes | None] | None = None
        self._closed: Callable[[], PequodError] | None = None
        self._now_s = 0.0
        self._log_max = self._writer.log_max
        self._catalog = Catalog(self._directory, self._writer, self._memory, priorities or {}, can_search)
        self._replacing = Replacing(self._catalog, self._writer)
        self._reader = Reader(self._writer, self._memory, at_once=at_once)
        self._scans = Scans(
            self._store, self._directory, self._catalog, self._writer, self._reader, self._memory, self._hits
        )
        self._backed = Backed(
            self._store,
            self._directory,
            self._catalog,
            self._writer,
            self._memory,
            self._story,
            priorities or {},
        )
        self._paged = PagedTables(self._store, self._directory, self._catalog, self._backed, self._memory)
        self._counts = Counts(self._store, self._catalog, self._scans)
        self._following = Following(self._store, self._directory, self._catalog, self._scans)
        #: What builds the join of the replacement that is under way.
        self._building: Building | None = None
        #: Takes in ranges of joins that were computed elsewhere.
        self.backfills = Loading(self._catalog, self._writer, self._reader, self._memory)
        for name in backed:
            self._backed.declare(name)

    def _drop(self, victim: Evictable) -> None:
        """Drop a victim of eviction."""
        if isinstance(victim, Context):
            self._writer.evict(victim, Reason.EVICTED)
        elif isinstance(victim, Index):
            victim.evict()
        else:
            assert isinstance(victim, Part), "nothing else is evicted"
            self._backed.evict(victim)

    def _check(self) -> None:
        self._store._check()
        keys = self._store.slice(b"", None).keys
        assert len(self._deadlines.among(keys)) == len(self._deadlines), "only keys that are there have deadlines"
        self._directory._check()
        self._catalog._check()
        self._replacing._check()
        self.backfills._check()
        self._memory._check()
        self._catalog._check_ledger()
        assert self.ledger.part_count == self._backed.part_count
        self._backed._check()
        self._hits._check()
        self._story._check()
        self._check_quick()

    def _check_quick(self) -> None:
        """Check that what is found by the end of a read alone is all that the table's joins have there."""
        for view in self._hits.by_last.values():
            timeline, table = view.timeline, view.table
            if timeline is None or not timeline.is_fresh or table.entry_count:
                continue
            # Batches begin reads where the context's only range does, whatever the view says.
            first = timeline.first if timeline.is_whole else view.first
            joins = self._directory.by_name[table.name].outputs
            assert [join.is_pull for join in joins] == [False], "one join computes the rows, and keeps them"
            assert not joins[0].coverage.gaps(first, view.last), "the range is materialised"
            found = timeline.rows.since(timeline.prefix, first, None)
            expected = materialised_rows(joins, first, view.last)
            assert list(zip(found.keys, found.values, strict=True)) == sorted(expected.items()), "no row but these"
