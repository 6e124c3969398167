"""Removes loaded rows on which nothing depends any more but the indexes of their table; no change is told."""

from __future__ import annotations

from collections.abc import Iterable

from pequod.engine.base.deadlines import Deadlines
from pequod.engine.joins.projections import Projection
from pequod.engine.joins.relations import Relations
from pequod.engine.joins.searched import Searched, are_held
from pequod.engine.memory.ledger import Ledger


def remove_rows(relations: Relations, keys: Iterable[bytes], ledger: Ledger, deadlines: Deadlines) -> None:
    """Remove rows of a backed table, except those that searched ranges show.

    Requires:
        The own ranges of the rows are not loaded any more, and no context depends on the rows.

    Cost:
        O(rows), and looking at each if ranges of the table are searched.
    """
    table, searched = relations.table, [one for one in relations.searched if one.has_rows]
    before_bytes = table.count_bytes()
    indexes = []
    for reader in relations.readers:
        if isinstance(reader, Projection) and reader.index.is_held:
            if searched and reader.index.searched is not None:
                indexes.append(reader.index)
            else:
                # It is of use only with all rows of its range.
                reader.index.drop()
    for key in keys:
        value = table.get(key)
        if value is None or (searched and are_held(searched, key, value)):
            continue
        table.remove(key)
        if deadlines:
            deadlines.remove(key)
        for index in indexes:
            index.change(key, index.look(key, value), {})
    ledger.forget_rows(before_bytes - table.count_bytes())


def forget_searched(
    relations: Relations, one: Searched, first: bytes, last: bytes, ledger: Ledger, deadlines: Deadlines
) -> None:
    """Note that a range is not searched any more, and remove the rows that are there for it alone.

    Requires:
        No context depends on the range.

    Cost:
        O(rows of the range); O(rows of the table) if the index is not made.
    """
    own_key, presence = one.index.lens.own_key, relations.table.presence
    assert presence is not None, "only a database is searched"
    rows = dict.fromkeys(own_key(key) for key in one.index.seen(first, last).keys)
    one.remove(first, last)
    remove_rows(relations, [key for key in rows if key is not None and not presence.has(key)], ledger, deadlines)
