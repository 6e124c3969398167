"""Changes that a database decides, as writes that are done once."""

from __future__ import annotations

from typing import cast

from pequod.commands.kinds import ADD, PUT_IF, REMOVE_IF
from pequod.language.conditions import Met, Unmet, coded
from pequod_server.backing.store import Addition, ConditionalChange
from pequod_server.once.outcomes import Once, once_of


def once_of_addition(addition: Addition) -> Once[bytes]:
    """Return the write of an addition, as that of the command ADD."""
    return cast("Once[bytes]", once_of(addition.request_id, ADD, addition.key, addition.delta))


def once_of_change(change: ConditionalChange) -> Once[Met | Unmet]:
    """Return the write of a change under a condition, as that of the command PUT_IF or REMOVE_IF."""
    number, expected = coded(change.condition)
    if change.value is None:
        write = once_of(change.request_id, REMOVE_IF, change.key, expected, number=number)
    else:
        write = once_of(change.request_id, PUT_IF, change.key, change.value, expected, number)
    return cast("Once[Met | Unmet]", write)
