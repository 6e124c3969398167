"""Save what the engine holds of base data, and start from it again.

    save       rows of one moment, and the position of the feed then -> the file
    restore    client-written keys are put, loaded ranges are loaded -> the feed starts after the position

Computed rows are not saved: what is read is computed from rows that are in memory. Ranges that the database may have
changed without being able to tell are forgotten by the same events that a break of the feed leads to.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pequod.engine import Engine, LimitExceededError, Range, Rows
from pequod.errors import PequodError, SnapshotError
from pequod_server.backing import BackingUnavailableError, SchemaError
from pequod_server.database.loader import Loader
from pequod_server.ops.snapshot_file import BackedPart, SnapshotContent, read_snapshot, write_snapshot

log: Final = logging.getLogger("pequod.snapshot")


@dataclass(frozen=True, slots=True)
class Saved:
    """What was written."""

    path: Path
    key_count: int
    range_count: int
    backed_key_count: int
    file_bytes: int


@dataclass(frozen=True, slots=True)
class Restored:
    """What was taken from a file."""

    path: Path
    key_count: int
    saved_s: float


class Snapshots:
    """The file of one server."""

    def __init__(self, path: Path | None, engine: Engine, loader: Loader | None) -> None:
        self._path = path
        self._engine = engine
        self._loader = loader
        #: One at a time.
        self._lock = asyncio.Lock()

    @property
    def path(self) -> Path:
        """Where the file is.

        Raises:
            SnapshotError: The settings name none.
        """
        if self._path is None:
            raise SnapshotError("file", "the server has none; set snapshot_file")
        return self._path

    async def save(self) -> Saved:
        """Write the base data of this moment; others are served while it is written.

        Raises:
            SnapshotError: The settings name no file, or it cannot be written; the present one stays.

        Cost:
            All wait while the rows are listed, 0.1 s or so a million.
        """
        path = self.path
        async with self._lock:
            # In this order: changes of the database after the position may be in the rows, and the feed repeats them.
            # Changes of its tables after the mark are seen by the mark.
            position = None if self._loader is None else self._loader.position
            mark = await self._mark()
            rows, ranges = self._engine.base_rows(), tuple(self._engine.loaded())
            backed = None
            if self._loader is not None and position is not None and mark is not None:
                backed = BackedPart(position, _mapping_of(self._loader), mark, ranges)
            saved = await asyncio.to_thread(_written, path, rows, ranges, backed)
        log.info("saved a snapshot", extra={"file": str(path), "keys": saved.key_count, "ranges": saved.range_count})
        return saved

    async def _mark(self) -> str | None:
        if self._loader is None:
            return None
        try:
            return await self._loader.store.mark()
        except (BackingUnavailableError, SchemaError) as error:
            log.warning("saving without what is loaded of the database", extra={"reason": str(error)})
            return None

    async def restore_at_start(self) -> int | None:
        """Take in the file, if there is one; return the position after which the feed has to start.

        Raises:
            SnapshotError: The file is no snapshot, is damaged, or does not fit joins and settings. Nothing is taken.
            BackingUnavailableError, SchemaError: As the database says.
        """
        if self._path is None:
            return None
        try:
            snapshot = await asyncio.to_thread(read_snapshot, self._path)
        except FileNotFoundError:
            return None
        since, reason = await self._since(snapshot)
        self._put(snapshot)
        backed = snapshot.backed
        if since is not None and backed is not None:
            for one in backed.ranges:
                rows = _within(snapshot.rows, one)
                try:
                    self._engine.load(*one, zip(rows.keys, rows.values, strict=True))
                except LimitExceededError as error:
                    # It is loaded from the database when it is read.
                    log.warning("a range of the snapshot is left out", extra={"reason": str(error)})
        facts = {"file": str(self._path), "keys": len(snapshot.rows.keys), "ranges": self._engine.loaded_range_count}
        log.info("restored a snapshot", extra=facts)
        if reason:
            log.warning("the database's part of the snapshot is not used", extra={"reason": reason})
        return since

    async def _since(self, snapshot: SnapshotContent) -> tuple[int | None, str]:
        """Return the position of the rows of the database, or (None) why they are not used, if there are any."""
        backed = snapshot.backed
        if backed is None:
            return None, ""
        if self._loader is None:
            return None, "no database is behind the server now"
        if backed.mapping != _mapping_of(self._loader):
            return None, "the mapping is another one"
        if not await self._loader.store.knows(backed.mark):
            return None, "the database cannot tell what it changed since"
        return backed.position, ""

    async def restore(self) -> Restored:
        """Put the keys of the file, all or none.

        Raises:
            SnapshotError: As `restore_at_start`; there is no file; or a database is behind the server: only a start
                can tell what the file is worth then.

        Cost:
            All wait while the keys are put, 1 s or so a million.
        """
        path = self.path
        if self._loader is not None:
            raise SnapshotError(str(path), "with a database behind it, a server restores it when it starts")
        async with self._lock:
            try:
                snapshot = await asyncio.to_thread(read_snapshot, path)
            except FileNotFoundError:
                raise SnapshotError(str(path), "there is no such file") from None
            return Restored(path, self._put(snapshot), snapshot.saved_s)

    def _put(self, snapshot: SnapshotContent) -> int:
        """Put the client-written keys; return how many."""
        rows = snapshot.rows if snapshot.backed is None else _without(snapshot.rows, snapshot.backed.ranges)
        try:
            self._engine.put_all(rows.keys, rows.values)
        except PequodError as error:
            raise SnapshotError(str(self.path), f"{error}; mend the settings, or move the file away") from error
        return len(rows.keys)


def _written(path: Path, rows: Rows, ranges: tuple[Range, ...], backed: BackedPart | None) -> Saved:
    outside = _without(rows, ranges)
    kept = outside if backed is None else rows
    size = write_snapshot(path, kept, backed)
    inside_count = len(kept.keys) - len(outside.keys)
    return Saved(path, len(kept.keys), 0 if backed is None else len(ranges), inside_count, size)


def _mapping_of(loader: Loader) -> str:
    return hashlib.sha256(repr(loader.store.mappings).encode()).hexdigest()


def _within(rows: Rows, one: Range) -> Rows:
    start, stop = bisect_left(rows.keys, one.first), bisect_left(rows.keys, one.last)
    return Rows(rows.keys[start:stop], rows.values[start:stop])


def _without(rows: Rows, ranges: tuple[Range, ...]) -> Rows:
    """Return the rows outside of the ranges, which are in order and disjoint."""
    keys: list[bytes] = []
    values: list[bytes] = []
    at = 0
    for first, last in sorted(ranges):
        start = bisect_left(rows.keys, first)
        keys += rows.keys[at:start]
        values += rows.values[at:start]
        at = bisect_left(rows.keys, last)
    return Rows(keys + rows.keys[at:], values + rows.values[at:])
