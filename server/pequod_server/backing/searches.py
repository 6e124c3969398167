"""Searches: what a database can be asked for by columns of the value, when joins read records by their fields.

    keys = "article|<id>"   value = ["author", "title"]   fields.author = "text"

    search   article|<author>|<id>                       author is a column of the value, id one of the key
    range    [article|bob|, article|bob})                author = bob
             [article|bob|5, article|bob})               author = bob AND id >= 5

The statement reads the same columns as any load, so what it gives are rows as usual. It may give more than is asked
for: the engine looks at each row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from pequod.engine import Pattern, Search, SearchRange, Slot
from pequod_server.backing.boxes import Box, Cutter
from pequod_server.backing.mapping import Mapping, SlotColumn, column_of
from pequod_server.backing.store import KeyRange, Loaded


@runtime_checkable
class SearchingStore(Protocol):
    """A database that can be asked by other columns than those of keys."""

    @property
    def mappings(self) -> tuple[Mapping, ...]:
        """The patterns whose keys the database owns."""
        ...

    async def find(self, ranges: Sequence[KeyRange], searches: Sequence[SearchRange]) -> Loaded:
        """Read ranges, and what searches find, as of one moment; see `BackingStore.load`.

        Requires:
            `columns_of` has the columns of each search.
        """
        ...


async def found_by(store: object, searches: Sequence[SearchRange], ranges: Sequence[KeyRange]) -> Loaded:
    """Return what a database has in ranges and by searches.

    Requires:
        It can be asked for these searches.
    """
    assert isinstance(store, SearchingStore), "the engine was told that it can search"
    return await store.find(ranges, searches)


def can_search(store: object, search: Search) -> bool:
    """Return whether a database, if there is one, can be asked for the ranges of a search."""
    return isinstance(store, SearchingStore) and columns_of(store.mappings, search) is not None


@dataclass(frozen=True, slots=True)
class SearchColumns:
    """The columns by which the rows of a mapping are searched for."""

    mapping: Mapping
    #: In the order of the plain keys; those of the last slots may be missing.
    slots: tuple[SlotColumn, ...]
    _cutter: Cutter

    def boxes(self, ranges: Iterable[SearchRange]) -> list[Box]:
        """Return conditions that together select every row that shows a plain key of the ranges."""
        return list(dict.fromkeys(box for one in ranges for box in self._cutter.boxes(one.first, one.last)))


def columns_of(mappings: Iterable[Mapping], search: Search) -> SearchColumns | None:
    """Return the columns for a search; None if its rows are not those of a mapping, or its first slot has no column."""
    fields = dict(search.fields)
    for mapping in mappings:
        names = _same_slots(search.own, mapping.pattern)
        if names is None:
            continue
        own = {slot.slot.name: slot for slot in mapping.slots}
        found: list[SlotColumn] = []
        for slot in dict.fromkeys(search.plain.slots()):
            if slot.name in names:
                kept = own[names[slot.name]]
                found.append(SlotColumn(slot, kept.name, kept.column))
                continue
            field = fields.get(slot.name, "")
            column = column_of(slot, mapping.fields.get(field))
            if column is None:
                break
            found.append(SlotColumn(slot, field, column))
        if found:
            cutter = Cutter(search.plain.parts, {slot.slot.name: slot.column for slot in found})
            return SearchColumns(mapping, tuple(found), cutter)
    return None


def by_columns(
    mappings: Sequence[Mapping], searches: Iterable[SearchRange]
) -> list[tuple[SearchColumns, list[SearchRange]]]:
    """Return the columns of each search with its ranges."""
    ranges: dict[Search, list[SearchRange]] = {}
    for one in searches:
        ranges.setdefault(one.search, []).append(one)
    found = []
    for search, some in ranges.items():
        columns = columns_of(mappings, search)
        assert columns is not None, "the engine was told that it can be searched"
        found.append((columns, some))
    return found


def _same_slots(pattern: Pattern, other: Pattern) -> dict[str, str] | None:
    """Return the slots of one pattern -> those of another, by name; None if more than the names differs."""
    if len(pattern.parts) != len(other.parts):
        return None
    names: dict[str, str] = {}
    for part, same in zip(pattern.parts, other.parts, strict=True):
        if isinstance(part, Slot) and isinstance(same, Slot):
            if (part.width, part.form) != (same.width, same.form) or names.setdefault(
                part.name, same.name
            ) != same.name:
                return None
        elif part != same:
            return None
    return names if len(set(names.values())) == len(names) else None
