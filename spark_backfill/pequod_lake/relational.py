"""What `combining.py` does, as SQL for DuckDB and for Spark: for tables that are not to be in memory.

The source has the stored columns of a table and `_run`, which grows from old runs to new ones. Each key is there once
for each run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pequod_lake.schema import DELETED, DELETED_TIME, TIME, LakeTable, set_time

RUN: Final = "_run"
#: More than the number of runs of a query.
_RUNS_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class SqlWords:
    """How a dialect says what the dialects say differently."""

    quote: str
    #: The aggregate of a value at the largest place, null values included.
    value_at_most: str

    def name(self, name: str) -> str:
        """Return a name in quotes."""
        return f"{self.quote}{name}{self.quote}"

    def names(self, names: Sequence[str]) -> str:
        """Return names in quotes, with commas."""
        return ", ".join(self.name(one) for one in names)


DUCKDB: Final = SqlWords('"', "arg_max_null")
SPARK: Final = SqlWords("`", "max_by")


def combined_sql(words: SqlWords, table: LakeTable, source: str) -> str:
    """Return a query for one row of each key, with its hidden columns, delete markers included."""
    return _partial(words, table, source) if table.is_partial else _whole(words, table, source)


def live_sql(words: SqlWords, table: LakeTable, source: str) -> str:
    """Return a query for the rows of a combined source that are there, without hidden columns."""
    is_there = f"{words.name(TIME)} IS NOT NULL" if table.is_partial else f"NOT {words.name(DELETED)}"
    return f"SELECT {words.names(table.names)} FROM ({source}) AS c WHERE {is_there}"  # noqa: S608 - names of the schema


def _whole(words: SqlWords, table: LakeTable, source: str) -> str:
    stored = words.names([*table.names, *(name for name, _ in table.hidden())])
    order = f"{words.name(TIME)} DESC, " if table.timestamp else ""
    place = f"row_number() OVER (PARTITION BY {words.names(table.key)} ORDER BY {order}{words.name(RUN)} DESC)"
    return f"SELECT {stored} FROM (SELECT *, {place} AS _place FROM ({source}) AS s) AS p WHERE _place = 1"  # noqa: S608


def _partial(words: SqlWords, table: LakeTable, source: str) -> str:
    def place(time: str) -> str:
        """The order of versions as one number: their time, then their run."""
        return f"CAST({words.name(time)} AS DECIMAL(38, 0)) * {_RUNS_MAX} + {words.name(RUN)}"

    found = [f"max({place(DELETED_TIME)}) AS _d", f"max({place(TIME)}) AS _w", f"max({words.name(TIME)}) AS _wt"]
    found.append(f"max({words.name(DELETED_TIME)}) AS _dt")
    out = [words.name(name) for name in table.key]
    times = [
        f"CASE WHEN _d IS NULL OR _w >= _d THEN _wt END AS {words.name(TIME)}",
        f"_dt AS {words.name(DELETED_TIME)}",
    ]
    for number, column in enumerate(table.data_columns):
        time = set_time(column.name)
        is_set = f"{words.name(time)} IS NOT NULL"
        found += [
            f"max({place(time)}) AS _o{number}",
            f"max({words.name(time)}) AS _t{number}",
            f"{words.value_at_most}({words.name(column.name)}, {place(time)}) FILTER (WHERE {is_set}) AS _v{number}",
        ]
        survives = f"_d IS NULL OR _o{number} >= _d"
        out.append(f"CASE WHEN {survives} THEN _v{number} END AS {words.name(column.name)}")
        times.append(f"CASE WHEN {survives} THEN _t{number} END AS {words.name(time)}")
    keys = words.names(table.key)
    grouped = f"SELECT {keys}, {', '.join(found)} FROM ({source}) AS s GROUP BY {keys}"  # noqa: S608
    stored = words.names([*table.names, *(name for name, _ in table.hidden())])
    return f"SELECT {stored} FROM (SELECT {', '.join([*out, *times])} FROM ({grouped}) AS g) AS o"  # noqa: S608
