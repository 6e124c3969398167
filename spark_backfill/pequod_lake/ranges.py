"""The files of a sorted run by ranges of the key: which of them a query needs, and which of them a row belongs to.

files       [ a ... f ][ g ... m ][ p ... z ]         the keys of their first and last rows
belong      below g: 1; below p: 2; others: 3         also keys below a, between m and p, and above z
k <= id     files 2 and 3
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from pequod_lake.conditions import Bound, RowBound
from pequod_lake.keys import Key, key_at, ordered, parsed, plain, values_of
from pequod_lake.runs import LakeFile, Run
from pequod_lake.schema import LakeTable

#: A column with its least and its largest value; None where they are not known.
Box = dict[str, tuple[Any, Any] | None]


def files_within(run: Run, table: LakeTable, view: str, conditions: Sequence[RowBound]) -> list[LakeFile]:
    """Return the files of a view that may have rows that meet all conditions, in their order.

    Cost:
        O(log n + m) for n files of which m may have such values of the first column of the key.
    """
    files = run.of(table.name, view)
    known = [file for file in files if file.first_key]
    if not known or not conditions:
        return list(files)
    key = table.view(view).key
    stored = table.stored(table.view(view))
    kinds = [stored.field(name).type for name in key]
    first, last = _edges(known, key[0], conditions)
    found = [file for file in files if not file.first_key]
    for file in known[first:last]:
        box = _box(file, key, kinds)
        if all(one.may_be_in([box.get(name) for name in one.columns]) for one in conditions):
            found.append(file)
    return found


def files_with(run: Run, table: str, view: str, prefix: Key) -> Iterator[LakeFile]:
    """Yield the files of a view that may have rows whose key begins with some values, in their order.

    Cost:
        O(log n + m) for n files of which m may have such rows.
    """
    files = run.of(table, view)
    size = len(prefix)
    place = 0
    if len(files) > 1 and all(file.first_key for file in files):
        place = bisect_left(files, prefix, key=lambda file: parsed(file.last_key)[:size])
    for file in files[place:]:
        if file.first_key and parsed(file.first_key)[:size] > prefix:
            return
        if not file.first_key or parsed(file.last_key)[:size] >= prefix:
            yield file


def _edges(files: Sequence[LakeFile], column: str, conditions: Sequence[RowBound]) -> tuple[int, int]:
    """Return the first and the last place of the files that the conditions of one column leave, half-open."""
    first, last = 0, len(files)
    for one in conditions:
        if one.columns[0] != column:
            continue
        low, high = _limits(one)
        if low is not None:
            first = max(first, bisect_left(files, ordered(low), key=lambda file: parsed(file.last_key)[0]))
        if high is not None:
            last = min(last, bisect_right(files, ordered(high), key=lambda file: parsed(file.first_key)[0]))
    return first, last


def _limits(condition: RowBound) -> tuple[Any, Any]:
    """Return the least and the largest value of its first column that may meet a condition; None is no limit."""
    if not isinstance(condition, Bound):
        value = plain(condition.values[0])
        return (value, None) if condition.op == ">=" else (None, value)
    if condition.op == "in":
        edges = pc.min_max(condition.value)
        return plain(edges["min"]), plain(edges["max"])
    value = plain(condition.value)
    return None if condition.op[0] == "<" else value, None if condition.op[0] == ">" else value


def _box(file: LakeFile, key: Sequence[str], kinds: Sequence[Any]) -> Box:
    """Return what the first and the last key say of each column: up to the first one in which they differ."""
    firsts, lasts = values_of(parsed(file.first_key), kinds), values_of(parsed(file.last_key), kinds)
    box: Box = {}
    for name, least, most in zip(key, firsts, lasts, strict=True):
        box[name] = None if least is None or most is None else (least, most)
        if least != most:
            break
    return box


def ranges_of(files: Sequence[LakeFile]) -> list[tuple[LakeFile, ...]]:
    """Return the files of the authority by ranges; those whose keys are not known are the first range together."""
    unknown = tuple(file for file in files if not file.first_key)
    return [*([unknown] if unknown else []), *((file,) for file in files if file.first_key)]


def in_key_order(files: Sequence[LakeFile]) -> list[LakeFile]:
    """Return files by table, view and key; those whose keys are not known come first and stay as they are."""
    return sorted(files, key=lambda one: (one.table, one.view, parsed(one.first_key) if one.first_key else ()))


def by_range(rows: Any, key: Sequence[str], ranges: Sequence[tuple[LakeFile, ...]]) -> Iterator[tuple[int, Any]]:
    """Yield the places of the ranges that sorted rows belong to, each with these rows.

    Cost:
        O(m (log n + log r)) for n ranges, of which m are met by r rows.
    """
    starts: list[Key] = [parsed(files[0].first_key) for files in ranges[1:]]
    at = 0
    while at < rows.num_rows:
        place = bisect_right(starts, key_at(rows, key, at))
        end = rows.num_rows
        if place < len(starts):
            end = bisect_left(range(end), starts[place], lo=at, key=lambda one: key_at(rows, key, one))
        yield place, rows.slice(at, end - at)
        at = end


def members(rows: Any, keys: Any, key: Sequence[str]) -> Any:
    """Return for each row whether its key is among others; no key has a null."""
    mask = None
    for name in key:
        values = keys[name]
        one = pc.is_in(rows[name], value_set=values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values)
        mask = one if mask is None else pc.and_(mask, one)
    if len(key) == 1 or not pc.any(mask).as_py():
        return mask
    # Each column is that of some key; whether all are of one key, a join says.
    places = pc.indices_nonzero(mask)
    near = rows.select(list(key)).take(places).append_column("_at", places)
    found = near.join(keys.select(list(key)), list(key), join_type="left semi")["_at"]
    is_member = np.zeros(rows.num_rows, bool)
    is_member[np.asarray(found)] = True
    return pa.array(is_member)
