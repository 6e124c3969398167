"""Queries of one snapshot: the lake after one SCU, all tables of it, for as long as the snapshot is open.

    chosen runs     [ authority ][ merged ][ sorted ][ raw ]
    by the key      each run's versions of the keys that the conditions allow, combined, and the conditions again
    by a view       first the keys of the rows in the view's range, then all versions of these keys: a newer version may
                    have moved a row out of the range, and be found nowhere in it

If one run alone has rows of the table, it is sorted and its rows are the answer: the cheapest query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute as pc

from pequod_lake.closing import Closing
from pequod_lake.combining import combined, live, places_in_order
from pequod_lake.conditions import Bound, Where, bind
from pequod_lake.ids import known_ids, texts_of
from pequod_lake.locks import Lock
from pequod_lake.points import Points
from pequod_lake.ranges import files_within, members
from pequod_lake.reading import LakeReader, ReadCounts
from pequod_lake.runs import Run
from pequod_lake.schema import DELETED, LakeSchema, LakeTable, LakeView

#: A first run with this multiple of the rows of all other runs is looked through for their keys, not sorted.
_MANY_TIMES: Final = 8


@dataclass(frozen=True, slots=True)
class LakeAnswer:
    """Rows, and what they are the answer of."""

    #: A table of Arrow, in the order of the view.
    rows: Any
    #: The rows are the state after this SCU.
    scu: int
    #: How long ago the first SCU was committed that is not in the state; 0 if there is none.
    age_s: float
    counts: ReadCounts


class LakeSnapshot(Closing):
    """The lake after one SCU; its files stay until it is closed."""

    def __init__(
        self, schema: LakeSchema, reader: LakeReader, number: int, runs: Sequence[Run], age_s: float, lock: Lock
    ) -> None:
        self.schema = schema
        #: The number of the catalog's snapshot.
        self.number = number
        self.runs = tuple(runs)
        #: How old the state was when the snapshot was taken.
        self.age_s = age_s
        self.reader = reader
        self._lock = lock

    @property
    def scu(self) -> int:
        """The last SCU whose rows are seen."""
        return self.runs[-1].last_scu

    def close(self) -> None:
        """Let the files go."""
        self._lock.release()

    def get(self, table: str, *key: Any) -> dict[str, Any] | None:
        """Return the row of a primary key; None if there is none."""
        chosen = self.schema.table(table)
        where: Where = [(name, "=", value) for name, value in zip(chosen.key, key, strict=True)]
        if Points.fits(self.runs, chosen):
            bounds = bind(chosen, where)
            return Points(self.schema, self.reader, self.runs).row(chosen, [one.value for one in bounds])
        rows = self.scan(table, where).rows
        return rows.to_pylist()[0] if rows.num_rows else None

    def scan(
        self, table: str, where: Where = (), *, view: str | None = None, columns: Sequence[str] | None = None
    ) -> LakeAnswer:
        """Return the rows that meet all conditions.

        Args:
            view: The view to read and to order by; empty for the primary view. None takes the one whose key begins with
                the most columns that the conditions fix, and orders by it.
            columns: The columns of the answer; None for all of the view.

        Raises:
            LakeSchemaError: A name is not right, or a value does not fit its column.
            LakeCorruptError: A file is damaged.
        """
        chosen = self.schema.table(table)
        bounds = bind(chosen, where)
        by = _best_view(chosen, bounds, columns) if view is None else chosen.view(view)
        names = tuple(by.columns if columns is None else (chosen.column(name).name for name in columns))
        scan = _Scan(self.runs, self.reader, chosen, by, bounds, names)
        return LakeAnswer(scan.rows(), self.scu, self.age_s, scan.counts)


def _best_view(table: LakeTable, bounds: Sequence[Bound], columns: Sequence[str] | None) -> LakeView:
    fixed = {one.column for one in bounds if one.op in {"=", "in"}}
    tested = {one.column for one in bounds}
    wanted = tested | set(table.names if columns is None else columns)

    def fit(view: LakeView) -> tuple[int, int]:
        count = next((at for at, name in enumerate(view.key) if name not in fixed), len(view.key))
        ranged = count < len(view.key) and view.key[count] in tested
        return count, int(ranged)

    fitting = [view for view in table.views if wanted <= set(view.columns)]
    # Of equal views the primary one, which is read directly at every freshness.
    return max([table.primary, *fitting], key=fit)


class _Scan:
    """One query of one table."""

    def __init__(
        self,
        runs: Sequence[Run],
        reader: LakeReader,
        table: LakeTable,
        view: LakeView,
        bounds: Sequence[Bound],
        names: tuple[str, ...],
    ) -> None:
        self._runs = runs
        self._reader = reader
        self._table = table
        self._view = view
        self._bounds = bounds
        self._names = names
        self.counts = ReadCounts()
        self._schemas = dict[tuple[str, ...], Any]()
        #: The runs that have rows of the table.
        self._parts = [run for run in runs if run.of(table.name)]
        #: The columns that rows need beside the hidden ones.
        self._needed = tuple(dict.fromkeys([*table.key, *names, *view.key, *(one.column for one in bounds)]))

    def rows(self) -> Any:
        """Return the rows of the answer."""
        if not self._parts:
            return self._empty()
        (part, *more) = self._parts
        if not more and part.stage.is_sorted:
            return self._direct(part)
        is_leading = any(one.column == self._view.key[0] for one in self._bounds)
        if self._view.name and is_leading:
            rows = combined(self._table, self._versions_by_view(), self._needed)
        else:
            keys = [one for one in self._bounds if one.column in self._table.key]
            rows = self._combined([self._read(part, self._all_columns(), keys) for part in self._parts])
        return self._finished(live(self._table, rows))

    def _combined(self, versions: Sequence[Any]) -> Any:
        """Return one row for each key of the runs, in any order: most rows of a large run meet no other version."""
        table, base, others = self._table, versions[0], versions[1:]
        count = sum(piece.num_rows for piece in others)
        if not self._parts[0].stage.is_sorted or base.num_rows < _MANY_TIMES * count:
            return combined(table, versions, self._needed)
        keys = pa.concat_tables([piece.select(list(table.key)) for piece in others])
        met = members(base, keys, table.key)
        changed = combined(table, [base.filter(met), *others], self._needed)
        return pa.concat_tables([base.filter(pc.invert(met)).select(changed.schema.names), changed])

    def _direct(self, part: Run) -> Any:
        """Read one sorted run."""
        wanted = tuple(dict.fromkeys([*self._names, *self._view.key]))
        covered = set(self._view.columns)
        is_covered = bool(self._view.name) and covered >= {*wanted, *(one.column for one in self._bounds)}
        if is_covered:
            found = self._read(part, wanted, self._bounds, view=self._view.name)
        else:
            found = live(self._table, self._read(part, self._all_columns(), self._bounds))
        is_in_order = (is_covered or not self._view.name) and not any(
            self._table.column(name).ids for name in self._view.key
        )
        return found.select(list(self._names)) if is_in_order else self._ordered(found)

    def _versions_by_view(self) -> list[Any]:
        """Return all versions of the keys that some run has in the view's range."""
        table, view = self._table, self._view
        # The columns of a partial row may come from several versions, and each meets its own conditions only.
        first = [one for one in self._bounds if one.column == view.key[0]]
        tested = first if table.is_partial else [one for one in self._bounds if one.column in view.columns]
        is_hidden_by_newer = not table.is_partial and table.timestamp is None
        versions, seen = list[Any](), list[Any]()
        if not is_hidden_by_newer:
            for part in self._parts:
                seen.append(self._read(part, table.key, tested, view=view.name))
            keys = pa.concat_tables(seen)
            return [self._read(part, self._all_columns(), _in(table, keys)) for part in self._parts]
        wanted = {*self._needed}
        for part in self._parts:
            if part.stage.is_sorted and wanted <= set(view.columns):
                # Rows of the view are there: only newer runs can hide them.
                found = self._read(part, self._needed, tested, view=view.name)
                rows = found.append_column(DELETED, pa.repeat(pa.scalar(value=False), found.num_rows))
                own = found.select(list(table.key))
                versions.append(rows)
                older = pa.concat_tables(seen) if seen else None
            else:
                own = self._read(part, table.key, tested, view=view.name)
                older = pa.concat_tables([*seen, own])
            if older is not None and older.num_rows:
                versions.append(self._read(part, self._all_columns(), _in(table, older)))
            seen.append(own)
        names = list(self._all_columns())
        return [piece.select(names) for piece in versions] or [self._read(self._parts[0], self._all_columns(), ())[:0]]

    def _all_columns(self) -> tuple[str, ...]:
        hidden = (name for name, _ in self._table.hidden())
        needed = [name for name in self._table.names if name in self._needed]
        return (*needed, *hidden)

    def _read(self, part: Run, columns: Sequence[str], bounds: Sequence[Bound], *, view: str = "") -> Any:
        """Return rows of a run as users see them: texts in place of ids."""
        table = self._table
        conditions = list[Bound]()
        with_ids = {column.name: column.ids for column in table.columns if column.ids} if part.stage.is_remapped else {}
        for bound in bounds:
            ids = with_ids.get(bound.column)
            conditions.append(bound if ids is None else self._numbered(bound, ids))
        order = table.view(view).key if part.stage.is_sorted else ()
        pieces = [
            self._reader.read(file, columns, conditions, self.counts, order)
            for file in files_within(part, table, view if part.stage.is_sorted else "", conditions)
        ]
        if not pieces:
            return self._schema(columns).empty_table()
        rows = pa.concat_tables(pieces) if len(pieces) > 1 else pieces[0]
        for at, name in enumerate(columns):
            if (ids := with_ids.get(name)) is not None:
                texts = texts_of(self._reader, self._runs, ids, rows[name].combine_chunks(), self.counts)
                rows = rows.set_column(at, name, texts)
        # Fields have no metadata from here on, so that those of all stages are equal.
        schema = self._schema(columns)
        return rows if rows.schema.equals(schema, check_metadata=True) else rows.cast(schema)

    def _schema(self, columns: Sequence[str]) -> Any:
        found = self._schemas.get(tuple(columns))
        if found is None:
            kinds = dict(self._table.hidden()) | {column.name: column.type for column in self._table.columns}
            found = self._schemas[tuple(columns)] = pa.schema([(name, kinds[name]) for name in columns])
        return found

    def _numbered(self, bound: Bound, ids: str) -> Bound:
        texts = bound.value if bound.op == "in" else pa.array([bound.value.as_py()], pa.string())
        known = known_ids(self._reader, self._runs, ids, texts, self.counts)
        return Bound(bound.column, "in", known["id"].combine_chunks())

    def _finished(self, rows: Any) -> Any:
        for bound in self._bounds:
            rows = rows.filter(bound.mask(rows[bound.column]))
        return self._ordered(rows)

    def _ordered(self, rows: Any) -> Any:
        return rows.select(list(self._names)).take(places_in_order(rows, self._view.key))

    def _empty(self) -> Any:
        return self._schema(self._names).empty_table()


def _in(table: LakeTable, keys: Any) -> list[Bound]:
    """Return conditions that all of these keys meet, and few others."""
    found = list[Bound]()
    for name in table.key:
        values = pc.unique(keys[name])
        values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        if len(values) and not table.column(name).ids:
            edges = pc.min_max(values)
            found += [Bound(name, ">=", edges["min"]), Bound(name, "<=", edges["max"])]
        found.append(Bound(name, "in", values))
    return found
