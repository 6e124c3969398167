"""Who may propagate updates of a base record: one alone, or several that leave its pointers as they are."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class RowLocks:
    """A lock for each base record of each view: one exclusive holder, or several that share it."""

    def __init__(self) -> None:
        self._sharing: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._exclusive: set[tuple[str, str]] = set()
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def hold(self, view: str, base_key: str, *, exclusive: bool) -> AsyncIterator[None]:
        """Hold the lock of a record for a context."""
        row = view, base_key
        async with self._changed:
            await self._changed.wait_for(
                lambda: row not in self._exclusive and not (exclusive and self._sharing.get(row))
            )
            if exclusive:
                self._exclusive.add(row)
            else:
                self._sharing[row] += 1
        try:
            yield
        finally:
            async with self._changed:
                if exclusive:
                    self._exclusive.remove(row)
                elif self._sharing[row] == 1:
                    del self._sharing[row]
                else:
                    self._sharing[row] -= 1
                self._changed.notify_all()
