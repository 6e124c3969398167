"""Projections: the joins that see the same in the records of one table, and their index.

A change of a row of the table is a change of plain rows: those that the old value shows, and those that the new one
does. Joins that read them are told of these changes as if the plain rows were rows of a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pequod.engine.joins.indexes import Index
from pequod.engine.joins.installed import Site
from pequod.native import core


class HotProjection:
    """What writes of records look at in a projection."""

    __slots__ = ("index", "readers")

    index: Index
    readers: list[list[Site]]


if not TYPE_CHECKING and core is not None:
    HotProjection = core.HotProjection


class Projection(HotProjection):
    """The sites that read one index; among the readers of a table, it stands in the place of a list of sites.

    Invariants:
        1. ``readers`` is not empty: it has a list of sites for each source that sees this.
    """

    __slots__ = ()

    def __init__(self, index: Index) -> None:
        self.index = index
        self.readers = []

    def __iter__(self) -> Iterator[Site]:
        """Yield the sites."""
        for sites in self.readers:
            yield from sites

    @property
    def is_waiting(self) -> bool:
        """Whether changes of the table have any effect here."""
        return self.index.is_held or any(self)

    def _check(self) -> None:
        assert self.readers, "invariant 1"
        self.index._check()


#: A reader of a table: the sites of one source that reads its keys alone, or those that look at its values.
TableReader = list[Site] | Projection


def is_waiting(reader: TableReader) -> bool:
    """Return whether changes of the table have any effect on a reader."""
    return reader.is_waiting if isinstance(reader, Projection) else any(reader)
