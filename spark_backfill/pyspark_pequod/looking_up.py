"""Values looked up by key: each task asks the server for the keys of its rows, and reads no range.

poster  time          pattern p|<poster>|<time:10>          poster  time  value
bob     100     -->   p|bob|0000000100 ... one call    -->  bob     100   hello
tom     7             for some thousand keys                tom     7     null
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pequod_spark.connection import Connection, ServerChangedError
from pequod_spark.tasks import freeze_imports
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, DataType, StructField, StructType

from pequod.client import Client
from pequod.language.spec import Pattern
from pyspark_pequod.columns import ColumnError, arrow_fields, cast_bytes
from pyspark_pequod.options import key_pattern
from pyspark_pequod.packing import Packing

#: The keys of one call.
KEYS_MAX: Final = 4096
_BINARY: Final = BinaryType()


def lookup(
    rows: DataFrame,
    connection: Connection,
    pattern: str | None = None,
    *,
    column: str = "value",
    kind: str = "binary",
) -> DataFrame:
    """Return rows with one more column, the values of their keys, base or computed; null where there is none.

    A row whose key is null, or one of whose slots is, has no value. The keys of one call are of one moment; a key that
    several rows of a batch have is asked for once. A computed key is computed if need be, as by a get.

    Args:
        rows: Has the column `key`, or one for each slot of the pattern; all its columns stay as they are.
        column: The name of the new column.
        kind: Its type: binary, string, or a number that the values are the text of.

    Raises:
        OptionError: The pattern is malformed.
        ColumnError: The rows lack a column for the keys, or have one of the new one's name.
        UnavailableError: The server cannot be reached.
        PythonException: When the result is used: as a get; a slot cannot be part of a key; a value is not of this
            type; or the server was restarted since this call, and may lack what it held before.

    Cost:
        A call for 4096 keys, from each task; O(log n) for each key in the server, whose range of n rows is not read.
    """
    if column in rows.columns:
        raise ColumnError(column, "the rows have it already; give the values another name")
    slots = key_pattern({} if pattern is None else {"pattern": pattern})
    type_ = DataType.fromDDL(kind)
    finder = _Finder(rows.schema, slots, connection, column, type_)

    def find(batches: Iterator[Any]) -> Iterator[Any]:
        freeze_imports()
        return finder.find(batches)

    return rows.mapInArrow(find, StructType([*rows.schema.fields, StructField(column, type_)]))


class _Finder:
    """What a task needs to look up its rows."""

    def __init__(
        self, schema: StructType, pattern: Pattern | None, connection: Connection, column: str, kind: DataType
    ) -> None:
        slots = [] if pattern is None else list(dict.fromkeys(slot.name for slot in pattern.slots()))
        names = ["key"] if "key" in schema.names or pattern is None else slots
        fields = [field for field in schema.fields if field.name in names]
        self._names = [field.name for field in fields]
        self._packing = Packing(StructType([*fields, StructField("value", _BINARY)]), pattern)
        self._connection = connection
        self._column = column
        (self._field,) = arrow_fields(StructType([StructField(column, kind)]))
        #: The server that answers, 0 if any one of a cluster may.
        self._server_id = 0 if connection.is_of_cluster else connection.server_id()

    def find(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield batches with their values."""
        with self._connection.client() as client:
            for batch in batches:
                values = cast_bytes(self._values(client, batch), self._field)
                yield pa.RecordBatch.from_arrays(
                    [*batch.columns, values], schema=batch.schema.append(self._field.with_nullable(nullable=True))
                )

    def _values(self, client: Client, batch: Any) -> Any:
        is_whole = reduce(pc.and_, (batch.column(name).is_valid() for name in self._names))
        whole = batch.select(self._names).filter(is_whole)
        packed = self._packing.pack(whole.append_column("value", pa.repeat(pa.scalar(b""), len(whole))))
        keys = packed["key"].combine_chunks().dictionary_encode()
        if isinstance(keys, pa.ChunkedArray):
            keys = keys.combine_chunks()
        asked = keys.dictionary.to_pylist()
        found: list[bytes | None] = []
        for start in range(0, len(asked), KEYS_MAX):
            found += client.multi_get(asked[start : start + KEYS_MAX])
            if self._server_id not in (0, client.server_id):
                raise ServerChangedError(self._connection.target, "the life of this DataFrame", "call lookup() again")
        values = pa.array(found, pa.binary()).take(keys.indices)
        # Each row that is whole has the place of its key among those that are.
        places = pc.if_else(is_whole, pc.subtract(pc.cumulative_sum(is_whole.cast(pa.int64())), 1), None)
        return values.take(places)
