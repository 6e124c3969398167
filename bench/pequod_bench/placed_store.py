"""A store of records on some of several nodes each, as in the paper's cluster; and its index by value, on every node.

record          -> the nodes of its key, `replica_count` of them
index by value  -> beside the records, so all nodes have to be asked
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence
from pathlib import Path

from pequod_views.versioned import SqliteReplicas, StoredCell, StoredColumn
from pequod_views.versioned.records import Cells, merge


class PlacedStore:
    """Nodes that are SQLite files, each with a thread of its own.

    Args:
        node_count: At least ``replica_count``.
    """

    def __init__(self, folder: Path, node_count: int, replica_count: int) -> None:
        self.replica_count = replica_count
        self._nodes = [SqliteReplicas([folder / f"{number}.db"], synchronous="OFF") for number in range(node_count)]
        #: Requests to nodes, so far.
        self.requests = 0

    def _placed(self, table: str, key: str, quorum: int) -> list[SqliteReplicas]:
        # All nodes answer, always.
        assert quorum <= self.replica_count
        first = zlib.crc32(f"{table} {key}".encode()) % len(self._nodes)
        self.requests += self.replica_count
        return [self._nodes[(first + number) % len(self._nodes)] for number in range(self.replica_count)]

    async def get(self, table: str, key: str, columns: Sequence[StoredColumn] | None, quorum: int) -> Cells:
        """Return the newest of each cell."""
        merged: dict[StoredColumn, StoredCell] = {}
        for cells in await asyncio.gather(
            *(node.get(table, key, columns, 1) for node in self._placed(table, key, quorum))
        ):
            merge(merged, cells)
        return merged

    async def get_versions(self, table: str, key: str, column: StoredColumn, quorum: int) -> Sequence[StoredCell]:
        """Return the different values of a cell."""
        nodes = self._placed(table, key, quorum)
        found = await asyncio.gather(*(node.get_versions(table, key, column, 1) for node in nodes))
        return list(dict.fromkeys(cell for cells in found for cell in cells))

    async def put(self, table: str, key: str, cells: Cells, quorum: int) -> None:
        """Write cells."""
        await asyncio.gather(*(node.put(table, key, cells, 1) for node in self._placed(table, key, quorum)))

    async def keys(self, table: str, after: str | None, count: int) -> Sequence[str]:
        """Return the first keys of a table after one."""
        self.requests += len(self._nodes)
        found = await asyncio.gather(*(node.keys(table, after, count) for node in self._nodes))
        return sorted({key for keys in found for key in keys})[:count]

    async def forget(self, table: str, key: str, cells: Cells, quorum: int) -> None:
        """Remove cells."""
        await asyncio.gather(*(node.forget(table, key, cells, 1) for node in self._placed(table, key, quorum)))

    async def make_index(self) -> None:
        """Index cells by value on each node."""
        await asyncio.gather(*(node.make_index() for node in self._nodes))

    async def scatter(self, table: str, column: str, value: str) -> list[Cells]:
        """Ask all nodes for the records with a value, and read these."""
        self.requests += len(self._nodes)
        found = await asyncio.gather(*(node.find(table, column, value) for node in self._nodes))
        keys = sorted({key for keys in found for key in keys})
        return list(await asyncio.gather(*(self.get(table, key, None, self.replica_count // 2 + 1) for key in keys)))

    def close(self) -> None:
        """Close the files."""
        for node in self._nodes:
            node.close()
