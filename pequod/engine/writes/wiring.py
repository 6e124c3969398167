"""Has joins read their sources: the sites of each join among the readers of tables, and the indexes of records."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pequod.engine.joins.compiled import JoinInfo
from pequod.engine.joins.cuts import cuts_of
from pequod.engine.joins.indexes import Index
from pequod.engine.joins.installed import InstalledJoin, Site
from pequod.engine.joins.projections import Projection, TableReader
from pequod.engine.joins.record_parser import RecordParser
from pequod.engine.joins.relations import Directory, Relations
from pequod.engine.joins.searched import Searched
from pequod.engine.joins.watches import WatchIndex
from pequod.engine.memory.eviction import Evictor
from pequod.engine.writes.removal import forget_searched
from pequod.language.cycles import warnings_of
from pequod.language.missing import Search, Unindexed, search_of
from pequod.language.record_rules import never_holding
from pequod.language.spec import JoinSpec
from pequod.language.views import RecordView


class Wiring:
    """Makes joins that are told of changes of their sources."""

    __slots__ = ("_can_search", "_directory", "_memory", "_parse", "_priorities")

    def __init__(
        self,
        directory: Directory,
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

    def connect(
        self, spec: JoinSpec, name: str, order: int, outputs: list[InstalledJoin], watches: WatchIndex
    ) -> InstalledJoin:
        """Return a new join, which is told of changes of its sources."""
        sources = [self._directory.at(source.pattern.table) for source in spec.sources]
        join = InstalledJoin(
            JoinInfo(name, spec, (*warnings_of(spec), *never_holding(spec))),
            order,
            [source.table for source in sources],
            outputs,
            watches,
            ledger=self._memory.ledger,
            priority=self._priorities.get(name, 0),
        )
        for number, (source, sites) in enumerate(zip(sources, join.sites, strict=True)):
            view = join.views[number]
            if view is None:
                source.readers.append(sites)
            else:
                join.indexes[number] = self._project(source, view.anonymous(), sites)
        for source_table, cut in cuts_of(join):
            if source_table.cut is None:
                source_table.regroup(cut)
        return join

    def disconnect(self, join: InstalledJoin) -> None:
        """Have a join be told of nothing any more."""
        for source, sites in zip(join.spec.sources, join.sites, strict=True):
            self._remove_reader(self._directory.at(source.pattern.table), sites)
        self._parse.forget()

    def index_of(self, lacking: Unindexed) -> Index | None:
        """Return the index of a view; None if no join reads it any more."""
        return next(
            (
                reader.index
                for reader in self._directory.at(lacking.view.source.pattern.table).readers
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
        if table.presence is None or table.is_paged or not view.is_indexed:
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
                start, end = index.table.prefix, index.table.end
                forget_searched(related, one, start, end, self._memory.ledger, self._directory.deadlines)
        related.searched[:] = [one for one in related.searched if one.index is not index]
