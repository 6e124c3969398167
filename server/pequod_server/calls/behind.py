"""The databases behind the engine, as watches see them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pequod.engine import Lacking
from pequod_server.database.gate import Gates


class Database(Protocol):
    """The databases behind the engine, as watches see them."""

    #: Closed while a commit is half applied.
    gate: Gates

    async def load_patiently(self, lacking: Iterable[Lacking]) -> None:
        """Load ranges, however long that takes."""
        ...
