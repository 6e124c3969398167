"""Streams from a table: its state first, then the rows of each SCU as they came.

    offset   {"scu": -1}           {"scu": 41}                  {"scu": 57}
    read         the state after SCU 41    the rows of SCUs 42 to 57

A table that is partial has rows that set single columns; of these the stream gives the whole row as of the batch's last
SCU, or that it is gone. SCUs are kept as they came for as long as `pequod lake expire --keep` says: a stream that falls
behind by more fails, and never leaves rows out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pequod_lake import Lake, LakeSnapshot
from pequod_lake.conditions import Condition
from pequod_lake.errors import LakeSchemaError
from pequod_lake.history import CommittedScu, committed_scus, newest_scu
from pequod_lake.leases import end_lease
from pequod_lake.runs import LakeFile
from pequod_lake.schema import DELETED, DELETED_TIME, TIME, LakeTable
from pequod_lake.states import LakeState
from pequod_spark.tasks import freeze_imports
from pyarrow import compute as pc
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pyspark_pequod_lake import options as told
from pyspark_pequod_lake.columns import DELETE, INSERT, UPDATE, refuse_read
from pyspark_pequod_lake.parts import KeyPart, key_parts
from pyspark_pequod_lake.tables import BATCH_ROWS

#: Before the state is read.
_NOTHING: Final = -1
_SCUS_PER_BATCH: Final = 1000
_ROWS_PER_BATCH: Final = 10_000_000


@dataclass
class ScuPart(InputPartition):
    """Some SCUs that follow each other, as they came."""

    #: The state after the batch, in which whole rows of a partial table are looked up; its lease covers the files.
    state: LakeState
    table: str
    files: tuple[tuple[int, LakeFile], ...]


class LakeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the changes of one table."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        told.refuse_unknown(options, told.STREAM_READ, "a stream")
        self._options = options
        self._columns = tuple(schema.fieldNames())
        self._lease_s = told.lease_s(options)
        self._parts = told.count(options, "partitions", 8)
        self._scus_max = told.count(options, "scus_per_batch", _SCUS_PER_BATCH)
        self._rows_max = told.count(options, "rows_per_batch", _ROWS_PER_BATCH)
        self._location = told.location(options)
        self._lake = told.opened(options)
        table = self._table = told.table_of(self._lake, options)
        self._operation = told.added_column(options, "operation_column", table)
        self._scu = told.added_column(options, "scu_column", table)
        refuse_read(schema, table, (self._operation, self._scu))
        self._start = _start(options, self._lake)
        self._states: list[LakeState] = []
        #: The last SCU that is to be read; None for all that come.
        self._last: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Return where a new query begins."""
        return {"scu": self._start}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of the options."""
        return ReadMaxRows(self._rows_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """End with the SCU that is the newest now."""
        self._last = newest_scu(self._lake.catalog)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Return the end of the next batch: as many SCUs as the limits allow, and at least one.

        Raises:
            ScuGoneError: They are not kept any more.
        """
        newest = newest_scu(self._lake.catalog) if self._last is None else self._last
        if start["scu"] == _NOTHING:
            return {"scu": newest}
        rows, end = 0, start["scu"]
        last = newest if isinstance(limit, ReadAllAvailable) else min(newest, start["scu"] + self._scus_max)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        for one in committed_scus(self._lake.catalog, start["scu"], max(last, start["scu"])):
            rows += one.row_count(self._table.name)
            if most is not None and rows > most and end > start["scu"]:
                break
            end = one.scu
        return {"scu": end}

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Return the newest SCU, for the query's progress."""
        return {"scu": newest_scu(self._lake.catalog)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return the parts of a batch; a lease keeps its files.

        Raises:
            ScuGoneError, SnapshotGoneError: They are not kept any more.
        """
        lake, table = self._lake, self._table
        with lake.snapshot_at(scu=end["scu"]) as snapshot:
            if start["scu"] == _NOTHING:
                return key_parts(lake, self._kept(snapshot), table, (), self._parts)
            scus = committed_scus(lake.catalog, start["scu"], end["scu"])
            state = self._kept(snapshot, *(one.number for one in scus))
            # Again, under the lease: a sweep may have begun before it.
            scus = committed_scus(lake.catalog, start["scu"], end["scu"])
        groups = _grouped(scus, table.name, self._parts)
        return [ScuPart(state, table.name, tuple(group)) for group in groups]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of a part.

        Raises:
            LeaseLostError: The files may have been deleted since the batch was planned.
            LakeSchemaError: Rows are deleted, and there is no column that says so.
        """
        freeze_imports()
        names = tuple(name for name in self._columns if name not in {self._operation, self._scu})
        if isinstance(partition, KeyPart):
            found: Iterator[tuple[Any, str, int]] = (
                (rows, INSERT, partition.state.scu) for rows in partition.rows(names)
            )
        else:
            assert isinstance(partition, ScuPart)
            found = _changes(partition, names)
        for rows, operation, scu in found:
            if operation == DELETE and rows.num_rows and self._operation not in self._columns:
                raise LakeSchemaError(
                    "stream", f"SCU {scu} deletes rows; set the option `operation_column` to the name of a column that "
                    "says which, and filter by it what you do not want",
                )  # fmt: skip
            added = {self._operation: pa.scalar(operation), self._scu: pa.scalar(scu, pa.int64())}
            columns = [pa.repeat(added[name], rows.num_rows) if name in added else rows[name] for name in self._columns]
            yield from pa.table(columns, names=list(self._columns)).to_batches(max_chunksize=BATCH_ROWS)

    def commit(self, end: dict[str, int]) -> None:  # noqa: ARG002 - all leases are of batches that are done
        """Let the files of the batches go that are done."""
        self._release()

    def stop(self) -> None:
        """Let everything go."""
        self._release()
        self._lake.close()

    def _kept(self, snapshot: LakeSnapshot, *numbers: int) -> LakeState:
        self._states.append(LakeState.of(snapshot, self._location, self._lease_s, *numbers))
        return self._states[-1]

    def _release(self) -> None:
        while self._states:
            end_lease(self._lake.place.files, self._states.pop().lease)

    def __getstate__(self) -> dict[str, Any]:
        """Return what tasks need: no lake."""
        return {"_columns": self._columns, "_operation": self._operation, "_scu": self._scu}


def _start(options: Mapping[str, str], lake: Lake) -> int:
    text = options.get("start", "state")
    if text == "state":
        return _NOTHING
    if text == "newest":
        return newest_scu(lake.catalog)
    number = text.removeprefix("scu:")
    if number == text or not (number.isascii() and number.isdecimal()):
        raise LakeSchemaError("options", f"`start` is {text!r}; it is state, newest, or scu:NUMBER to begin after it")
    return int(number)


def _grouped(scus: Sequence[CommittedScu], table: str, count: int) -> list[list[tuple[int, LakeFile]]]:
    """Return files in their order, in at most ``count`` groups of about as many rows."""
    files = [(one.scu, file) for one in scus for file in one.files if file.table == table]
    wanted = -(-sum(file.row_count for _, file in files) // count)
    groups: list[list[tuple[int, LakeFile]]] = []
    rows = wanted
    for scu, file in files:
        if rows >= wanted:
            groups.append([])
            rows = 0
        groups[-1].append((scu, file))
        rows += file.row_count
    return groups


def _changes(part: ScuPart, names: Sequence[str]) -> Iterator[tuple[Any, str, int]]:
    """Yield rows of one kind that follow each other, with what was done and in which SCU."""
    with part.state.opened() as snapshot:
        table = snapshot.schema.table(part.table)
        for scu, file in part.files:
            if table.is_partial:
                keys = snapshot.reader.read(file, [*table.key, TIME, DELETED_TIME])
                yield from ((rows, operation, scu) for rows, operation in _whole(snapshot, table, keys, names))
                continue
            wanted = list(dict.fromkeys([*names, *table.key]))
            rows = snapshot.reader.read(file, [*wanted, *(name for name, _ in table.hidden())])
            if table.timestamp in wanted:
                # Delete markers have their moment in the hidden column alone.
                rows = _with_moment(table, rows, rows[TIME])
            for first, last, is_deleted in _spans(rows[DELETED].combine_chunks()):
                yield rows.slice(first, last - first), DELETE if is_deleted else UPDATE, scu


def _whole(snapshot: LakeSnapshot, table: LakeTable, rows: Any, names: Sequence[str]) -> Iterator[tuple[Any, str]]:
    """Yield the rows of keys as they are in a state, and the keys that have none."""
    key = list(table.key)
    moments = pa.table([*(rows[name] for name in key), pc.coalesce(rows[DELETED_TIME], rows[TIME])], [*key, TIME])
    wanted = moments.group_by(key).aggregate([(TIME, "max")]).rename_columns({f"{TIME}_max": TIME})
    where = [Condition(name, "in", pc.unique(wanted[name]).to_pylist()) for name in key]
    there = snapshot.scan(table.name, where, columns=list(dict.fromkeys([*key, *names]))).rows
    # Of several columns the conditions allow more keys than are wanted.
    yield there.join(wanted.select(key), key, join_type="left semi").select(there.schema.names), UPDATE
    gone = wanted.join(there.select(key), key, join_type="left anti")
    for name in names:
        if name not in key:
            gone = gone.append_column(name, pa.nulls(gone.num_rows, table.column(name).type))
    yield _with_moment(table, gone, gone[TIME]) if table.timestamp in names else gone, DELETE


def _with_moment(table: LakeTable, rows: Any, moments: Any) -> Any:
    """Return rows whose timestamps are these moments."""
    assert table.timestamp is not None
    place, kind = rows.schema.get_field_index(table.timestamp), table.column(table.timestamp).type
    return rows.set_column(place, table.timestamp, moments.cast(kind))


def _spans(mask: Any) -> Iterator[tuple[int, int, bool]]:
    """Yield where values that follow each other are equal, with their value."""
    if not len(mask):
        return
    edges = pc.indices_nonzero(pc.not_equal(mask[1:], mask[:-1])).to_pylist()
    starts = [0, *(edge + 1 for edge in edges)]
    for first, last in zip(starts, [*starts[1:], len(mask)], strict=True):
        yield first, last, mask[first].as_py()
