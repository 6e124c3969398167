"""One table of a lake, read by tasks: each one reads a part of the primary key, all as of one SCU."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from pequod_lake import Lake
from pequod_lake.conditions import bind
from pequod_lake.errors import LakeSchemaError
from pequod_lake.schema import LakeTable
from pyspark.sql.datasource import DataSourceReader, InputPartition

_OPTIONS: Final = {"path", "table", "freshness", "at_scu", "partitions", "where"}
_TYPES: Final = {
    "bool": "boolean",
    "int32": "int",
    "int64": "bigint",
    "double": "double",
    "text": "string",
    "bytes": "binary",
    "timestamp": "timestamp_ntz",
}
_EXAMPLE: Final = '[["id", ">=", 7], ["id", "<", 9]]'
_PARTITIONS: Final = 8
_BATCH_ROWS: Final = 65_536
Compared = tuple[str, Any, Any]


def columns_of(options: Any) -> str:
    """Return the columns of a table with their types, as Spark has them."""
    with _opened(options) as lake:
        return ", ".join(f"`{column.name}` {_TYPES[column.kind]}" for column in _table(lake, options).columns)


@dataclass
class KeyPart(InputPartition):
    """A part of the primary key, of one state of the lake."""

    number: int
    scu: int
    where: tuple[Compared, ...]


class LakeTableReader(DataSourceReader):
    """Reads one table."""

    def __init__(self, options: dict[str, str], columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        """Choose the state, and cut the primary key where its files say."""
        with _opened(self._options) as lake:
            table = _table(lake, self._options)
            at_scu = self._options.get("at_scu")
            level = self._options.get("freshness", "newest")
            with lake.snapshot(level) if at_scu is None else lake.snapshot_at(scu=int(at_scu)) as snapshot:
                wanted = int(self._options.get("partitions", str(_PARTITIONS)))
                where = _where(self._options, table)
                edges = [None, *_cuts(lake, table, snapshot.runs, wanted), None]
                return [
                    KeyPart(snapshot.number, snapshot.scu, (*where, *_between(table, low, high)))
                    for low, high in pairwise(edges)
                ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of a part.

        Raises:
            SnapshotGoneError: The state has expired since the read was planned.
        """
        assert isinstance(partition, KeyPart)
        with _opened(self._options) as lake:
            table = _table(lake, self._options)
            with lake.snapshot_at(number=partition.number, last_scu=partition.scu) as snapshot:
                # A count has no columns: Spark wants the rows all the same.
                columns = self._columns or table.key[:1]
                rows = snapshot.scan(table.name, partition.where, columns=columns).rows
                yield from rows.select(list(self._columns)).to_batches(max_chunksize=_BATCH_ROWS)


def _opened(options: Any) -> Lake:
    if unknown := set(options) - _OPTIONS:
        raise LakeSchemaError("options", f"{min(unknown)!r} is no option; there are {', '.join(sorted(_OPTIONS))}")
    if "path" not in options or "table" not in options:
        raise LakeSchemaError("options", "`path`, the folder of the lake, and `table` are needed")
    return Lake(options["path"])


def _table(lake: Lake, options: Any) -> LakeTable:
    return lake.schema.table(options["table"])


def _where(options: Any, table: LakeTable) -> tuple[Compared, ...]:
    """Return the conditions of the option ``where``: a list in JSON of column, comparison and value.

    Conditions of a query are not pushed: PySpark keeps what one scan has pushed for all scans of a DataFrame, and
    others would miss rows.
    """
    text = options.get("where", "[]")
    try:
        found = tuple((column, op, value) for column, op, value in json.loads(text))
    except (TypeError, ValueError) as error:
        raise LakeSchemaError("options", f"`where` is a list such as {_EXAMPLE}, not {text!r}") from error
    bind(table, found)
    return found


def _cuts(lake: Lake, table: LakeTable, runs: Any, count: int) -> list[Any]:
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
