"""Parts of a read of a lake's state: each task reads the rows of a part of the primary key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from pequod_lake import Lake
from pequod_lake.runs import Run
from pequod_lake.schema import LakeTable
from pequod_lake.states import LakeState
from pyspark.sql.datasource import InputPartition

Compared = tuple[str, Any, Any]
#: The number of parts, and the rows of one at the most: a task has them in memory.
_PARTS: Final = 8
_PART_ROWS_MAX: Final = 2_000_000


@dataclass
class KeyPart(InputPartition):
    """A part of the primary key, of one state of the lake."""

    state: LakeState
    table: str
    where: tuple[Compared, ...]

    def rows(self, columns: Sequence[str]) -> Iterator[Any]:
        """Yield the rows of the part, as one table.

        Raises:
            LeaseLostError: The state may have been deleted.
        """
        with self.state.opened() as snapshot:
            # A count has no columns: Spark wants the rows all the same.
            key = snapshot.schema.table(self.table).key[:1]
            yield snapshot.scan(self.table, self.where, columns=tuple(columns) or key).rows


def key_parts(
    lake: Lake, state: LakeState, table: LakeTable, where: Sequence[Compared], count: int | None
) -> list[KeyPart]:
    """Cut a state where its files say.

    Args:
        count: The number of parts, more or less; None chooses by the number of rows.
    """
    if count is None:
        rows = sum(file.row_count for run in state.runs for file in run.of(table.name))
        count = max(_PARTS, -(-rows // _PART_ROWS_MAX))
    edges = [None, *_cuts(lake, table, state.runs, count), None]
    return [KeyPart(state, table.name, (*where, *_between(table, low, high))) for low, high in pairwise(edges)]


def _cuts(lake: Lake, table: LakeTable, runs: Sequence[Run], count: int) -> list[Any]:
    """Return values of the first column of the key that cut the rows into ``count`` parts, more or less."""
    if table.column(table.key[0]).ids or count < 2:
        return []
    files = [file for run in runs if run.stage.is_sorted for file in run.of(table.name)]
    starts = sorted({start[0] for file in files for start, _ in lake.reader.least_values(file, table.key[:1]) if start})
    step = max(1, len(starts) // count)
    return starts[step::step][: count - 1]


def _between(table: LakeTable, low: Any, high: Any) -> list[Compared]:
    name = table.key[0]
    found: list[Compared] = [] if low is None else [(name, ">=", low)]
    return found if high is None else [*found, (name, "<", high)]
