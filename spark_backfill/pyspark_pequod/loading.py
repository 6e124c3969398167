"""Bulk loads: many rows into a server, in key order; no row is written before all rows have been checked.

few rows: one task packs, checks, sorts and writes them

many rows
    one of a hundred rows --> packed --> the places to cut
    rows of a source --> packed, checked --> | shuffled by key range | --> a task for each range --> the server

Spark's own `repartitionByRange` would pack all rows twice, and packing is Python's work. Spark writes all shuffle files
before the next stage begins, so a row that cannot be written ends the load before any row is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pequod_spark.connection import Connection
from pequod_spark.ranges import ROW_SCHEMA, in_ranges
from pequod_spark.session import refuse_connect
from pequod_spark.tasks import freeze_imports
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as f

from pequod.errors import PequodError
from pequod.language.spec import Pattern
from pyspark_pequod.options import connecting
from pyspark_pequod.packing import Packing

#: Rows in one task, approximately: with tweets, some 100 MB.
PART_ROWS: Final = 500_000
#: If Spark estimates less than this, one task takes all rows: Parquet of 16 MiB is about 100 MB in memory.
FEW_BYTES: Final = 16 << 20
#: The part of the rows that is sampled to find the places to cut.
_SAMPLED: Final = 0.01


class SourceError(PequodError):
    """A line or a cell of a source cannot be read."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(f"{text!r:.200}: {reason}")
        self.text = text
        self.reason = reason


def packed(rows: DataFrame, pattern: Pattern | None = None) -> DataFrame:
    """Return rows as keys and values; a row that cannot be written is found when the result is computed.

    Args:
        rows: The columns `value` and `key`, or one for each slot of the pattern.

    Raises:
        ColumnError: The rows have other columns.
    """
    packing = Packing(rows.schema, pattern)

    def pack(batches: Iterator[Any]) -> Iterator[Any]:
        freeze_imports()
        for batch in batches:
            yield from packing.pack(batch).to_batches()

    return rows.mapInArrow(pack, ROW_SCHEMA)


def load(rows: DataFrame, connection: Connection, pattern: Pattern | None = None) -> int:
    """Write rows into a server; return the number of rows.

    The server keeps its materialised rows up to date, as with any put. If several rows have one key, any of them may
    stay.

    Raises:
        ClassicSessionError: The session is a client of Spark Connect.
        ColumnError: The columns are not those of `packed`.
        PythonException: As each write; a server that was restarted meanwhile is one of the causes.

    Cost:
        A small load is read once. A large one is read twice, the first time to sample keys, and packed once. The server
        takes 0.4 to 1 µs a row if nothing has been computed from the table yet, else as long as for a `put`.
    """
    refuse_connect(rows.sparkSession, "a bulk load")
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
    """Return whether one task can take all rows, by Spark's estimate of their size, which is huge if it is unknown."""
    return int(rows._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()) <= FEW_BYTES


def _splits(rows: DataFrame, pattern: Pattern | None) -> list[bytes]:
    """Return the keys at which to cut rows into parts of about equal numbers, from a sample of the keys."""
    sampled = packed(rows.sample(fraction=_SAMPLED, seed=1), pattern).select("key").collect()
    keys = sorted(bytes(row.key) for row in sampled)
    part_count = -(-len(keys) // int(PART_ROWS * _SAMPLED))
    cuts = {keys[len(keys) * number // part_count] for number in range(1, part_count)}
    return sorted(cuts - {keys[0]}) if keys else []
