r"""Rows as Arrow batches; keys taken apart into a column for each slot.

pattern  p|<poster>|<time:10>        expression  (?s)\Ap\|(?P<s0>[^|]+)\|(?P<s1>.{10})\z
p|bob|0000000100 -> poster bob, time 0000000100        over the bytes: a key need not be text
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from inspect import signature
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pequod.answers.rows import Rows
from pequod.errors import PequodError
from pequod.language.spec import Pattern

#: PySpark 4.1 takes UTC without being asked, and has no such argument.
_ZONE: Final[dict[str, Any]] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}


class ColumnError(PequodError):
    """A column that does not exist, or whose type cannot hold the server's bytes."""

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(f"column {column!r}: {reason}")
        self.column = column
        self.reason = reason


def default_schema(pattern: Pattern | None, *, with_values: bool = True) -> str:
    """Return the default columns of a read: the key, its slots as text, the value."""
    slots = [] if pattern is None else dict.fromkeys(slot.name for slot in pattern.slots())
    values = ["value binary"] if with_values else []
    return ", ".join(["key binary", *(f"`{name}` string" for name in slots), *values])


def arrow_fields(schema: StructType) -> Any:
    """Return the fields that a schema's columns have in Arrow batches."""
    return to_arrow_schema(schema, **_ZONE)


class RowColumns:
    """Makes batches of the columns that a schema names.

    Bytes become what the column's type says: binary as they are, string as UTF-8, numbers from decimal text.

    Raises:
        ColumnError: The schema has a column that is neither the key, the value nor a slot.
    """

    def __init__(self, schema: StructType, pattern: Pattern | None, *, more: tuple[str, ...] = ()) -> None:
        self._fields: Any = arrow_fields(schema)
        self._pattern = pattern
        slots = [] if pattern is None else [slot.name for slot in pattern.slots()]
        #: The regular expression for keys, and the groups in it that must be equal.
        self._expression: tuple[str, list[tuple[str, str]]] | None = None if pattern is None else _expression(pattern)
        #: Column -> its group in the expression.
        self._groups = {name: f"s{slots.index(name)}" for name in slots}
        for field in self._fields:
            if field.name not in {"key", "value", *slots, *more}:
                known = ", ".join(["key", *dict.fromkeys(slots), "value", *more])
                hint = "" if pattern else "; slots need the option `pattern`"
                raise ColumnError(field.name, f"there is none; there are {known}{hint}")
        #: Whether the read needs values.
        self.with_values = "value" in self._fields.names

    def batch(self, rows: Rows) -> Any:
        """Return rows as an Arrow batch; rows whose keys do not match the pattern are left out.

        Raises:
            ColumnError: A value does not fit the type of its column.
        """
        return self.batch_of({"key": rows.keys, "value": rows.values} if self.with_values else {"key": rows.keys})

    def batch_of(self, columns: Mapping[str, Any]) -> Any:
        """Return columns, lists or arrays, as an Arrow batch, those for slots made from `key`; see `batch`."""
        kinds = {"revision": pa.int64()}
        found = {
            name: column if isinstance(column, pa.Array) else pa.array(column, kinds.get(name, pa.binary()))
            for name, column in columns.items()
        }
        keys = found["key"]
        if self._expression is not None:
            expression, same = self._expression
            groups = pc.extract_regex(keys, pattern=expression)
            matches = [groups.is_valid(), *(pc.equal(groups.field(a), groups.field(b)) for a, b in same)]
            if groups.null_count or same:
                chosen = reduce(pc.and_, matches)
                groups = groups.filter(chosen)
                found = {name: column.filter(chosen) for name, column in found.items()}
            found |= {name: groups.field(group) for name, group in self._groups.items()}
        wanted = [cast_bytes(found[field.name], field) for field in self._fields]
        return pa.RecordBatch.from_arrays(wanted, schema=self._fields)


def cast_bytes(column: Any, field: Any) -> Any:
    """Return a column in the type of a field.

    Raises:
        ColumnError: The bytes do not fit it.
    """
    if field.type.equals(column.type):
        return column
    try:
        return column.cast(pa.string()).cast(field.type)
    except pa.ArrowInvalid as error:
        raise ColumnError(field.name, f"not all of it is {field.type}: {error}; choose binary") from None
    except pa.ArrowNotImplementedError:
        raise ColumnError(
            field.name, f"bytes cannot be read as {field.type}; choose binary, string or a number"
        ) from None


def _expression(pattern: Pattern) -> tuple[str, list[tuple[str, str]]]:
    """Return a regular expression over keys, with a group for each slot, and which groups must be equal."""
    spelt, seen, same = "", dict[str, str](), list[tuple[str, str]]()
    number = 0
    for part in pattern.parts:
        if isinstance(part, bytes):
            spelt += "".join(f"\\x{byte:02x}" for byte in part)
            continue
        group = f"s{number}"
        number += 1
        spelt += f"(?P<{group}>[^|]+)" if part.width is None else f"(?P<{group}>.{{{part.width}}})"
        if part.name in seen:
            same.append((seen[part.name], group))
        seen.setdefault(part.name, group)
    return rf"(?s)\A{spelt}\z", same
