"""Backed tables: the loaded part of the rows that a database owns (paper §3.3).

load     a range as the database has it   -> loaded; dependants are told of each row that differs
apply    a change of the database         -> dependants are told if it is in a loaded range; else it is ignored
forget   a range, or a part of it         -> absent; the contexts computed from it are dropped
evict    the least recently used parts    -> the same, when memory is short
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping

from pequod.answers.rows import Rows
from pequod.engine.base.presence import Part, Presence
from pequod.engine.base.range_map import gaps_between
from pequod.engine.base.store import Store
from pequod.engine.base.table import Table
from pequod.engine.joins.installed import InstalledJoin
from pequod.engine.joins.relations import Directory, Relations
from pequod.engine.joins.searched import Searched, are_held
from pequod.engine.memory.eviction import Evictor
from pequod.engine.memory.ledger import ROW
from pequod.engine.memory.story import Reason, Story
from pequod.engine.read import Read
from pequod.engine.writes.catalog import Catalog
from pequod.engine.writes.changes import Writer
from pequod.engine.writes.forgetter import Forgetter
from pequod.language.errors import LimitExceededError
from pequod.language.missing import RangeRows, SearchRange
from pequod.language.ranges import Range, prefix_end, united
from pequod.language.records import Shown
from pequod.language.spec import DELIMITER


class Backed:
    """The backed tables of an engine.

    Invariants:
        1. Every stored key of a backed table lies in a loaded range, or a searched range shows its row.
    """

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
            self.own(relations, presence)

    def own(self, relations: Relations, presence: Presence) -> Forgetter:
        """Have the loaded ranges of a table be parts, which may be evicted; return their owner."""
        name = relations.table.name
        text = name.decode("utf-8", "backslashreplace")
        priority = self._priorities.get(text, 0)
        deadlines = self._store.deadlines
        owner = Forgetter(text, relations, presence, self._writer, self._memory, self._story, priority, deadlines)
        self._by_name[name] = owner
        owner.forgotten = self._forgotten
        return owner

    def disown(self, name: bytes) -> None:
        """Have the loaded ranges of a table be no parts any more."""
        self._by_name.pop(name).disband()

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

    def back(self, names: Iterable[bytes]) -> bool:
        """Declare tables backed in an engine that is in use; return whether any is new. See `Engine.back`."""
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

    def load(self, loads: Iterable[RangeRows], read: Read) -> int:
        """Load ranges with the database's rows; return how many rows differ from before. See `Engine.load_all`."""
        found = [(first, last, dict(rows)) for first, last, rows in loads]
        sizes = [ROW + len(key) + len(value) for _, _, rows in found for key, value in rows.items()]
        self._memory.refuse_beyond(sum(sizes))
        return sum([self._load(*one, read) for one in found])

    def _load(self, first: bytes, last: bytes | None, found: dict[bytes, bytes], read: Read) -> int:
        changed = 0
        for table in self._tables_over(first, last):
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
                self._store.deadlines.remove(key)
            for key in keys:
                changed += self._writer.set_base(relations, key, found[key])
        return changed

    def _tables_over(self, first: bytes, last: bytes | None) -> list[Table]:
        """Return the backed tables that may share keys with a range; one look-up if it lies in one table."""
        table = self._store.tables.get(first.partition(DELIMITER)[0])
        if table is None or last is None or first < table.prefix or table.end < last:
            return self._tables
        return [] if table.presence is None or table.is_paged else [table]

    def load_found(self, found: SearchRange, rows: Iterable[tuple[bytes, bytes]]) -> int:
        """Load rows that a search gave; return how many are new. See `Engine.load_found`."""
        searched, relations = self._searched(found)
        for one in searched:
            one.arriving = Range(found.first, found.last)
        # Indexes with one search may show other rows: their other conditions differ.
        shown = [row for row in rows if any(_shows(one.index.look(*row), found) for one in searched)]
        self._memory.refuse_beyond(sum([ROW + len(key) + len(value) for key, value in shown]))
        return sum([self._writer.set_base(relations, key, value) for key, value in shown])

    def note_searched(self, found: SearchRange, read: Read) -> None:
        """Note that all rows of a search are loaded. See `Engine.note_searched`."""
        for one in self._searched(found)[0]:
            one.arriving = None
            for gap in one.presence.gaps(found.first, found.last, read.number):
                one.note(gap)

    def _searched(self, found: SearchRange) -> tuple[list[Searched], Relations]:
        """Return the indexes that are searched like this, none if no join needs them any more, and their table."""
        relations = self._directory.by_name[found.first.partition(DELIMITER)[0]]
        return [one for one in relations.searched if one.search == found.search], relations

    def evict(self, part: Part) -> None:
        """Forget a part, and drop everything that was computed from it."""
        name = part.first.partition(DELIMITER)[0]
        forgetter = self._by_name[name]
        if self._directory.by_name[name].table.is_paged:
            forgetter.part_from(part, self._store)
        elif isinstance(part.owner, Searched):
            forgetter.forget_searched(part.owner, part.first, part.last, Reason.EVICTED)
        elif not forgetter.drop_some(part):
            forgetter.forget(part.first, part.last, Reason.EVICTED)

    def refuse_overfull(self, loads: Iterable[RangeRows], revision: int) -> None:
        """Make room for ranges that were loaded; if there is none, even after eviction, forget them again.

        Raises:
            LimitExceededError: There is no room.
        """
        self._memory.weigh(revision)
        try:
            self._memory.hold()
        except LimitExceededError:
            for load in loads:
                for forgetter, start, stop in self.clipped(load.first, load.last):
                    if not forgetter.is_paged:
                        forgetter.forget(start, stop, Reason.EVICTED)
            raise

    def make_room(self, revision: int) -> None:
        """Make room for rows that a search gave.

        Raises:
            LimitExceededError: There is no room, even after eviction.
        """
        self._memory.weigh(revision)
        self._memory.hold()

    def abandon_search(self, found: SearchRange) -> None:
        """Forget the rows that a search gave so far. See `Engine.abandon_search`."""
        forgetter = self._by_name[found.first.partition(DELIMITER)[0]]
        searched = [one for one in self._searched(found)[0] if one.arriving is not None]
        for one in searched:
            one.arriving = None
        for one in searched:
            forgetter.forget_searched(one, found.first, found.last, Reason.EVICTED)

    def release_found(self, found: SearchRange) -> None:
        """Let rows be evicted that a search gave and no read has used yet."""
        for one in self._searched(found)[0]:
            one.release(found.first, found.last)

    def part_of(self, key: bytes) -> Part | None:
        """Return the loaded part that holds a key; None if the key is not loaded, or has no backed table."""
        table = self._store.tables.get(key.partition(DELIMITER)[0])
        return None if table is None or table.presence is None else table.presence.find(key)

    def apply(self, key: bytes, value: bytes | None) -> bool | None:
        """Apply a change of the database; return whether it changed a row, None if the key is not loaded.

        Requires:
            The key's table is backed.
        """
        relations = self._directory.by_name[key.partition(DELIMITER)[0]]
        assert relations.table.presence is not None, "the key is followed"
        if not relations.table.presence.has(key):
            if value is None or not are_held(relations.searched, key, value):
                # A row that is not shown any more stood alone.
                value = None
            if value is None and relations.table.get(key) is None:
                return None
        return self._writer.set_base(relations, key, value)

    def is_followed(self, key: bytes) -> bool:
        """Return whether a change of a key may matter; see `Engine.is_followed`."""
        relations = self._directory.by_name.get(key.partition(DELIMITER)[0])
        if relations is None or relations.table.presence is None:
            return False
        return any(one.has_rows for one in relations.searched) or relations.table.presence.has(key)

    def without_found(self, rows: Rows) -> Rows:
        """Return rows without those that are there for searched ranges alone."""
        tables = [table for table in self._store.backed if self._of(table).searched]
        if not tables:
            return rows
        kept = [
            (key, value)
            for key, value in zip(rows.keys, rows.values, strict=True)
            if not any(
                table.presence is not None and table.prefix <= key < table.end and not table.presence.has(key)
                for table in tables
            )
        ]
        return Rows([key for key, _ in kept], [value for _, value in kept])

    def forget(self, first: bytes, last: bytes | None) -> None:
        """Forget the loaded rows of a range, and drop everything that was computed from them; see `Engine.forget`."""
        self._writer.serial += 1
        for forgetter, start, stop in self.clipped(first, last):
            if not forgetter.is_paged:
                forgetter.forget_searches()
                forgetter.forget(start, stop)

    def forget_some(self, first: bytes, last: bytes | None) -> bool:
        """Forget some of the loaded rows of a range; see `Engine.forget_some`."""
        self._writer.serial += 1
        clipped = self.clipped(first, last)
        return any(forgetter.forget_some(start, stop) for forgetter, start, stop in clipped if not forgetter.is_paged)

    def release(self, first: bytes, last: bytes | None) -> None:
        """Let loaded rows be evicted that no read has used yet; see `Engine.release`."""
        for forgetter, start, stop in self.clipped(first, last):
            forgetter.release(start, stop)

    def clipped(self, first: bytes, last: bytes | None) -> Iterator[tuple[Forgetter, bytes, bytes]]:
        """Yield the tables that are backed or paged and share keys with a range, each with the shared part."""
        for table in self._store.backed:
            start, stop = table.clip(first, last)
            if start < stop:
                yield self._by_name[table.name], start, stop

    def are_read(self, first: bytes, last: bytes | None) -> bool:
        """Return whether a read of the range shows rows of a backed table, directly or through joins."""
        backed = self._tables
        if any(start < stop for start, stop in (table.clip(first, last) for table in backed)):
            return True
        return any(table in backed for join in self._joins_under(first, last) for table in join.source_tables)

    @property
    def _tables(self) -> list[Table]:
        """The tables that databases own."""
        return [table for table in self._store.backed if not table.is_paged]

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
        found = [Range(*table.clip(first, last)) for table in self._tables]
        for join in self._joins_under(first, last):
            for table, source in zip(join.source_tables, join.spec.sources, strict=True):
                if table.presence is not None and not table.is_paged:
                    prefix = source.pattern.literal_prefix
                    found.append(Range(*table.clip(prefix, prefix_end(prefix))))
        return united(one for one in found if one.first < one.last)

    def loaded(self) -> list[Range]:
        """Return the loaded ranges."""
        parts = [part for table in self._tables if table.presence is not None for part in table.presence]
        return list(united(part.range for part in parts))

    @property
    def part_count(self) -> int:
        """The number of parts."""
        searched = sum(len(one.presence) for table in self._store.backed for one in self._of(table).searched)
        return searched + sum(len(table.presence) for table in self._store.backed if table.presence is not None)

    def count_over(self, first: bytes, last: bytes | None) -> int:
        """Return the number of parts over a range; see `Engine.count_loaded`."""
        clipped = [(table.presence, *table.clip(first, last)) for table in self._store.backed]
        return sum(presence.count_over(start, stop) for presence, start, stop in clipped if presence and start < stop)

    def _of(self, table: Table) -> Relations:
        return self._directory.by_name[table.name]

    def _check(self) -> None:
        for table in self._store.backed:
            assert table.presence is not None, "a database owns it"
            searched = self._of(table).searched
            for one in searched:
                one.presence._check()
            for key, value in zip(*table.slice(table.prefix, table.end), strict=True):
                assert table.presence.has(key) or are_held(searched, key, value), "invariant 1"


def _shows(shown: Shown, found: SearchRange) -> bool:
    return any(found.first <= key < found.last for key in shown)
