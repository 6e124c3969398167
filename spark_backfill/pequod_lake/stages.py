"""The stages: what each step does to the files of its runs.

    id-remap    texts that have ids become numbers; new texts get the next ones
    sort        one row for each key, and a file for each view in its order
    merge       runs that follow each other become one run
    delta       the same, into a run that belongs to the authority
    authority   the same, into the run that begins at SCU 0, in ranges of the key (authority.py); delete markers end
                here, unless the table has timestamps

A step only reads runs and writes new files. What it leaves when it dies is an orphan, and the next worker begins again
from the same runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, assert_never

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from pequod_lake.authority import AuthorityMerge, StageLimits, Write
from pequod_lake.catalog import LakeCatalog, NewRun
from pequod_lake.combining import combined, live, places_in_order
from pequod_lake.coordination import Coordinator
from pequod_lake.ids import known_ids
from pequod_lake.ingest import AtPoint, no_point
from pequod_lake.reading import LakeReader
from pequod_lake.reordering import Reordering
from pequod_lake.runs import LakeFile, LakeStep, Run, Stage, StepKind
from pequod_lake.schema import LakeSchema, LakeTable, ids_table
from pequod_lake.slices import Bulk, RunWork, TableWork
from pequod_lake.writing import FileWriter


class Stages:
    """Does steps."""

    def __init__(
        self,
        schema: LakeSchema,
        catalog: LakeCatalog,
        coordinator: Coordinator,
        reader: LakeReader,
        writer: FileWriter,
        limits: StageLimits,
        at_point: AtPoint = no_point,
        bulk: Bulk | None = None,
    ) -> None:
        self._schema = schema
        self._catalog = catalog
        self._coordinator = coordinator
        self._reader = reader
        self._writer = writer
        self._limits = limits
        self._at_point = at_point
        self._bulk = bulk
        self._authority = AuthorityMerge(reader, self._written, writer.remove, limits)
        self._name = ""

    def work(self, step: LakeStep) -> NewRun:
        """Write the run that takes the place of a step's runs.

        Raises:
            LakeCorruptError: A file of the runs is damaged.
            LakeError: The disk is full.
        """
        # Once for the step: columns may be added and dropped meanwhile.
        self._schema = schema = self._catalog.schema
        self._name = step.kind.value
        level = max(run.level for run in step.runs)
        match step.kind:
            case StepKind.REMAP:
                return NewRun(Stage.REMAPPED, 0, tuple(self._remap(step.runs[0])), schema.text)
            case StepKind.SORT:
                return NewRun(Stage.SORTED, 0, tuple(self._sorted(step.runs[0])), schema.text)
            case StepKind.MERGE:
                return NewRun(Stage.MERGED, level + 1, tuple(self._merged(step.runs, is_authority=False)), schema.text)
            case StepKind.DELTA:
                return NewRun(Stage.DELTA, level, tuple(self._merged(step.runs, is_authority=False)), schema.text)
            case StepKind.AUTHORITY:
                return NewRun(Stage.AUTHORITY, level, tuple(self._merged(step.runs, is_authority=True)), schema.text)
            case _:
                assert_never(step.kind)

    # id-remap.

    def _remap(self, run: Run) -> Iterator[LakeFile]:
        if self._bulk is None or run.row_count <= self._limits.bulk_rows:
            yield from self._remapped(run)
            return
        work = RunWork(self._name, self._schema, run, self._before(run), self._writer.id)
        yield from self._bulk_files(self._bulk.remap(work, self._take_ids))
        yield from self._linked(run)

    def _remapped(self, run: Run) -> Iterator[LakeFile]:
        tables = {
            table.name: pa.concat_tables(self._rows(table, [run], raw=True))
            for table in self._schema.tables
            if table.has_ids and run.of(table.name)
        }
        # Each text once, with its places: ids are looked up for these alone.
        encoded = {
            (name, column.name): pc.dictionary_encode(rows[column.name].combine_chunks())
            for name, rows in tables.items()
            for column in self._schema.table(name).columns
            if column.ids
        }
        ids = dict[str, Any]()
        for name in self._schema.ids:
            ids[name], new = self._ids(run, name, encoded)
            if new.num_rows:
                ids_of = ids_table(name)
                deleted = pa.repeat(pa.scalar(value=False), new.num_rows)
                yield from self._unsorted(ids_of, new.append_column(ids_of.hidden()[0][0], deleted))
        for table in self._schema.tables:
            if table.name not in tables:
                continue
            rows = tables[table.name]
            for column in table.columns:
                if column.ids:
                    numbers = _numbers(encoded[table.name, column.name], ids[column.ids])
                    rows = rows.set_column(rows.schema.get_field_index(column.name), column.name, numbers)
            yield from self._unsorted(table, rows)
        yield from self._linked(run)

    def _linked(self, run: Run) -> Iterator[LakeFile]:
        """Give the files of tables without ids new names: their content stays the same."""
        for table in self._schema.tables:
            if not table.has_ids:
                # A damaged file is found by the step that reads it.
                yield from [self._writer.link(self._name, table, file) for file in run.of(table.name)]

    def _before(self, run: Run) -> tuple[Run, ...]:
        return tuple(one for one in self._catalog.snapshot().runs if one.last_scu < run.first_scu)

    def _take_ids(self, name: str, count: int) -> int:
        first = self._coordinator.take_ids(name, count)
        self._at_point("remap.ids")
        return first

    def _ids(self, run: Run, name: str, encoded: Mapping[tuple[str, str], Any]) -> tuple[Any, Any]:
        """Return the ids of all texts of a run, and of these the new ones."""
        texts = [
            column.dictionary
            for (table, column_name), column in encoded.items()
            if self._schema.table(table).column(column_name).ids == name
        ]
        if not texts:
            return None, pa.table({"key": [], "id": []})
        wanted = pc.unique(pa.chunked_array(texts, pa.string())).drop_null()
        wanted = wanted.take(pc.sort_indices(wanted))
        known = known_ids(self._reader, self._before(run), name, wanted)
        new = wanted.filter(pc.invert(pc.is_in(wanted, value_set=known["key"].combine_chunks())))
        first = self._take_ids(name, len(new)) if len(new) else 0
        added = pa.table({"key": new, "id": pa.array(np.arange(first, first + len(new)))})
        return pa.concat_tables([known, added]).combine_chunks(), added

    # sort.

    def _sorted(self, run: Run) -> Iterator[LakeFile]:
        for table in self._schema.all_tables:
            work = TableWork(self._name, table, (run,), self._writer.id)
            if self._bulk is not None and work.row_count > self._limits.bulk_rows:
                yield from self._bulk_files(self._bulk.sort(work))
            elif work.files:
                yield from self._views(table, combined(table, self._rows(table, [run])), self._written)

    def _views(self, table: LakeTable, rows: Any, write: Write) -> Iterator[LakeFile]:
        """Write rows that are combined, in the order of each view."""
        yield from write(table, "", [rows])
        there = live(table, rows)
        for view in table.views:
            some = there.select(list(view.columns))
            yield from write(table, view.name, [some.take(places_in_order(some, view.key, table.key))])

    # merge and authority.

    def _merged(self, runs: Sequence[Run], *, is_authority: bool) -> Iterator[LakeFile]:
        for table in self._schema.all_tables:
            work = TableWork(self._name, table, tuple(runs), self._writer.id, is_authority)
            if work.row_count == 0:
                continue
            if is_authority and not self._authority.is_whole(work):
                yield from self._authority.ranged(work)
            elif self._bulk is not None and work.row_count > self._limits.bulk_rows:
                yield from self._bulk_files(self._bulk.merge(work))
            else:
                yield from self._anew(work, self._authority.fill if is_authority else self._written)

    def _anew(self, work: TableWork, write: Write) -> Iterator[LakeFile]:
        table, slice_rows = work.table, self._limits.slice_rows
        if work.row_count <= slice_rows:
            yield from self._views(table, work.finished(self._rows(table, work.runs)), write)
            return
        reordering = Reordering(self._reader, work, slice_rows, self._limits.memory)
        primary = list(write(table, "", reordering.primary()))
        yield from primary
        for view in table.views if primary else ():
            yield from write(table, view.name, reordering.view(view, primary))

    # Files.

    def _rows(self, table: LakeTable, runs: Sequence[Run], *, raw: bool = False) -> list[Any]:
        columns = table.stored(table.primary, raw=raw).names
        return [self._reader.read(file, columns) for run in runs for file in run.of(table.name)]

    def _bulk_files(self, files: Sequence[LakeFile]) -> Iterator[LakeFile]:
        self._at_point(f"{self._name}.file")
        yield from files

    def _unsorted(self, table: LakeTable, rows: Any) -> Iterator[LakeFile]:
        """Write rows that are not in the order of the key."""
        for file in self._written(table, "", [rows]):
            yield replace(file, first_key="", last_key="", content="")

    def _written(self, table: LakeTable, view: str, batches: Iterable[Any]) -> Iterator[LakeFile]:
        file = self._writer.write(self._name, table, table.view(view), batches)
        self._at_point(f"{self._name}.file")
        if file is not None:
            yield file


def _numbers(texts: Any, ids: Any) -> Any:
    """Return the ids of texts, which are given as a dictionary and places in it."""
    places = pc.index_in(texts.dictionary, value_set=ids["key"].combine_chunks())
    return ids["id"].take(places).take(texts.indices)
