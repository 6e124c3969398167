"""Backed tables: the loaded part of the rows that a database owns (paper §3.3).

load     a range as the database has it   -> loaded; dependants are told of each row that differs
apply    a change of the database         -> dependants are told if it is in a loaded range; else it is ignored
forget   a range, or a part of it         -> absent; the contexts computed from it are dropped
evict    the least recently used parts    -> the same, when memory is short
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, pairwise
from typing import Final

from pequod.engine.base import presence
from pequod.engine.base.presence import Part, Presence, Removed
from pequod.engine.base.range_map import gaps_between
from pequod.engine.base.store import Store
from pequod.engine.joins.contexts import Context
from pequod.engine.joins.installed import InstalledJoin
from pequod.engine.joins.relations import Directory, Relations
from pequod.engine.memory.eviction import HELD, PINNED, WAIT_READS, Evictor, Rank
from pequod.engine.memory.ledger import ROW
from pequod.engine.memory.story import Reason, Story
from pequod.engine.read import Read
from pequod.engine.writes.catalog import Catalog
from pequod.engine.writes.changes import Writer
from pequod.language.errors import LimitExceededError
from pequod.language.ranges import Range, prefix_end, united
from pequod.language.spec import DELIMITER

#: Rows, and frames of contexts, that are forgotten in one step between other calls: 1 µs each or so.
FORGOTTEN_MAX: Final = 512


class Forgetter:
    """Forgets loaded ranges of one table, on request or when memory is short.

    Args:
        priority: Data with a lower one is evicted first; PINNED stays.
    """

    __slots__ = ("_memory", "_name", "_presence", "_priority", "_relations", "_story", "_table", "_writer", "forgotten")

    def __init__(
        self,
        name: str,
        relations: Relations,
        presence: Presence,
        writer: Writer,
        memory: Evictor,
        story: Story,
        priority: int,
    ) -> None:
        self._name = name
        self._story = story
        self._relations = relations
        self._table = relations.table
        self._presence = presence
        self._writer = writer
        self._memory = memory
        self._priority = priority
        #: Takes the ranges that are forgotten, if they are asked for.
        self.forgotten: list[Range] | None = None

    def add(self, first: bytes, last: bytes, keys: list[bytes]) -> None:
        """Note that a gap is loaded, with these keys.

        Cost:
            O(keys / PART_ROWS_MAX) parts.
        """
        size = presence.PART_ROWS_MAX
        cuts = [first, *keys[size::size], last]
        for at, (start, stop) in enumerate(pairwise(cuts)):
            part, absorbed = self._presence.add(start, stop, min(size, len(keys) - at * size))
            for old in absorbed:
                self._leave(old)
            self._enter(part, self._memory.reads.number + WAIT_READS)

    def forget(self, first: bytes, last: bytes, reason: Reason = Reason.FORGOTTEN) -> None:
        """Forget the loaded rows of a range, and drop everything that was computed from them."""
        table, ledger = self._table, self._memory.ledger
        for context in self._dependants(first, last):
            self._writer.evict(context, reason)
        watches = self._relations.watches
        if watches.count:
            watches.note_forgotten(first, last)
        self._relations.drop_indexes()
        before_bytes = table.count_bytes()
        for key in table.slice(first, last).keys:
            table.remove(key)
        removed: Removed = self._presence.forget(first, last)
        for part in removed.gone:
            self._leave(part)
            start, stop = max(first, part.first), min(last, part.last)
            self._story.note(self._name, start, stop, reason)
            if self.forgotten is not None:
                self.forgotten.append(Range(start, stop))
        for part in removed.left:
            self._enter(part, self._memory.reads.number)
        ledger.forget_rows(before_bytes - table.count_bytes())

    def forget_some(self, first: bytes, last: bytes) -> bool:
        """Forget some of the loaded rows of a range, or drop a dependant; return whether more may be left.

        Cost:
            O(FORGOTTEN_MAX) rows or frames, and those of one context.
        """
        part = self._presence.first_over(first, last)
        if part is None:
            return False
        first, last = max(first, part.first), min(last, part.last)
        rows = self._table.slice(first, last, FORGOTTEN_MAX + 1)
        if len(rows.keys) > FORGOTTEN_MAX:
            last = rows.keys[-1]
        frame_count = 0
        for context in list(islice(self._waiting(first, last), FORGOTTEN_MAX)):
            frame_count += context.updaters_count
            self._writer.evict(context, Reason.FORGOTTEN)
            if frame_count >= FORGOTTEN_MAX:
                return True
        self.forget(first, last)
        return True

    def rank(self, part: Part) -> Rank | None:
        """Return the place of a part in the order of eviction: its dependants were used no later than it.

        Cost:
            O(log frames + dependants).
        """
        if self._relations.watches.are_over(part.first, part.last):
            return HELD
        priority, last_used = self._priority, self._memory.last_needed(part.last_used)
        for context in self._dependants(part.first, part.last):
            rank = context.rank()
            if rank is HELD:
                return HELD
            priority, last_used = max(priority, rank[0]), max(last_used, rank[1])
        if last_used < self._memory.reads.number:
            # The part was last used as late as these contexts; it keeps this when they are gone.
            part.last_used = last_used
        return priority, last_used, 1

    def _dependants(self, first: bytes, last: bytes) -> list[Context]:
        return list(dict.fromkeys(self._waiting(first, last)))

    def _waiting(self, first: bytes, last: bytes) -> Iterator[Context]:
        """Yield the contexts that wait for changes in a range, perhaps with others; some more than once."""
        for sites in self._relations.readers:
            for site in sites:
                yield from site.within(first, last)

    def _enter(self, part: Part, last_used: int) -> None:
        part.last_used = last_used
        self._memory.ledger.change_parts(1)
        if self._priority < PINNED:
            self._memory.enter(part, (self._priority, self._memory.reads.number, 1))

    def _leave(self, part: Part) -> None:
        self._memory.ledger.change_parts(-1)
        self._memory.leave(part)


class Backed:
    """The backed tables of an engine."""

    __slots__ = (
        "_by_name",
        "_catalog",
        "_directory",
        "_forgotten",
        "_memory",
        "_priorities",
        "_store",
        "_story",
        "_writer",
    )

    def __init__(
        self,
        store: Store,
        directory: Directory,
        catalog: Catalog,
        writer: Writer,
        memory: Evictor,
        story: Story,
        priorities: Mapping[str, int],
    ) -> None:
        self._story = story
        self._store = store
        self._directory = directory
        self._catalog = catalog
        self._writer = writer
        self._memory = memory
        self._priorities = priorities
        self._by_name: dict[bytes, Forgetter] = {}
        self._forgotten: list[Range] | None = None

    def declare(self, name: bytes) -> None:
        """Declare that a database owns the keys of a table; none of its ranges is loaded."""
        relations, presence = self._directory.back(name)
        if name not in self._by_name:
            text = name.decode("utf-8", "backslashreplace")
            priority = self._priorities.get(text, 0)
            owner = Forgetter(text, relations, presence, self._writer, self._memory, self._story, priority)
            presence.owner = self._by_name[name] = owner
            owner.forgotten = self._forgotten

    def report_forgotten(self) -> None:
        """Keep the ranges that are forgotten from now on; see `Engine.forgotten`."""
        if self._forgotten is None:
            self._forgotten = []
        for owner in self._by_name.values():
            owner.forgotten = self._forgotten

    def take_forgotten(self) -> list[Range]:
        """Return the ranges that were forgotten since the last call; see `Engine.forgotten`."""
        assert self._forgotten is not None, "they are kept from `report_forgotten` on"
        taken = list(united(self._forgotten))
        self._forgotten.clear()
        return taken

    def absent(self, first: bytes, last: bytes | None) -> list[Range]:
        """Return the parts of a range that are not loaded; see `Engine.absent`."""
        found: list[Range] = []
        for table in self._store.backed:
            start, stop = table.clip(first, last)
            if start < stop and table.presence is not None:
                found += gaps_between(table.presence.over(start, stop), start, stop)
        return found

    def begin(self, names: Iterable[bytes]) -> bool:
        """Declare the same of an engine that is in use; return whether any is new. See `Engine.back`."""
        new = [name for name in names if name not in self._by_name]
        for name in new:
            relations = self._directory.at(name)
            if relations.outputs or relations.table.entry_count:
                text = name.decode("utf-8", "backslashreplace")
                raise ValueError(f"table {text!r} has computed keys, or keys that clients have written")
        for name in new:
            self.declare(name)
            relations = self._directory.at(name)
            self._catalog.source_backed(relations.table)
            if relations.watches.count:
                relations.watches.note_forgotten(relations.table.prefix, relations.table.end)
        return bool(new)

    def load(self, first: bytes, last: bytes | None, rows: Iterable[tuple[bytes, bytes]], read: Read) -> int:
        """Load a range with the database's rows; return how many rows differ from before. See `Engine.load`."""
        found = dict(rows)
        self._memory.refuse_beyond(sum([ROW + len(key) + len(value) for key, value in found.items()]))
        changed = 0
        for table in self._store.backed:
            start, stop = table.clip(first, last)
            if start >= stop:
                continue
            assert table.presence is not None
            gone = [key for key in table.slice(start, stop).keys if key not in found]
            keys = sorted(key for key in found if start <= key < stop)
            owner, relations = self._by_name[table.name], self._directory.by_name[table.name]
            for gap in table.presence.gaps(start, stop, read.number):
                owner.add(*gap, keys[bisect_left(keys, gap.first) : bisect_left(keys, gap.last)])
            for key in gone:
                changed += self._writer.set_base(relations, key, None)
            for key in keys:
                changed += self._writer.set_base(relations, key, found[key])
        return changed

    def evict(self, part: Part) -> None:
        """Forget a part, and drop everything that was computed from it."""
        self._by_name[part.first.partition(DELIMITER)[0]].forget(part.first, part.last, Reason.EVICTED)

    def refuse_overfull(self, first: bytes, last: bytes | None, revision: int) -> None:
        """Make room for a range that was loaded; if there is none, even after eviction, forget the range again.

        Raises:
            LimitExceededError: There is no room.
        """
        self._memory.weigh(revision)
        try:
            self._memory.hold()
        except LimitExceededError:
            self.forget(first, last, Reason.EVICTED)
            raise

    def part_of(self, key: bytes) -> Part | None:
        """Return the loaded part that holds a key; None if the key is not loaded, or has no backed table."""
        table = self._store.tables.get(key.partition(DELIMITER)[0])
        return None if table is None or table.presence is None else table.presence.find(key)

    def apply(self, key: bytes, value: bytes | None) -> bool | None:
        """Apply a change of the database; return whether it changed a row, None if the key is not loaded."""
        relations = self._directory.by_name.get(key.partition(DELIMITER)[0])
        if relations is None or relations.table.presence is None or not relations.table.presence.has(key):
            return None
        return self._writer.set_base(relations, key, value)

    def forget(self, first: bytes, last: bytes | None, reason: Reason = Reason.FORGOTTEN) -> None:
        """Forget the loaded rows of a range, and drop everything that was computed from them; see `Engine.forget`."""
        self._writer.serial += 1
        for table in self._store.backed:
            start, stop = table.clip(first, last)
            if start < stop:
                self._by_name[table.name].forget(start, stop, reason)

    def forget_some(self, first: bytes, last: bytes | None) -> bool:
        """Forget some of the loaded rows of a range; see `Engine.forget_some`."""
        self._writer.serial += 1
        return any(self._by_name[table.name].forget_some(*table.clip(first, last)) for table in self._store.backed)

    def release(self, first: bytes, last: bytes | None) -> None:
        """Let loaded rows be evicted that no read has used yet; see `Engine.release`."""
        for table in self._store.backed:
            start, stop = table.clip(first, last)
            if start < stop and table.presence is not None:
                for part in table.presence.over(start, stop):
                    part.last_used = min(part.last_used, self._memory.reads.number)

    def are_read(self, first: bytes, last: bytes | None) -> bool:
        """Return whether a read of the range shows rows of a backed table, directly or through joins."""
        if any(start < stop for start, stop in (table.clip(first, last) for table in self._store.backed)):
            return True
        return any(
            table.presence is not None for join in self._joins_under(first, last) for table in join.source_tables
        )

    def _joins_under(self, first: bytes, last: bytes | None) -> Iterator[InstalledJoin]:
        """Yield the joins that compute keys of a range, and those that they read, directly or not."""
        joins = dict.fromkeys(self._catalog.over(first, last))
        todo = list(joins)
        while todo:
            join = todo.pop()
            yield join
            more = dict.fromkeys(up for ups in join.upstreams for up in ups if up not in joins)
            todo += more
            joins |= more

    def read_ranges(self, first: bytes, last: bytes | None) -> tuple[Range, ...]:
        """Return the ranges of which a read may show rows; see `Engine.backed_reads`."""
        found = [Range(*table.clip(first, last)) for table in self._store.backed]
        for join in self._joins_under(first, last):
            for table, source in zip(join.source_tables, join.spec.sources, strict=True):
                if table.presence is not None:
                    prefix = source.pattern.literal_prefix
                    found.append(Range(*table.clip(prefix, prefix_end(prefix))))
        return united(one for one in found if one.first < one.last)

    def loaded(self) -> list[Range]:
        """Return the loaded ranges."""
        parts = [part for table in self._store.backed if table.presence is not None for part in table.presence]
        return list(united(part.range for part in parts))

    @property
    def part_count(self) -> int:
        """The number of parts."""
        return sum(len(table.presence) for table in self._store.backed if table.presence is not None)
