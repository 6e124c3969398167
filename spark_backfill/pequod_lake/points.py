"""Single rows by their whole key, where all runs are sorted: newest runs first, by halving.

run         [ authority: a ... z ][ delta: c, k, x ][ delta: k ]
key k                                      2           1             a table without timestamps ends here
others                1                    2           3             all versions, combined
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from pequod_lake.blocks import Block, searched
from pequod_lake.combining import combined, live
from pequod_lake.errors import LakeError
from pequod_lake.keys import Key, ordered, plain
from pequod_lake.ranges import files_with
from pequod_lake.reading import LakeReader
from pequod_lake.runs import Run, Stage
from pequod_lake.schema import DELETED, TIME, LakeSchema, LakeTable, ids_table


@dataclass(frozen=True, slots=True)
class KeyPrefix:
    """Values of the first columns of an order, as files, row groups and blocks compare them."""

    text: Key
    values: tuple[Any, ...]
    searched: tuple[Any, ...]

    @staticmethod
    def of(scalars: Sequence[Any]) -> KeyPrefix:
        """Return the prefix of scalars of Arrow."""
        return KeyPrefix(
            tuple(ordered(plain(one)) for one in scalars),
            tuple(one.as_py() for one in scalars),
            tuple(searched(one) for one in scalars),
        )


class Points:
    """Finds rows in runs that are all sorted.

    Cost:
        O(log n) for each run, once the row groups are in memory.
    """

    def __init__(self, schema: LakeSchema, reader: LakeReader, runs: Sequence[Run]) -> None:
        self._schema = schema
        self._reader = reader
        self._runs = runs

    @staticmethod
    def fits(runs: Sequence[Run], table: LakeTable) -> bool:
        """Return whether all runs with rows of a table, and of the ids that it has, are sorted."""
        names = [table.name, *(f"ids_{column.ids}" for column in table.columns if column.ids)]
        return all(run.stage.is_sorted or not any(run.of(name) for name in names) for run in runs)

    def row(self, table: LakeTable, key: Sequence[Any]) -> dict[str, Any] | None:
        """Return the row of a primary key as users see it; None if there is none.

        Args:
            key: Scalars of Arrow as users see them.

        Raises:
            LakeCorruptError: A file is damaged.
        """
        scalars = list(key)
        for place, name in enumerate(table.key):
            if (ids := table.column(name).ids) is not None:
                number = self.row(ids_table(ids), [scalars[place]])
                if number is None:
                    return None
                scalars[place] = pa.scalar(number["id"], pa.int64())
        found = self._newest(table, KeyPrefix.of(scalars))
        if found is None:
            return None
        for column in table.columns:
            if column.ids and found[column.name] is not None:
                found[column.name] = self._text(column.ids, found[column.name])
        return found

    def _newest(self, table: LakeTable, key: KeyPrefix) -> dict[str, Any] | None:
        names = _stored(table)
        is_newest_wins = not table.is_partial and table.timestamp is None
        versions = list[tuple[Block, int]]()
        for run in reversed(self._runs):
            found = self._find(run, table, "", table.key, key, names)
            if found is not None:
                versions.append(found)
                if is_newest_wins:
                    break
        if not versions:
            return None
        if len(versions) == 1:
            ((block, place),) = versions
            if table.is_partial:
                is_there = block.columns[TIME][place].is_valid
            else:
                is_there = not block.columns[DELETED][place].as_py()
            return {name: block.columns[name][place].as_py() for name in table.names} if is_there else None
        pieces = [
            pa.table({name: block.columns[name][place : place + 1] for name in names}) for block, place in versions
        ]
        rows = live(table, combined(table, pieces[::-1]))
        return rows.select(list(table.names)).to_pylist()[0] if rows.num_rows else None

    def _text(self, ids: str, number: int) -> str:
        table = ids_table(ids)
        (view,) = table.views
        key = KeyPrefix.of([pa.scalar(number, pa.int64())])
        for run in self._runs:
            found = self._find(run, table, view.name, view.key, key, view.columns)
            if found is not None:
                block, place = found
                return str(block.columns["key"][place].as_py())
        raise LakeError(f"ids of {ids}: {number} has no text; `pequod lake verify` says what is damaged")

    def _find(
        self, run: Run, table: LakeTable, view: str, order: Sequence[str], key: KeyPrefix, names: Sequence[str]
    ) -> tuple[Block, int] | None:
        """Return the first row whose first columns have these values."""
        # Most keys are in the authority, if anywhere: one read in place of two.
        also = names if run.stage is Stage.AUTHORITY else ()
        for file in files_with(run, table.name, view, key.text):
            found = self._reader.first(file, order, key.values, key.searched, names, also)
            if found is not None:
                return found
        return None


@lru_cache(maxsize=1024)
def _stored(table: LakeTable) -> list[str]:
    """Return the columns of the primary view, with the hidden ones."""
    return list(table.stored(table.primary).names)
