"""All records of a table, page by page, and how many replicas did not tell theirs.

What one replica alone has is found, which reads by a majority may miss.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from pequod_views.versioned.records import Cells, QuorumError, RecordStore

_PAGE: Final = 1000


class KeyScan:
    """The keys of a table, to be gone over once, and their records."""

    def __init__(self, store: RecordStore, table: str) -> None:
        self._store = store
        self._table = table
        #: How many did not answer, of a page that the fewest answered.
        self.replicas_away = 0

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield the keys in the order of the store.

        Raises:
            QuorumError: Less than a majority of the replicas answers.
        """
        after: str | None = None
        while True:
            page = await self._store.keys(self._table, after, _PAGE)
            self.replicas_away = max(self.replicas_away, page.replicas_away)
            if not page.keys:
                return
            for key in page.keys:
                yield key
            after = page.keys[-1]

    async def record(self, key: str) -> Cells:
        """Return a record as all replicas have it, or a majority of them once one is away.

        Raises:
            QuorumError: Less than a majority of the replicas answers.
        """
        count = self._store.replica_count
        majority = count // 2 + 1
        if not self.replicas_away:
            try:
                return await self._store.get(self._table, key, None, count)
            except QuorumError as error:
                self.replicas_away = count - max(error.answered, majority)
        return await self._store.get(self._table, key, None, majority)
