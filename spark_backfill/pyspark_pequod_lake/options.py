"""The options of the data source, checked: those of a read, of a write, and of streams both ways."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from pequod_lake import Lake
from pequod_lake.errors import LakeSchemaError
from pequod_lake.schema import LakeTable

_PLACE: Final = {"path", "table", "lease"}
#: The options of each use.
READ: Final = frozenset({*_PLACE, "freshness", "at_scu", "partitions", "where", "columns"})
WRITE: Final = frozenset({*_PLACE, "upload", "operation_column"})
STREAM_READ: Final = frozenset(
    {*_PLACE, "partitions", "columns", "start", "scus_per_batch", "rows_per_batch", "operation_column", "scu_column"}
)
STREAM_WRITE: Final = frozenset({*_PLACE, "operation_column"})
_ALL: Final = READ | WRITE | STREAM_READ | STREAM_WRITE
#: Options of Spark's own that it hands on.
_SPARKS: Final = frozenset({"paths", "checkpointlocation", "queryname", "outputmode", "triggerinterval"})
#: What Spark hands on of a table that CREATE TABLE makes, in place of its options.
_OF_SQL_TABLES: Final = "location"
#: What to do in place of CREATE TABLE.
_ROUND: Final = (
    "use CREATE TEMPORARY VIEW posts USING pequod_lake OPTIONS (path 's3://bucket/lake', table 'posts'): Spark keeps "
    "the options of views alone"
)
_LEASE_S: Final = 600.0


def refuse_unknown(options: Mapping[str, str], known: AbstractSet[str] = _ALL, what: str = "the format") -> None:
    """Refuse options that are not known, and those of another use.

    Raises:
        LakeSchemaError: There is one.
    """
    for name in sorted(options):
        lower = name.lower()
        if lower in known or lower in _SPARKS:
            continue
        if lower == _OF_SQL_TABLES:
            raise LakeSchemaError(
                "CREATE TABLE",
                f"Spark keeps no options of such a table; {_ROUND}",
            )
        if lower in _ALL:
            raise LakeSchemaError("options", f"{name!r} is no option of {what}; it has {', '.join(sorted(known))}")
        near = get_close_matches(lower, sorted(known), n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known))}"
        raise LakeSchemaError("options", f"{name!r} is no option; {hint}")


def location(options: Mapping[str, str]) -> str:
    """Return where the lake is, in a form that is true in every process: its folder, or its address.

    Raises:
        LakeSchemaError: The options do not say it, or no table.
    """
    if "path" not in options or "table" not in options:
        raise LakeSchemaError(
            "options",
            "`path`, the folder or the address of the lake, and `table` are needed, as in "
            f'.option("table", "posts").load("s3://bucket/lake"); in SQL, {_ROUND}',
        )
    path = options["path"]
    return path if "://" in path else str(Path(path).resolve())


def opened(options: Mapping[str, str]) -> Lake:
    """Open the lake that the options name.

    Raises:
        LakeSchemaError: They name none.
        NoLakeError: There is none.
    """
    return Lake(location(options))


def table_of(lake: Lake, options: Mapping[str, str]) -> LakeTable:
    """Return the table that the options name.

    Raises:
        LakeSchemaError: There is none of this name.
    """
    name = options["table"]
    tables = {table.name: table for table in lake.schema.tables}
    if name not in tables:
        raise LakeSchemaError("options", f"the lake has no table {name!r}; it has {', '.join(tables)}")
    return tables[name]


def columns(options: Mapping[str, str], table: LakeTable) -> tuple[str, ...]:
    """Return the columns of a read: those of the option, else all.

    Raises:
        LakeSchemaError: One is not there, or is named twice.
    """
    text = options.get("columns")
    if text is None:
        return table.names
    found = tuple(name.strip() for name in text.split(","))
    for name in found:
        table.column(name)
        if found.count(name) > 1:
            raise LakeSchemaError("options", f"`columns` names {name} twice")
    return found


def added_column(options: Mapping[str, str], option: str, table: LakeTable) -> str | None:
    """Return the name of a column that the table does not have; None if the option is not set.

    Raises:
        LakeSchemaError: The table has the column.
    """
    name = options.get(option)
    if name is not None and (not name or name in table.names):
        raise LakeSchemaError("options", f"`{option}` is {name!r}, a column of the table; name another one")
    return name


def lease_s(options: Mapping[str, str]) -> float:
    """Return for how many seconds files stay that nobody says to use.

    Raises:
        LakeSchemaError: It is no such number.
    """
    text = options.get("lease", str(_LEASE_S))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 10 <= seconds <= 7 * 86_400:
        raise LakeSchemaError("options", f"`lease` is {text!r}; it is a number of seconds, from 10 to a week's 604800")
    return seconds


def count(options: Mapping[str, str], name: str, default: int) -> int:
    """Return a whole number of one or more.

    Raises:
        LakeSchemaError: It is none.
    """
    text = options.get(name, str(default))
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise LakeSchemaError("options", f"`{name}` is {text!r}; it is a whole number of 1 or more")
    return int(text)


def scu(options: Mapping[str, Any]) -> int | None:
    """Return the SCU of the option ``at_scu``; None if it is not set.

    Raises:
        LakeSchemaError: It is no number.
    """
    text = options.get("at_scu")
    if text is not None and not (text.isascii() and text.isdecimal()):
        raise LakeSchemaError("options", f"`at_scu` is {text!r}; it is the number of an SCU")
    return None if text is None else int(text)
