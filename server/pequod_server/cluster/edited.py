"""Changes of the file with a cluster's map that keep what its operator wrote: comments, order, blanks.

text + state  ->  the same text, with the members that differ set, new tables put in, others taken out
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import tomlkit
from tomlkit.items import AoT, Table

from pequod.cluster.document import Members, read, tables_of
from pequod.cluster.map import ClusterState
from pequod.escapes import unescaped


class _Array(NamedTuple):
    """An array of tables, and how a table of the file is recognised."""

    name: str
    identity_of: Callable[[Members], object]


def edited(text: str, state: ClusterState) -> str:
    """Return a text that says a state, as like the text before as can be.

    Raises:
        ClusterMapError: The text says no state.
    """
    before, document = read(text), tomlkit.parse(text)
    old, new = before.map, state.map
    for name, was, value in (
        ("cluster", old.cluster, new.cluster),
        ("version", old.version, new.version),
        ("joins", old.joins, new.joins),
    ):
        if value != was:
            document[name] = tomlkit.string(value, multiline="\n" in value) if isinstance(value, str) else value
    tables_before, tables = tables_of(before), tables_of(state)
    for array in _ARRAYS:
        _edit(document, array, tables_before[array.name], tables[array.name])
    return tomlkit.dumps(document)


def _edit(document: tomlkit.TOMLDocument, array: _Array, before: Sequence[Members], after: Sequence[Members]) -> None:
    if list(before) == list(after):
        return
    if not after:
        document.remove(array.name)
        return
    if array.name not in document:
        document.append(array.name, tomlkit.aot())
    tables: AoT = document[array.name]
    old, new = ({array.identity_of(one): one for one in some} for some in (before, after))
    for at in reversed(range(len(tables))):
        if array.identity_of(tables[at]) not in new:
            del tables[at]
    places = {array.identity_of(table): at for at, table in enumerate(tables)}
    for identity, members in new.items():
        if identity in places:
            _set(tables[places[identity]], old[identity], members)
    at = 0
    for identity, members in new.items():
        places = {array.identity_of(table): number for number, table in enumerate(tables)}
        if identity not in places:
            table = tomlkit.table()
            _set(table, {}, members)
            table.add(tomlkit.nl())
            tables.insert(at, table)
            places[identity] = at
        at = places[identity] + 1


def _set(table: Table, before: Members, after: Members) -> None:
    """Have a table say some members where they differ."""
    for name, value in after.items():
        if before.get(name) == value:
            continue
        if value is None:
            table.pop(name, None)
        else:
            table[name] = value


def _key(table: Members, name: str) -> bytes:
    return unescaped(str(table.get(name) or ""))


_ARRAYS: Final = (
    _Array("placements", lambda table: _key(table, "prefix")),
    _Array("home_ranges", lambda table: _key(table, "first")),
    _Array("servers", lambda table: str(table["id"])),
)
