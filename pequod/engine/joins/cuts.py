"""Where the tables that a join reads are best cut into groups."""

from __future__ import annotations

from collections.abc import Iterable

from pequod.engine.base.table import Cut, Table
from pequod.engine.joins.installed import InstalledJoin
from pequod.language.spec import Slot


def cuts_of(join: InstalledJoin) -> Iterable[tuple[Table, Cut]]:
    """Yield the best cuts of the source tables: after a first slot that is known when the source is read.

    This assumes that a read fixes the first slot of the output, as a scan of one timeline does.
    """
    output = next(join.spec.output.slots(), None)
    known = set() if output is None else {output.name}
    for table, source in zip(join.source_tables, join.spec.sources, strict=True):
        # An index is cut by itself; else the table's own keys lead the plain ones.
        match source.pattern.parts:
            case (bytes(name), Slot(slot, width), bytes(follow), _, *_) if name == table.prefix and slot in known:
                yield table, Cut(None if width is None else width + len(follow))
        known.update(slot.name for slot in source.slots())
