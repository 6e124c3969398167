"""Deadlines in a database: what a store offers whose tables have a column for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from pequod_server.backing.mapping import Mapping


@runtime_checkable
class KeepsDeadlines(Protocol):
    """A store whose rows may expire; its values may be `TimedValue`s."""

    @property
    def mappings(self) -> tuple[Mapping, ...]:
        """The patterns whose keys the database owns."""
        ...

    async def migrate(self) -> list[str]:
        """Give a generic table of an earlier version its column of deadlines; return the statements that did it.

        Raises:
            SchemaError: This user may not do it.
            BackingUnavailableError: The database does not answer.
        """
        ...

    async def remove_due(self, rows_max: int) -> int:
        """Delete rows that are due, and that no other server deletes at this moment; return how many.

        Raises:
            WriteRefusedError, BackingUnavailableError: None is deleted.
        """
        ...


@runtime_checkable
class KnowsDeadlines(Protocol):
    """A store of others' rows: its values may be `TimedValue`s, and their owner sees to the rows that are due."""

    @property
    def knows_deadlines(self) -> bool:
        """Always true."""
        ...


def timed_of(mappings: Sequence[Mapping]) -> list[Mapping]:
    """Return the mappings whose rows may expire."""
    return [mapping for mapping in mappings if mapping.expires is not None]
