"""One table of a lake, read by tasks: each one reads a part of the primary key, all as of one SCU."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pequod_lake import LakeSnapshot
from pequod_lake.conditions import bind
from pequod_lake.errors import LakeSchemaError
from pequod_lake.schema import LakeTable
from pequod_lake.states import LakeState
from pequod_spark.tasks import freeze_imports
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_pequod_lake import options as told
from pyspark_pequod_lake.columns import refuse_read, schema_of
from pyspark_pequod_lake.parts import Compared, KeyPart, key_parts

_EXAMPLE: Final = '[["id", ">=", 7], ["id", "<", 9]]'
#: Rows of a batch that Spark gets.
BATCH_ROWS: Final = 65_536


def columns_of(options: Mapping[str, str]) -> str:
    """Return the columns of a read that does not choose them, with their types as Spark has them.

    Raises:
        LakeError: An option is not right, or there is no such lake.
    """
    told.refuse_unknown(options)
    with told.opened(options) as lake:
        table = told.table_of(lake, options)
        text = schema_of(table, told.columns(options, table))
        operation = told.added_column(options, "operation_column", table)
        scu = told.added_column(options, "scu_column", table)
        return text + (f", `{operation}` string" if operation else "") + (f", `{scu}` bigint" if scu else "")


class LakeTableReader(DataSourceReader):
    """Reads one table."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        told.refuse_unknown(options, told.READ, "a read")
        self._options = options
        self._schema = schema
        self._columns = tuple(schema.fieldNames())

    def partitions(self) -> Sequence[InputPartition]:
        """Choose the state, take a lease of it, and cut the primary key where its files say."""
        options = self._options
        lease_s, at_scu = told.lease_s(options), told.scu(options)
        count = told.count(options, "partitions", 1) if "partitions" in options else None
        with told.opened(options) as lake:
            table = told.table_of(lake, options)
            refuse_read(self._schema, table, ())
            where = _where(options, table)
            found: LakeSnapshot
            if at_scu is None:
                found = lake.snapshot(options.get("freshness", "newest"))
            elif "freshness" in options:
                raise LakeSchemaError("options", "`freshness` and `at_scu` both choose a state; leave one out")
            else:
                found = lake.snapshot_at(scu=at_scu)
            with found as snapshot:
                state = LakeState.of(snapshot, told.location(options), lease_s)
                return key_parts(lake, state, table, where, count)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of a part.

        Raises:
            LeaseLostError: The state may have been deleted since the read was planned.
        """
        assert isinstance(partition, KeyPart)
        freeze_imports()
        for rows in partition.rows(self._columns):
            yield from rows.select(list(self._columns)).to_batches(max_chunksize=BATCH_ROWS)


def _where(options: Mapping[str, str], table: LakeTable) -> tuple[Compared, ...]:
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
