"""The installed joins: names, order, who reads whom, and what is refused (paper §3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import inf

from pequod.engine.base.table import Table
from pequod.engine.joins.below import filled_from, present_rows, read_for, shown_by
from pequod.engine.joins.compiled import JoinInfo
from pequod.engine.joins.connected import connect, disconnect, readers_of, reconnect, upstream_first
from pequod.engine.joins.indexes import Index
from pequod.engine.joins.installed import InstalledJoin, Site, materialised_rows
from pequod.engine.joins.projections import Projection
from pequod.engine.joins.relations import Directory, Relations
from pequod.engine.joins.watches import WatchIndex
from pequod.engine.memory.eviction import Evictor
from pequod.engine.memory.story import Reason
from pequod.engine.writes.changes import Writer
from pequod.engine.writes.wiring import Wiring
from pequod.engine.writes.written import refuse_written_keys
from pequod.language.cycles import refuse_cycles
from pequod.language.errors import JoinError, UnknownJoinError
from pequod.language.missing import Search, Unindexed
from pequod.language.rules import check_spec
from pequod.language.spec import JoinSpec, Pattern, Pull, Snapshot


class Catalog:
    """Installs and drops joins.

    Invariants:
        1. No join reads its own output, directly or through others.
        2. No client-written key matches the output pattern of an installed join.
        3. A join that reads a join computed on every read is computed on every read itself, unless it is a snapshot.
        4. Joins beside the installed ones read their sources as these do; no read, join or watch sees their rows.
    """

    __slots__ = (
        "_directory",
        "_installed",
        "_memory",
        "_next_order",
        "_wiring",
        "_writer",
        "coming",
        "gone",
        "is_timed",
    )

    def __init__(
        self,
        directory: Directory,
        writer: Writer,
        memory: Evictor,
        priorities: Mapping[str, int],
        can_search: Callable[[Search], bool],
    ) -> None:
        self._directory = directory
        self._memory = memory
        self._wiring = Wiring(directory, memory, priorities, can_search)
        self._writer = writer
        self._installed: dict[str, InstalledJoin] = {}
        self._next_order = 0
        #: The join that is to take the place of an installed one; None: there is none.
        self.coming: InstalledJoin | None = None
        #: Joins whose place others have taken, and whose contexts are not all dropped.
        self.gone: list[InstalledJoin] = []
        #: Whether a snapshot join is installed.
        self.is_timed = False

    def __iter__(self) -> Iterator[InstalledJoin]:
        return iter(self._installed.values())

    def _beside(self) -> list[InstalledJoin]:
        """Return the joins that read their sources beside the installed ones."""
        return self.gone if self.coming is None else [self.coming, *self.gone]

    def _wired(self) -> list[InstalledJoin]:
        """Return all joins that read their sources."""
        return [*self._installed.values(), *self._beside()]

    def find(self, name: str) -> InstalledJoin:
        """Return the join of that name.

        Raises:
            UnknownJoinError: No join has it.
        """
        join = self._installed.get(name)
        if join is None:
            raise UnknownJoinError(name)
        return join

    def over(self, first: bytes, last: bytes | None) -> list[InstalledJoin]:
        """Return the joins whose outputs may lie in ``[first, last)``, the earliest first."""
        return [join for join in self._installed.values() if first < join.last and (last is None or join.first < last)]

    def fresh(self, specs: Sequence[JoinSpec]) -> list[JoinSpec]:
        """Return those that are not installed.

        Raises:
            JoinError: A join is malformed, part of a cycle, or computes keys that clients have written.
        """
        for spec in specs:
            check_spec(spec)
        present = dict.fromkeys(join.spec for join in self._installed.values())
        fresh = [spec for spec in dict.fromkeys(specs) if spec not in present]
        for spec in fresh:
            self.refuse_written_keys(spec)
        refuse_cycles([*present, *fresh], set(fresh))
        if fresh and self.coming is not None:
            self._refuse_beside(self.coming, fresh)
        return fresh

    def add(self, specs: Sequence[JoinSpec], names: Mapping[JoinSpec, str]) -> tuple[list[JoinInfo], bool]:
        """Install joins, all or none; one that is installed already stays as it is.

        Args:
            names: What to call new ones; the others are named after their tables.

        Returns:
            The joins in the order of ``specs``, and whether any is new.

        Raises:
            JoinError: A join is malformed, part of a cycle, or computes keys that clients have written.
        """
        fresh = self.fresh(specs)
        present = {join.spec: join for join in self._installed.values()}
        for spec in fresh:
            present[spec] = self._install(spec, names.get(spec))
        if fresh:
            connect(self._installed.values(), {present[spec]: None for spec in fresh}, self._beside())
            self._relate()
            self._drop_contexts([present[spec] for spec in fresh])
        return [present[spec].info for spec in specs], bool(fresh)

    def drop(self, name: str) -> None:
        """Drop a join and exactly its outputs.

        Raises:
            UnknownJoinError: No join has this name.
        """
        join = self.find(name)
        self._drop_contexts([join])
        del self._installed[name]
        output = self._related_to(join.spec.output)
        output.outputs.remove(join)
        self._wiring.disconnect(join)
        disconnect(self._wired(), join)
        output.review()
        self._relate()

    def invalidate(self, first: bytes, last: bytes | None) -> int:
        """Drop the contexts in a range, and those that they were computed from; return how many lay in it.

        Cost:
            O(frames of what is dropped).
        """
        found = shown_by(self.over(first, last), first, last)
        doomed = dict.fromkeys(found)
        while found:
            found += [up for up in read_for(found.pop()) if up not in doomed]
            doomed.update(dict.fromkeys(found))
        for context in doomed:
            self._writer.drop(context, Reason.INVALIDATED)
        return len(doomed)

    def drop_snapshots(self, first: bytes, last: bytes | None, since_s: float) -> int:
        """Drop the snapshots taken before a moment that reads of a range may show; return how many there were.

        Cost:
            O(contexts in the range + those with snapshots below them).
        """
        # What was computed from a snapshot expires with it.
        joins = list(self.over(first, last))
        found = shown_by(joins, first, last) + filled_from(joins, first, last)
        todo = [context for context in found if context.expires_s < inf]
        seen = dict.fromkeys(todo)
        while todo:
            ups = [up for up in read_for(todo.pop()) if up.expires_s < inf and up not in seen]
            seen.update(dict.fromkeys(ups))
            todo += ups
        count = 0
        for context in seen:
            age = context.join.snapshot_age_s
            # Another one may have taken it along.
            if age is not None and context.is_live and context.expires_s - age < since_s:
                self._writer.drop(context, Reason.EXPIRED)
                count += 1
        return count

    def _refuse_beside(self, coming: InstalledJoin, fresh: Sequence[JoinSpec]) -> None:
        """Refuse joins that could not be installed once the one that is coming has its place."""
        for spec in fresh:
            if spec == coming.spec:
                raise JoinError(
                    f"this join is about to take the place of the join {coming.info.name!r}",
                    hint="wait until it has, or have it cancelled: `pequod join replace --cancel`",
                    span=spec.output.span,
                )
        refuse_cycles([*self.specs_with(coming.spec, self._installed[coming.info.name]), *fresh], set(fresh))

    def specs_with(self, spec: JoinSpec, old: InstalledJoin) -> list[JoinSpec]:
        """Return the joins that would be installed if one stood in the place of another."""
        return [spec if join is old else join.spec for join in self._installed.values()]

    def add_beside(self, old: InstalledJoin, spec: JoinSpec) -> None:
        """Have a join read its sources, as the one that is to take the place of an installed one.

        Requires:
            No other one is to; the join could be installed if the old one was not.
        """
        assert self.coming is None, "one at a time"
        watches = WatchIndex(self._related_to(spec.output).table)
        join = self.coming = self._wiring.connect(spec, old.info.name, old.order, [], watches)
        join.outputs.append(join)
        self._connect_anew()

    def put_in_place(self, old: InstalledJoin) -> None:
        """Put the join that is coming in the place of an installed one, which is gone then.

        Raises:
            JoinError: Clients have written keys that it computes; nothing has changed.
        """
        new = self.coming
        assert new is not None, "a join is coming"
        self.refuse_written_keys(new.spec)
        outputs, watches = old.outputs, old.watches
        for join in (old, new):
            # Watches have what reads saw up to now; settling delivers the differences.
            for watch, first, last in watches.over(join.first, join.last):
                watch.lose(first, last, materialised_rows(outputs, first, last))
        self._drop_contexts(readers_of(self._wired()).get(old, []))
        outputs[outputs.index(old)] = new
        new.outputs, new.watches, new.watched = outputs, watches, watches
        old.outputs, old.watches = [old], WatchIndex(self._related_to(old.spec.output).table)
        old.watched = old.watches
        self._installed[new.info.name] = new
        self.coming = None
        self.gone.append(old)
        self._connect_anew()
        self._drop_contexts(readers_of(self._wired()).get(new, []))

    def remove_beside(self, join: InstalledJoin) -> None:
        """Have a join that is coming, or is gone, read nothing any more."""
        self._drop_contexts([join])
        if join is self.coming:
            self.coming = None
        else:
            self.gone.remove(join)
        self._wiring.disconnect(join)
        self._connect_anew()

    def _connect_anew(self) -> None:
        reconnect(self._installed.values(), self._wired())
        self._relate()

    def _install(self, spec: JoinSpec, name: str | None) -> InstalledJoin:
        output = self._related_to(spec.output)
        name = name or self._new_name(output.table)
        order, self._next_order = self._next_order, self._next_order + 1
        join = self._installed[name] = self._wiring.connect(spec, name, order, output.outputs, output.watches)
        output.outputs.append(join)
        return join

    def index_of(self, lacking: Unindexed) -> Index | None:
        """Return the index of a view; None if no join reads it any more."""
        return self._wiring.index_of(lacking)

    def _related_to(self, pattern: Pattern) -> Relations:
        return self._directory.at(pattern.table)

    def _new_name(self, table: Table) -> str:
        stem = table.prefix[:-1].decode("utf-8", "backslashreplace")
        number = 1
        while (name := stem if number == 1 else f"{stem}.{number}") in self._installed:
            number += 1
        return name

    def refuse_written_keys(self, spec: JoinSpec) -> None:
        """Refuse a join of keys that clients have written, or that a database owns."""
        refuse_written_keys(self._directory, spec)

    def source_backed(self, table: Table) -> None:
        """Note that a database owns a table from now on: drop what was computed from it."""
        reading = [join for join in self._wired() if table in join.source_tables]
        self._drop_contexts(reading)
        for join in reading:
            join.clear_plans()
            self._directory.end_watches_over(join)
        if reading:
            self._relate()

    def source_whole(self, table: Table) -> None:
        """Note that all rows of a table are here from now on; what was computed from it stays."""
        reading = [join for join in self._wired() if table in join.source_tables]
        for join in reading:
            if not (join.contexts or join.coverage or self._writer.backfills):
                # Frames of new contexts need no order then.
                join.clear_plans()
        if reading:
            self._relate()

    def source_paged(self, table: Table) -> None:
        """Note that rows of a table, all of which are here, may go from now on; what was computed from it stays."""
        if any(table in join.source_tables for join in self._wired()):
            self._relate()

    def _relate(self) -> None:
        """Determine again what follows from which joins read which: what a change is told to, and who keeps rows."""
        joins = self._wired()
        self.is_timed = any(isinstance(join.spec.maintenance, Snapshot) for join in joins)
        downstreams: dict[InstalledJoin, dict[int, Iterable[Site]]] = {join: {} for join in joins}
        for join in joins:
            join.reads_base = not (any(join.upstreams) or join.spec.has_records)
            join.reads_unbacked = join.reads_base and all(table.presence is None for table in join.source_tables)
            for number, upstreams in enumerate(join.upstreams):
                if (index := join.indexes[number]) is not None:
                    index.follow(tuple(upstreams))
                if upstreams:
                    reader = self._reader_of(join, number)
                    for upstream in upstreams:
                        downstreams[upstream][id(reader)] = reader
        for join in joins:
            join.downstreams = list(downstreams[join].values())
        for output in {id(join.outputs): self._related_to(join.spec.output) for join in joins}.values():
            output.review()
        for join in self._beside():
            join.follow(is_followed=False)
        for join in upstream_first(joins):
            declared = isinstance(join.spec.maintenance, Pull)
            inherited = any(upstream.is_pull for upstream in chain(*join.upstreams))
            is_pull = declared or (inherited and not isinstance(join.spec.maintenance, Snapshot))
            if is_pull != join.is_pull:
                self._drop_contexts([join])
                join.is_pull = is_pull
                join.clear_plans()

    def _reader_of(self, join: InstalledJoin, number: int) -> Iterable[Site]:
        """Return what is told of changes of a source: the sites of the join, or of all joins that see the same."""
        index = join.indexes[number]
        if index is None:
            return join.sites[number]
        readers = self._related_to(join.spec.sources[number].pattern).readers
        return next(reader for reader in readers if isinstance(reader, Projection) and reader.index is index)

    def _drop_contexts(self, joins: list[InstalledJoin]) -> None:
        """Drop all contexts of joins and of the joins that read them, directly or not."""
        readers = readers_of(self._wired())
        seen = dict.fromkeys(joins)
        todo = list(joins)
        while todo:
            join = todo.pop()
            for context in {status.context: None for status in join.coverage}:
                self._writer.drop(context, Reason.JOINS)
            fresh = [reader for reader in readers.get(join, ()) if reader not in seen]
            todo += fresh
            seen.update(dict.fromkeys(fresh))
        self._writer.serial += 1

    def _check(self) -> None:
        for join in self._wired():
            join._check()
        for join in self._beside():
            assert join.outputs == [join], "invariant 4"
            assert not join.watches.count, "invariant 4"
            assert not join.downstreams, "invariant 4"
        for name, join in self._installed.items():
            assert join.info.name == name
            assert join in join.outputs
            for number, index in enumerate(join.indexes):
                if index is not None and index.rows is not None and index.computed_by:
                    index._check_rows(present_rows(join, number, *index.range))
            assert not any(
                join.match_output(key)
                for key in self._related_to(join.spec.output).table.slice(join.first, join.last).keys
            ), "invariant 2"

    def _check_ledger(self) -> None:
        contexts = {status.context: None for join in self._wired() for status in join.coverage}
        ledger = self._memory.ledger
        indexes = {index: None for join in self._wired() for index in join.indexes if index is not None}
        assert ledger.index_count == sum(index.is_held for index in indexes)
        assert ledger.index_bytes == sum(index.count_bytes() for index in indexes)
        assert ledger.context_count == len(contexts)
        assert ledger.capped_count == sum(context.kept is not None for context in contexts)
        assert ledger.range_count == sum(len(context.ranges) for context in contexts)
        assert ledger.entry_count == sum(context.row_count for context in contexts)
        assert ledger.row_bytes == sum(context.row_bytes for context in contexts)
        shared = [join.tails.shared for join in self._wired()]
        assert ledger.tail_count == sum(map(len, shared))
        assert ledger.tail_bytes == sum(tails.tail_bytes for tails in shared)
        assert ledger.state_bytes == sum(context.state_bytes for context in contexts)
        assert ledger.log_bytes == sum(context.log_bytes for context in contexts)
        assert all(not context.log_bytes or context.log for context in contexts)
        sites = [site for join in self._wired() for sites in join.sites for site in sites]
        assert ledger.updater_bytes == sum(site.count_bytes() for site in sites)
