"""Bulk loads: many rows into a server, in key order, none before all have been looked at.

few rows are all in one task, which packs and checks them, sorts, and then writes

many rows
    one of a hundred rows --> packed --> where to cut
    rows of a source --> packed, checked --> | shuffled by key range | --> a task for each range --> the server

Spark's own `repartitionByRange` would pack all rows twice, which is work in Python. It writes down all of one side
before it begins with the other, so a row that cannot be written ends a load before anything is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pequod_spark.connection import Connection
from pequod_spark.ranges import ROW_SCHEMA, in_ranges
from pequod_spark.tasks import freeze_imports
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as f

from pequod.errors import PequodError
from pequod.language.spec import Pattern
from pyspark_pequod.options import connecting
from pyspark_pequod.packing import Packing

#: Rows in one task, about: with tweets, some 100 MB.
PART_ROWS: Final = 500_000
#: Of so little, by Spark's estimate, one task takes all: Parquet of 16 MiB is 100 MB or so in memory.
FEW_BYTES: Final = 16 << 20
#: The part of the rows that is looked at for where to cut.
_SAMPLED: Final = 0.01


class SourceError(PequodError):
    """A line or a cell of a source cannot be read."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(f"{text!r:.200}: {reason}")
        self.text = text
        self.reason = reason


def packed(rows: DataFrame, pattern: Pattern | None = None) -> DataFrame:
    """Return rows as keys and values; what cannot be written is met when they are read.

    Args:
        rows: The columns `value` and `key`, or one for each slot of the pattern.

    Raises:
        ColumnError: The columns are others.
    """
    packing = Packing(rows.schema, pattern)

    def pack(batches: Iterator[Any]) -> Iterator[Any]:
        freeze_imports()
        for batch in batches:
            yield from packing.pack(batch).to_batches()

    return rows.mapInArrow(pack, ROW_SCHEMA)


def load(rows: DataFrame, connection: Connection, pattern: Pattern | None = None) -> int:
    """Write rows into a server; return how many there were.

    What is materialised there is kept up to date as with any put. Of rows with one key any may stay.

    Raises:
        ColumnError: The columns are not those of `packed`.
        PythonException: As each write; a server that was started anew meanwhile among them.

    Cost:
        Reads little once. Reads what is more twice, once to see how keys are spread, and packs the rows once. On the
        server 0.4 to 1 µs a row where nothing was computed from the table yet, else that of `put`.
    """
    Packing(rows.schema, pattern)
    counted = Observation()
    options = connecting(connection)
    if _is_little(rows):
        placed = rows.coalesce(1)
        if pattern is not None:
            options["pattern"] = str(pattern)
    else:
        placed = in_ranges(packed(rows, pattern), _splits(rows, pattern))
    observed = placed.observe(counted, f.count("*").alias("rows"))
    observed.write.format("pequod").options(**options).mode("append").save()
    return int(counted.get["rows"])


def _is_little(rows: DataFrame) -> bool:
    """Tell whether one task can take all rows, by the estimate that Spark joins by: huge where it knows nothing."""
    return int(rows._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()) <= FEW_BYTES


def _splits(rows: DataFrame, pattern: Pattern | None) -> list[bytes]:
    """Return where to cut rows into parts of about equal numbers, from a sample of their keys."""
    sampled = packed(rows.sample(fraction=_SAMPLED, seed=1), pattern).select("key").collect()
    keys = sorted(bytes(row.key) for row in sampled)
    part_count = -(-len(keys) // int(PART_ROWS * _SAMPLED))
    cuts = {keys[len(keys) * number // part_count] for number in range(1, part_count)}
    return sorted(cuts - {keys[0]}) if keys else []
