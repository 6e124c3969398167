"""The statements that write a change to SQLite."""

from __future__ import annotations

from collections.abc import Sequence

from pequod.escapes import shown
from pequod_server.backing.errors import PackError
from pequod_server.backing.mapping import Mapping
from pequod_server.backing.sql import Query, quoted
from pequod_server.backing.sqlite.dialect import parameter_of, quoted_name, slot_parameter_of
from pequod_server.backing.store import RowChange
from pequod_server.backing.values import decompose


def plan_of(mappings: Sequence[Mapping], change: RowChange) -> tuple[Mapping, list[Query]]:
    """Return the mapping and the statements of one change; the first that changes a row is the last to run.

    Raises:
        PackError: The key is of no mapping, or the value does not have its form.
    """
    for mapping in mappings:
        slots = mapping.columns_of(change.key)
        if slots is not None:
            break
    else:
        raise PackError(
            f"key {shown(change.key)}", "it is of no mapped pattern, or its slots cannot be of their columns"
        )
    table = quoted_name(mapping)
    own = tuple(slot_parameter_of(slot.column, slots[slot.name]) for slot in mapping.slots)
    where = " AND ".join(f"{quoted(name)} = ?" for name in slots)
    if mapping.condition:
        where += f" AND ({mapping.condition})"
    if change.value is None:
        return mapping, [Query(f"DELETE FROM {table} WHERE {where}", own)]
    cells = decompose(change.key, change.value, mapping.value, mapping.form)
    values = {name: parameter_of(cell) for name, cell in zip(mapping.value, cells, strict=True) if name not in slots}
    names = [*slots, *values]
    insert = Query(
        f"INSERT INTO {table} ({', '.join(map(quoted, names))}) VALUES ({', '.join('?' * len(names))})",
        (*own, *values.values()),
    )
    # Without a column to set, the update only shows whether the row exists.
    targets = ", ".join(f"{quoted(name)} = ?" for name in values) or "{0} = {0}".format(quoted(names[0]))
    update = Query(f"UPDATE {table} SET {targets} WHERE {where}", (*values.values(), *own))
    return mapping, [update, insert]
