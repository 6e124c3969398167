"""Requests of an execution: rows and keys of the sources of its join."""

from __future__ import annotations

from typing import Protocol

from pequod.answers.rows import Rows
from pequod.engine.base.groups import Groups
from pequod.engine.joins.timeline import Around
from pequod.language.narrowing import Narrowed


class Sources(Protocol):
    """Where an execution reads the sources of its join."""

    def read(self, source: int, prefix: bytes, first: bytes, last: bytes | None) -> Rows:
        """Return the rows that start with ``prefix`` and continue in ``[first, last)``."""

    def read_end(
        self, source: int, prefix: bytes, first: bytes, last: bytes | None, limit: int | None, *, is_last: bool
    ) -> Rows:
        """Return the last rows of these, or the first ones, in the order of their keys."""

    def get(self, source: int, key: bytes) -> bytes | None:
        """Return the value of one source key, None if it is absent."""

    def groups(self, source: int, around: Around, prefixes: list[bytes], narrowed: Narrowed) -> Groups | None:
        """Return groups by their prefixes, those of some prefixes among them, unless they are empty.

        Args:
            source: The number of the source.
            around: The form of all the prefixes.
            prefixes: The known parts of keys of the source.
            narrowed: The part of each group that is read.

        Returns:
            None if the source is not a table of base data with such prefixes as groups: then `read` each.
        """

    def look_ahead(self, source: int, prefix: bytes, around: Around, narrowed: Narrowed) -> None:
        """Note which groups the execution reads next if a range is missing whose keys begin with a prefix.

        Args:
            source: The number of the next source.
            prefix: The known part of the keys that may be missing.
            around: The form of the groups' prefixes.
            narrowed: The part of each group.
        """

    def make_room(self, tails: list[bytes]) -> int:
        """Make room for contributions to rows with these tails; return how many there may be before the next call."""
