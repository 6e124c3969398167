"""What is damaged, made anew from what is known elsewhere.

    run         [ table: good ][ view: bad ]        -> the view, from the rows of the table
                [ table: bad ][ view: good ]        -> the table, from a view that has all of its columns
                [ table: bad ]                      -> the table, from its SCUs as they came, if they are kept

What a run had when it was entered is known by its sums: a table that was made anew must have its own, or nothing is
changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyarrow import compute as pc

from pequod_lake.auditing import audit, differing, recorded_contents
from pequod_lake.catalog import NewRun
from pequod_lake.checking import check_ids, check_run, check_view, next_ids
from pequod_lake.combining import combined, live, places_in_order
from pequod_lake.contents import content_of
from pequod_lake.ducklake import DuckLakeCatalog
from pequod_lake.errors import LakeError, StepLostError
from pequod_lake.history import committed_scus
from pequod_lake.ids import known_ids
from pequod_lake.reading import LakeReader
from pequod_lake.runs import LakeFile, Run, Stage
from pequod_lake.schema import DELETED, TIME, LakeSchema, LakeTable, LakeView, ids_table
from pequod_lake.writing import FileWriter

_KIND = "repair"


@dataclass(slots=True)
class RepairReport:
    """What a repair has done, and what it could not do."""

    done: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


class Repairer:
    """Makes damaged files anew.

    Args:
        range_rows: The most rows of a file of the authority.
    """

    def __init__(
        self, schema: LakeSchema, catalog: DuckLakeCatalog, reader: LakeReader, writer: FileWriter, range_rows: int
    ) -> None:
        self._schema = schema
        self._catalog = catalog
        self._reader = reader
        self._writer = writer
        self._range_rows = range_rows
        self.report = RepairReport()
        self._runs: Sequence[Run] = ()

    def repair(self, runs: Sequence[Run]) -> RepairReport:
        """Mend sorted runs and what the catalog says of ids and to DuckLake.

        Requires:
            The caller holds the snapshot of the runs.
        """
        recorded = recorded_contents(self._catalog)
        self._runs = runs
        for run in runs:
            if run.stage.is_sorted:
                self._run(run, recorded.get(run.id))
            else:
                self.report.left += [
                    p for table in self._schema.all_tables for p in check_run(self._reader, table, run)
                ]
        self._ids()
        if count := self._catalog.restore_ducklake():
            self.report.done.append(f"DuckLake's tables have the facts of {count} files anew")
        self.report.left += audit(self._catalog)
        if not self.report.left:
            present = self._catalog.snapshot().runs
            self.report.left += check_ids(self._reader, self._schema, present, next_ids(self._catalog))
        self.report.left = list(dict.fromkeys(self.report.left))
        return self.report

    def _run(self, run: Run, recorded: str | None) -> None:
        """Put a run with sound files in the place of one with damaged ones."""
        wrong = {name for name, _, _ in differing(run.files, recorded)}
        files, told = list[LakeFile](), list[str]()
        for table in self._schema.all_tables:
            try:
                found = self._table(run, table, wrong, recorded)
            except LakeError as error:
                self.report.left.append(f"run {run.id}, table {table.name}: {error}")
                found = None
            if found is None:
                files += [file for file in run.files if file.table == table.name]
                continue
            mended, views = found
            files += mended
            told += [f"run {run.id}: {name or 'the primary view'} of {table.name} is made anew" for name in views]
        if not told:
            if recorded is not None and not wrong and self._catalog.restore_count(run):
                self.report.done.append(f"run {run.id} has its number of rows")
            return
        before = {file.path for file in run.files}
        if run.stage is not Stage.AUTHORITY:
            # Files of the other runs go with their run.
            files = [self._linked(file) if file.path in before else file for file in files]
        try:
            self._catalog.replace([run], NewRun(run.stage, run.level, tuple(files)))
        except StepLostError:
            self._writer.remove(file for file in files if file.path not in before)
            told = []
            self.report.left.append(f"run {run.id}: a worker has replaced it meanwhile; repair again")
        self.report.done += told

    def _linked(self, file: LakeFile) -> LakeFile:
        return self._writer.link(_KIND, self._schema.table(file.table), file)

    def _table(
        self, run: Run, table: LakeTable, wrong: set[str], recorded: str | None
    ) -> tuple[list[LakeFile], list[str]] | None:
        """Return the files of a table, sound ones as they are, and the views that were made anew; None if none was."""
        views = (table.primary, *table.views)
        problems = {view.name: check_view(self._reader, table, view, run)[0] for view in views}
        bad = [view for view in views if problems[view.name] or f"{table.name}/{view.name}" in wrong]
        if not bad:
            self.report.left += check_run(self._reader, table, run)
            return None
        if table.primary not in bad:
            rows = self._rows(run, table, table.primary)
        else:
            rows = self._primary_rows(run, table, [view for view in table.views if view not in bad], recorded)
        files = [file for view in views if view not in bad for file in run.of(table.name, view.name)]
        for view in bad:
            files += self._written(run, table, view, rows)
        return files, [view.name for view in bad]

    def _rows(self, run: Run, table: LakeTable, view: LakeView) -> Any:
        stored = table.stored(view)
        pieces = [self._reader.read(file, stored.names) for file in run.of(table.name, view.name)]
        return pa.concat_tables(pieces) if pieces else stored.empty_table()

    def _primary_rows(self, run: Run, table: LakeTable, good: Sequence[LakeView], recorded: str | None) -> Any:
        """Return the rows of a primary view that is damaged.

        Raises:
            LakeError: They are not known elsewhere.
        """
        told = json.loads(recorded).get(f"{table.name}/", [0, ""]) if recorded is not None else None
        for rows, said in self._sources(run, table, good):
            if told is None or not told[1]:
                # No sum is known: a view has the authority's rows, unless this keeps delete markers.
                if run.stage is Stage.AUTHORITY and not table.keeps_markers:
                    return rows
            elif told == [rows.num_rows, said]:
                return rows
        raise LakeError("no sound view has all of its rows, and its SCUs are not kept as they came; restore a copy")

    def _sources(self, run: Run, table: LakeTable, good: Sequence[LakeView]) -> Iterator[tuple[Any, str]]:
        """Yield what the rows of a primary view may have been, each with their sum as it was when they were written."""
        stored = table.stored(table.primary)
        for view in good:
            if set(view.columns) == set(table.names) and not table.is_partial:
                # With the columns that were dropped later, which the sum has.
                of_view = run.of(table.name, view.name)
                pieces = [self._reader.read(file, self._reader.names_of(file)) for file in of_view]
                rows = pa.concat_tables(pieces or [table.stored(view).empty_table()], promote_options="default")
                for field in table.stored(view):
                    if field.name not in rows.schema.names:
                        rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
                rows = rows.append_column(DELETED, pa.repeat(pa.scalar(value=False), rows.num_rows))
                if table.timestamp is not None:
                    rows = rows.append_column(TIME, rows[table.timestamp].cast(pa.int64()))
                ordered = rows.take(places_in_order(rows, table.key))
                yield ordered.select(stored.names).cast(stored), content_of(ordered)
        if run.last_scu == 0:
            return
        raw = table.stored(table.primary, raw=True)
        scus = committed_scus(self._catalog, max(0, run.first_scu - 1), run.last_scu)
        files = [file for scu in scus for file in scu.files if file.table == table.name]
        pieces = [self._numbered(table, self._reader.read(file, raw.names)) for file in files]
        if pieces:
            rows = combined(table, pieces)
            is_whole = run.stage is Stage.AUTHORITY and not table.keeps_markers
            found = (live(table, rows) if is_whole else rows).cast(stored)
            yield found, content_of(found)

    def _numbered(self, table: LakeTable, rows: Any) -> Any:
        """Return rows as they came with numbers in place of the texts that have ids."""
        for place, name in enumerate(rows.schema.names):
            ids = next((column.ids for column in table.columns if column.name == name), None)
            if ids is not None:
                texts = rows[name].combine_chunks()
                known = known_ids(self._reader, self._runs, ids, pc.unique(texts).drop_null())
                places = pc.index_in(texts, value_set=known["key"].combine_chunks())
                rows = rows.set_column(place, name, known["id"].combine_chunks().take(places))
        return rows

    def _written(self, run: Run, table: LakeTable, view: LakeView, rows: Any) -> Iterable[LakeFile]:
        if view.name:
            rows = live(table, rows).select(list(view.columns))
            rows = rows.take(places_in_order(rows, view.key))
        size = self._range_rows if run.stage is Stage.AUTHORITY else max(1, rows.num_rows)
        for start in range(0, rows.num_rows, size):
            file = self._writer.write(_KIND, table, view, [rows.slice(start, size)])
            if file is not None:
                yield file

    def _ids(self) -> None:
        """Have the next ids be above those that are given."""
        told = next_ids(self._catalog)
        for name in self._schema.ids:
            table = ids_table(name)
            most = -1
            for run in self._catalog.snapshot().runs:
                for file in run.of(table.name):
                    try:
                        most = max(most, pc.max(self._reader.read(file, ["id"])["id"]).as_py())
                    except LakeError as error:
                        self.report.left.append(str(error))
            if most >= told.get(name, 0):
                self._catalog.set_next_id(name, most + 1)
                self.report.done.append(f"the next id of {name} is {most + 1}")
