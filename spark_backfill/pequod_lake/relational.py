"""What `combining.py` does, as SQL for DuckDB: for tables that are not to be in memory.

The source has the stored columns of a table and `_run`, which grows from old runs to new ones. Each key is there once
for each run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pequod_lake.schema import DELETED, DELETED_TIME, TIME, LakeTable, set_time

RUN: Final = "_run"
#: More than the number of runs of a query.
_RUNS_MAX: Final = 1_000_000


def combined_sql(table: LakeTable, source: str) -> str:
    """Return a query for one row of each key, with its hidden columns, delete markers included."""
    return _partial(table, source) if table.is_partial else _whole(table, source)


def live_sql(table: LakeTable, source: str) -> str:
    """Return a query for the rows of a combined source that are there, without hidden columns."""
    is_there = f'"{TIME}" IS NOT NULL' if table.is_partial else f'NOT "{DELETED}"'
    return f"SELECT {_names(table.names)} FROM ({source}) AS c WHERE {is_there}"  # noqa: S608 - names of the schema


def _names(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _stored(table: LakeTable) -> str:
    return _names([*table.names, *(name for name, _ in table.hidden())])


def _whole(table: LakeTable, source: str) -> str:
    order = f'"{TIME}" DESC, ' if table.timestamp else ""
    place = f"row_number() OVER (PARTITION BY {_names(table.key)} ORDER BY {order}{RUN} DESC)"
    return f"SELECT {_stored(table)} FROM (SELECT *, {place} AS _place FROM ({source}) AS s) AS p WHERE _place = 1"  # noqa: S608


def _place(time: str) -> str:
    """Return the order of versions as one number: their time, then their run."""
    return f'CAST("{time}" AS DECIMAL(38, 0)) * {_RUNS_MAX} + {RUN}'


def _partial(table: LakeTable, source: str) -> str:
    found = [f"max({_place(DELETED_TIME)}) AS _d", f"max({_place(TIME)}) AS _w"]
    found += [f'max("{TIME}") AS _wt', f'max("{DELETED_TIME}") AS _dt']
    out = [_names(table.key)]
    times = [f'CASE WHEN _d IS NULL OR _w >= _d THEN _wt END AS "{TIME}"', f'_dt AS "{DELETED_TIME}"']
    for number, column in enumerate(table.data_columns):
        time = set_time(column.name)
        place = _place(time)
        value = f'arg_max_null("{column.name}", {place}) FILTER (WHERE "{time}" IS NOT NULL)'
        found += [f"max({place}) AS _o{number}", f'max("{time}") AS _t{number}', f"{value} AS _v{number}"]
        survives = f"_d IS NULL OR _o{number} >= _d"
        out.append(f'CASE WHEN {survives} THEN _v{number} END AS "{column.name}"')
        times.append(f'CASE WHEN {survives} THEN _t{number} END AS "{time}"')
    keys = _names(table.key)
    grouped = f"SELECT {keys}, {', '.join(found)} FROM ({source}) AS s GROUP BY {keys}"  # noqa: S608
    return f"SELECT {_stored(table)} FROM (SELECT {', '.join([*out, *times])} FROM ({grouped}) AS g) AS o"  # noqa: S608
