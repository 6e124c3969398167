"""The relations of each table: the joins that compute its keys, the sites that read it, and the watches over it.

    b"p" -> Relations   table p|   outputs: none         readers: a site of the timeline join
    b"t" -> Relations   table t|   outputs: timeline     readers: none       watches: of t|ann|

A table itself knows none of these. One look-up by name finds both (bench row: put, old key).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from pequod.answers.changes import Change
from pequod.engine.base.deadlines import Deadlines
from pequod.engine.base.presence import Presence
from pequod.engine.base.store import LooseRows, Store
from pequod.engine.base.table import Table
from pequod.engine.joins.contexts import Context
from pequod.engine.joins.installed import InstalledJoin
from pequod.engine.joins.projections import Projection, TableReader
from pequod.engine.joins.searched import Searched
from pequod.engine.joins.watches import Watch, WatchIndex
from pequod.language.spec import DELIMITER
from pequod.native import core


class HotRelations:
    """What quick commands look at before they read or write a table."""

    __slots__ = (
        "contexts",
        "is_owned",
        "is_watched",
        "readers",
        "searched",
        "slot_follow",
        "slot_start",
        "slot_width",
        "table",
    )


if not TYPE_CHECKING and core is not None:
    HotRelations = core.HotRelations


class Relations(HotRelations):
    """One table, with its outputs, readers and watches.

    Invariants:
        1. ``is_owned`` is true if and only if clients may not write all keys: joins compute some, or a database owns
           them. ``is_watched`` is true if and only if there are watches.
        2. A table that is backed or paged has no outputs.
    """

    __slots__ = ("outputs", "watches")

    def __init__(self, table: Table) -> None:
        self.table = table
        #: Joins that compute keys of this table, in the order of their installation.
        self.outputs: list[InstalledJoin] = []
        #: What reads this table: the sites of each join and source, those that look at values in projections.
        self.readers: list[TableReader] = []
        #: The searched ranges of the indexes among them that a database can be asked for.
        self.searched: list[Searched] = []
        #: The watches over the table's keys, stored or computed.
        self.watches = WatchIndex(table)
        self.is_owned = False
        self.is_watched = False
        #: The contexts of the one join that computes the table, by prefix, else None; and how a key leads
        #: to a prefix of level one (`LevelOne`).
        self.contexts: dict[bytes, Context] | None = None
        self.slot_start, self.slot_width, self.slot_follow = -1, 0, 0

    def tell_stored(self, change: Change) -> None:
        """Tell watches of the change of a client-written row."""
        self.watches.tell_stored(change)

    @property
    def is_backed(self) -> bool:
        """Whether a database owns the keys of the table."""
        return self.table.presence is not None and not self.table.is_paged

    @property
    def may_be_paged(self) -> bool:
        """Whether rows may go that a disk has: no join computes keys here, or reads all rows by an index of records."""
        return (
            self.table.is_kept
            and self.table.presence is None
            and not self.outputs
            and not any(isinstance(reader, Projection) for reader in self.readers)
        )

    def review(self) -> None:
        """Derive the other fields again, since outputs, watches or the table's owner have changed."""
        self.is_owned = bool(self.outputs) or self.is_backed
        self.is_watched = self.watches.count > 0
        self.contexts = None
        if len(self.outputs) == 1:
            self.contexts = self.outputs[0].contexts
            self.slot_start, self.slot_width, self.slot_follow = self.outputs[0].level_one_cut
        for join in self.outputs:
            join.follow(is_followed=self.is_watched or bool(join.downstreams))

    def _check(self) -> None:
        for reader in self.readers:
            if isinstance(reader, Projection):
                reader._check()
        assert self.is_owned == (bool(self.outputs) or self.is_backed), "invariant 1"
        assert self.is_watched == (self.watches.count > 0), "invariant 1"
        assert self.table.presence is None or not self.outputs, "invariant 2"
        for join in self.outputs:
            assert join.is_followed == (self.watches.count > 0 or bool(join.downstreams)), "invariant 3 of the join"
            assert join.is_quiet == (join.reads_unbacked and not join.is_followed), "invariant 3 of the join"


class LooseKeys:
    """The keys without a table: no join computes or reads them; watches may follow them."""

    __slots__ = ("_watches", "table")

    is_owned: Final = False
    is_backed: Final = False
    outputs: Final = ()
    readers: Final = ()

    def __init__(self, rows: LooseRows, watches: Collection[Watch]) -> None:
        self.table = rows
        self._watches = watches

    @property
    def is_watched(self) -> bool:
        """Whether there are watches, which may have none of these keys."""
        return bool(self._watches)

    def tell_stored(self, change: Change) -> None:
        """Tell watches of the change of a key."""
        for watch in self._watches:
            if watch.covers(change.key):
                watch.tell(change)


class Directory:
    """The tables of an engine with their relations.

    Invariants:
        1. It has exactly the tables of the store.
        2. Every table's watches are exactly the live watches that overlap the table.
    """

    __slots__ = ("_store", "by_name", "loose", "watches")

    def __init__(self, store: Store) -> None:
        self._store = store
        #: Table name -> relations, without the delimiter.
        self.by_name: dict[bytes, Relations] = {}
        #: All live watches.
        self.watches: dict[Watch, None] = {}
        #: The keys that have no table.
        self.loose = LooseKeys(store.loose, self.watches)

    @property
    def deadlines(self) -> Deadlines:
        """The deadlines of keys; always this object."""
        return self._store.deadlines

    def at(self, name: bytes) -> Relations:
        """Return the relations of the table of a name; both are made on first use."""
        relations = self.by_name.get(name)
        if relations is None:
            relations = self.by_name[name] = Relations(self._store.table(name))
            for watch in self.watches:
                relations.watches.add(watch)
            relations.review()
        return relations

    def back(self, name: bytes) -> tuple[Relations, Presence]:
        """Declare that a database owns the keys of a table; none of its ranges is loaded."""
        relations = self.at(name)
        assert not relations.outputs, "tables are declared backed before they are used"
        presence = self._store.back(name)
        relations.review()
        return relations, presence

    def page(self, name: bytes) -> tuple[Relations, Presence]:
        """Declare that a disk keeps rows of a table that are not here; none of its ranges is loaded."""
        relations = self.at(name)
        assert not relations.outputs, "of what joins compute, the base rows are all here"
        presence = self._store.back(name)
        relations.table.is_paged = True
        relations.review()
        return relations, presence

    def page_whole(self, name: bytes) -> tuple[Relations, Presence]:
        """Declare that a disk has the rows of a table, too, all of which are here; return its ranges, as yet none."""
        relations = self.by_name[name]
        assert relations.may_be_paged, "of what joins compute, the base rows are all here"
        presence = self._store.page_whole(relations.table)
        relations.table.is_paged = True
        relations.review()
        return relations, presence

    def add_watch(self, watch: Watch) -> None:
        """Begin to deliver changes to a watch; the joins over its range are materialised there and fresh."""
        self.watches[watch] = None
        for relations in self._over(watch):
            relations.watches.add(watch)
            relations.review()

    def remove_watch(self, watch: Watch) -> None:
        """Deliver no more changes to a watch; nothing changes if it gets none."""
        if watch not in self.watches:
            return
        del self.watches[watch]
        for relations in self._over(watch):
            relations.watches.remove(watch)
            relations.review()

    def find(self, key: bytes) -> Relations | LooseKeys | None:
        """Return what is related to the table of a key, None if there is no such table."""
        at = key.find(DELIMITER)
        return self.loose if at < 0 else self.by_name.get(key[:at])

    def end_watches_over(self, join: InstalledJoin) -> None:
        """End the watches over the range of a join that was installed or dropped."""
        for watch in list(self.watches):
            if watch.first < join.last and (watch.last is None or join.first < watch.last):
                self.end_watch(watch, f"the join {join.info.name!r} over this range came or went")

    def end_watch(self, watch: Watch, reason: str) -> None:
        """Deliver no more changes to a watch, and note the reason."""
        self.remove_watch(watch)
        watch.end(reason)

    def _over(self, watch: Watch) -> list[Relations]:
        return [self.by_name[table.name] for table in self._store.tables_of(watch.first, watch.last)]

    def _check(self) -> None:
        assert {name: relations.table for name, relations in self.by_name.items()} == self._store.tables, "invariant 1"
        for relations in self.by_name.values():
            relations._check()
            clipped = {watch: relations.watches._clip(watch) for watch in self.watches}
            over = {watch for watch, (first, last) in clipped.items() if first < last}
            assert relations.watches.all() == over, "invariant 2"
            assert relations.watches.count == len(over), "invariant 2"
