"""The installed joins: names, order, who reads whom, and what is refused (paper §3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import inf

from pequod.engine.base.table import Cut, Table
from pequod.engine.joins.below import filled_from, read_for, shown_by
from pequod.engine.joins.compiled import JoinInfo
from pequod.engine.joins.connected import connect, disconnect, readers_of, upstream_first
from pequod.engine.joins.indexes import Index
from pequod.engine.joins.installed import InstalledJoin, Site
from pequod.engine.joins.projections import Projection, TableReader
from pequod.engine.joins.record_parser import RecordParser
from pequod.engine.joins.relations import Directory, Relations
from pequod.engine.joins.searched import Searched
from pequod.engine.memory.eviction import Evictor
from pequod.engine.memory.story import Reason
from pequod.engine.writes.changes import Writer
from pequod.engine.writes.removal import forget_searched
from pequod.escapes import shown
from pequod.language.cycles import refuse_cycles, warnings_of
from pequod.language.errors import JoinError, UnknownJoinError
from pequod.language.missing import Search, Unindexed, search_of
from pequod.language.patterns import compile_matcher
from pequod.language.ranges import prefix_end
from pequod.language.record_rules import never_holding
from pequod.language.rules import check_spec
from pequod.language.spec import DELIMITER, JoinSpec, Pattern, Pull, Slot, Snapshot
from pequod.language.views import RecordView


class Catalog:
    """Installs and drops joins.

    Invariants:
        1. No join reads its own output, directly or through others.
        2. No client-written key matches the output pattern of an installed join.
        3. A join that reads a join computed on every read is computed on every read itself, unless it is a snapshot.
    """

    __slots__ = (
        "_can_search",
        "_directory",
        "_installed",
        "_memory",
        "_next_order",
        "_parse",
        "_priorities",
        "_writer",
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
        self._can_search = can_search
        self._directory = directory
        self._memory = memory
        self._parse = RecordParser()
        #: By the name of a join, installed or not.
        self._priorities = priorities
        self._writer = writer
        self._installed: dict[str, InstalledJoin] = {}
        self._next_order = 0
        #: Whether a snapshot join is installed.
        self.is_timed = False

    def __iter__(self) -> Iterator[InstalledJoin]:
        return iter(self._installed.values())

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

    def add(self, specs: Sequence[JoinSpec]) -> tuple[list[JoinInfo], bool]:
        """Install joins, all or none; one that is installed already stays as it is.

        Returns:
            The joins in the order of ``specs``, and whether any is new.

        Raises:
            JoinError: A join is malformed, part of a cycle, or computes keys that clients have written.
        """
        for spec in specs:
            check_spec(spec)
        present = {join.spec: join for join in self._installed.values()}
        fresh = [spec for spec in dict.fromkeys(specs) if spec not in present]
        for spec in fresh:
            self._refuse_written_keys(spec)
        refuse_cycles([*present, *fresh], set(fresh))
        for spec in fresh:
            present[spec] = self._install(spec)
        if fresh:
            connect(self._installed.values(), {present[spec]: None for spec in fresh})
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
        for source, sites in zip(join.spec.sources, join.sites, strict=True):
            self._remove_reader(self._related_to(source.pattern), sites)
        disconnect(self._installed.values(), join)
        self._parse.forget()
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

    def _install(self, spec: JoinSpec) -> InstalledJoin:
        output = self._related_to(spec.output)
        sources = [self._related_to(source.pattern) for source in spec.sources]
        info = JoinInfo(self._new_name(output.table), spec, (*warnings_of(spec), *never_holding(spec)))
        join = InstalledJoin(
            info,
            self._next_order,
            [source.table for source in sources],
            output.outputs,
            output.watches,
            ledger=self._memory.ledger,
            priority=self._priorities.get(info.name, 0),
        )
        self._next_order += 1
        self._installed[join.info.name] = join
        output.outputs.append(join)
        for number, (source, sites) in enumerate(zip(sources, join.sites, strict=True)):
            view = join.views[number]
            if view is None:
                source.readers.append(sites)
            else:
                join.indexes[number] = self._project(source, view.anonymous(), sites)
        for source_table, cut in _cuts(join):
            if source_table.cut is None:
                source_table.regroup(cut)
        return join

    def index_of(self, lacking: Unindexed) -> Index | None:
        """Return the index of a view; None if no join reads it any more."""
        return next(
            (
                reader.index
                for reader in self._related_to(lacking.view.source.pattern).readers
                if isinstance(reader, Projection) and reader.index.lens.view == lacking.view
            ),
            None,
        )

    def _project(self, related: Relations, view: RecordView, sites: list[Site]) -> Index:
        """Have sites read what a view shows of a table; return its index, which others may have as well."""
        found = (reader for reader in related.readers if isinstance(reader, Projection))
        projection = next((one for one in found if one.index.lens.view == view), None)
        if projection is None:
            projection = Projection(Index(view, related.table, self._memory, self._parse))
            related.readers.append(projection)
            self._ask_for(related, projection)
        projection.readers.append(sites)
        return projection.index

    def _ask_for(self, related: Relations, projection: Projection) -> None:
        """Have the database asked for ranges of an index, if it owns the table and can answer that."""
        view, table = projection.index.lens.view, related.table
        if table.presence is None or not view.is_indexed:
            return
        search = search_of(view)
        if self._can_search(search):
            priority = self._priorities.get(table.prefix[:-1].decode("utf-8", "backslashreplace"), 0)
            searched = Searched(search, projection, self._memory, priority)
            related.searched.append(searched)
            projection.index.searched = searched

    def _remove_reader(self, related: Relations, sites: list[Site]) -> None:
        left: list[TableReader] = []
        for reader in related.readers:
            if isinstance(reader, Projection):
                reader.readers = [others for others in reader.readers if others is not sites]
                if reader.readers:
                    left.append(reader)
                else:
                    self._forget_searches(related, reader.index)
                    reader.index.drop()
            elif reader is not sites:
                left.append(reader)
        related.readers[:] = left

    def _forget_searches(self, related: Relations, index: Index) -> None:
        """Forget the searched ranges of an index that nothing reads any more."""
        for one in related.searched:
            if one.index is index:
                forget_searched(related, one, index.table.prefix, index.table.end, self._memory.ledger)
        related.searched[:] = [one for one in related.searched if one.index is not index]

    def _related_to(self, pattern: Pattern) -> Relations:
        return self._directory.at(pattern.table)

    def _new_name(self, table: Table) -> str:
        stem = table.prefix[:-1].decode("utf-8", "backslashreplace")
        number = 1
        while (name := stem if number == 1 else f"{stem}.{number}") in self._installed:
            number += 1
        return name

    def _refuse_written_keys(self, spec: JoinSpec) -> None:
        first = spec.output.literal_prefix
        match = compile_matcher(spec.output).match
        related = self._directory.by_name.get(first.partition(DELIMITER)[0])
        if related is None:
            return
        table = related.table
        if table.presence is not None:
            raise JoinError(
                f"the join would compute keys of {shown(table.prefix)}, which belong to the database behind this cache",
                hint="choose another output table",
                span=spec.output.span,
            )
        for key in table.slice(first, prefix_end(first)).keys:
            if match(key):
                raise JoinError(
                    f"the join would compute the key {shown(key)}, which a client has written",
                    hint="remove the written keys of this pattern first, or choose another output table",
                    span=spec.output.span,
                )

    def source_backed(self, table: Table) -> None:
        """Note that a database owns a table from now on: drop what was computed from it."""
        reading = [join for join in self._installed.values() if table in join.source_tables]
        self._drop_contexts(reading)
        for join in reading:
            join.clear_plans()
            self._directory.end_watches_over(join)
        self._relate()

    def _relate(self) -> None:
        """Determine again what follows from which joins read which: what a change is told to, and who keeps rows."""
        joins = list(self._installed.values())
        self.is_timed = any(isinstance(join.spec.maintenance, Snapshot) for join in joins)
        downstreams: dict[InstalledJoin, dict[int, Iterable[Site]]] = {join: {} for join in joins}
        for join in joins:
            join.reads_base = not (any(join.upstreams) or join.spec.has_records)
            join.reads_unbacked = join.reads_base and all(table.presence is None for table in join.source_tables)
            for number, upstreams in enumerate(join.upstreams):
                if upstreams:
                    reader = self._reader_of(join, number)
                    for upstream in upstreams:
                        downstreams[upstream][id(reader)] = reader
        for join in joins:
            join.downstreams = list(downstreams[join].values())
        for output in {id(join.outputs): self._related_to(join.spec.output) for join in joins}.values():
            output.review()
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
        readers = readers_of(self._installed.values())
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
        for name, join in self._installed.items():
            assert join.info.name == name
            join._check()
            assert not any(
                join.match_output(key)
                for key in self._related_to(join.spec.output).table.slice(join.first, join.last).keys
            ), "invariant 2"

    def _check_ledger(self) -> None:
        contexts = {status.context: None for join in self for status in join.coverage}
        ledger = self._memory.ledger
        indexes = {index: None for join in self for index in join.indexes if index is not None}
        assert ledger.index_count == sum(index.is_held for index in indexes)
        assert ledger.index_bytes == sum(index.count_bytes() for index in indexes)
        assert ledger.context_count == len(contexts)
        assert ledger.range_count == sum(len(context.ranges) for context in contexts)
        assert ledger.entry_count == sum(context.row_count for context in contexts)
        assert ledger.row_bytes == sum(context.row_bytes for context in contexts)
        assert ledger.state_bytes == sum(context.state_bytes for context in contexts)
        assert ledger.log_bytes == sum(context.log_bytes for context in contexts)
        assert all(not context.log_bytes or context.log for context in contexts)
        sites = [site for join in self for sites in join.sites for site in sites]
        assert ledger.updater_bytes == sum(site.count_bytes() for site in sites)


def _cuts(join: InstalledJoin) -> Iterable[tuple[Table, Cut]]:
    """Yield the best cuts of the source tables: after a first slot that is known when the source is read.

    This assumes that a read fixes the first slot of the output, as a scan of one timeline does.
    """
    output = next(join.spec.output.slots(), None)
    known = set() if output is None else {output.name}
    for table, source in zip(join.source_tables, join.spec.sources, strict=True):
        # An index is cut by itself; else the table's own keys lead the plain ones.
        match source.pattern.parts:
            case (bytes(name), Slot(slot, width), bytes(follow), _, *_) if name == table.prefix and slot in known:
                yield table, Cut(None if width is None else width + len(follow))
        known.update(slot.name for slot in source.slots())
