"""Save what the engine holds of base data, and start from it again.

    save       rows of one moment, and the position of the feed then -> the file
    restore    client-written keys are put, loaded ranges are loaded -> the feed starts after the position

Rows in memory alone are taken in slices, between which others have their turn; with a database behind the server all
are listed in one turn, as the loaded ranges come and go. Computed rows are not saved: what is read is computed from
rows that are in memory. Ranges that the database may have changed without being able to tell are forgotten by the same
events that a break of the feed leads to.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from pequod.engine import Engine, LimitExceededError, Range, Rows
from pequod.errors import PequodError, SnapshotError
from pequod.freshness import database_of
from pequod_server.backing import BackingUnavailableError, KeyRange, SchemaError
from pequod_server.database.assignment import overlap
from pequod_server.database.databases import Databases
from pequod_server.database.loader import Loader
from pequod_server.freshness.own import OwnHistory
from pequod_server.snapshots.files import BackedPart, SnapshotContent, WrittenFile, read_snapshot, write_slices
from pequod_server.snapshots.locations import SnapshotPlace
from pequod_server.snapshots.slices import in_slices, take_rows

_T = TypeVar("_T")
log: Final = logging.getLogger("pequod.snapshot")


@dataclass(frozen=True, slots=True)
class Saved:
    """The outcome of a save."""

    path: Path
    key_count: int
    range_count: int
    backed_key_count: int
    file_bytes: int


@dataclass(frozen=True, slots=True)
class Restored:
    """The outcome of a restore."""

    path: Path
    key_count: int
    saved_s: float


class Snapshots:
    """The snapshots of one server."""

    def __init__(
        self, place: SnapshotPlace | None, engine: Engine, databases: Databases, own: OwnHistory | None = None
    ) -> None:
        #: Names base data that outlive the server without a database; None: they do not.
        self._own = own
        self._place = place
        self._engine = engine
        self._databases = databases
        #: One at a time.
        self._lock = asyncio.Lock()
        #: Ends the save that is under way.
        self._stop = threading.Event()
        self._is_stopping = False
        #: When the data of the latest file was saved, in seconds since 1970; None while there is none.
        self.saved_s: float | None = None
        #: Saves that failed.
        self.failure_count = 0
        #: Names the data in memory: another life of the server has another one, unless it starts from the snapshot.
        self._origin = secrets.randbits(63) or 1

    @property
    def place(self) -> SnapshotPlace:
        """Where the files are.

        Raises:
            SnapshotError: The settings name no place.
        """
        if self._place is None:
            raise SnapshotError("file", "the server has none; set snapshot_file or snapshot_folder")
        return self._place

    @property
    def is_wanted(self) -> bool:
        """Whether the settings name a place."""
        return self._place is not None

    def origins(self) -> list[bytes]:
        """Return what names the data that the server shows, for as long as these live; nothing if it is not known yet.

        Each database behind the server has a name, whatever its timeline is. Otherwise data are in memory, and the
        snapshot is all in which they outlive the server.
        """
        if self._own is not None:
            return [self._own.history.database]
        if not self._databases.all:
            return [database_of("memory", self._origin)]
        histories = [loader.followed.history for loader in self._databases.all]
        return [history.database for history in histories if history is not None]

    async def save(self) -> Saved:
        """Write the base data of one moment of this call; others are served meanwhile.

        Raises:
            SnapshotError: The settings name no place, the file cannot be written, or `stop_saving` ended it; those that
                are there stay.

        Cost:
            0.2 s or so a million rows in turns of a millisecond or so, and then 1 s or so in a thread. With a database
            behind the server all wait while the rows are listed, 0.1 s or so a million.
        """
        place = self.place
        async with self._lock:
            self._stop = stop = threading.Event()
            if self._is_stopping:
                raise SnapshotError(str(place.path), "it is not begun: the server ends")
            try:
                path, saved_s, saved = await (self._save_loaded if self._databases.all else self._save_own)(place, stop)
            except SnapshotError:
                self.failure_count += not stop.is_set()
                raise
            self.saved_s = saved_s
            await _in_thread(lambda: _drop_oldest(place), stop)
        log.info("saved a snapshot", extra={"file": str(path), "keys": saved.key_count, "ranges": saved.range_count})
        return saved

    async def stop_saving(self) -> None:
        """End the save that is under way and those that wait; what was written goes, and the callers are told."""
        self._is_stopping = True
        self._stop.set()
        async with self._lock:
            self._is_stopping = False

    async def _save_own(self, place: SnapshotPlace, stop: threading.Event) -> tuple[Path, float, Saved]:
        taken = await take_rows(self._engine, stop.is_set)
        saved_s, origin, has_deadlines = time.time(), self._origin, taken.has_deadlines

        def write() -> tuple[Path, WrittenFile]:
            path = place.next(saved_s)
            drained = taken.drain()
            return path, write_slices(path, drained, (), origin, has_deadlines=has_deadlines, is_stopped=stop.is_set)

        path, written = await _in_thread(write, stop)
        return path, saved_s, Saved(path, written.key_count, 0, 0, written.file_bytes)

    async def _save_loaded(self, place: SnapshotPlace, stop: threading.Event) -> tuple[Path, float, Saved]:
        saved_s = time.time()
        # In this order: changes of the database after the position may be in the rows, and the feed repeats them.
        # Changes of its tables after the mark are seen by the mark.
        known = [(loader, loader.position) for loader in self._databases.all]
        marks = await asyncio.gather(*(_mark_of(loader) for loader, _ in known))
        rows, ranges = self._engine.base_rows(), tuple(self._engine.loaded())
        deadlines = self._engine.deadlines.among(rows.keys) if self._engine.deadlines else []
        backed: list[BackedPart] = []
        left_out: list[Range] = []
        for (loader, position), mark in zip(known, marks, strict=True):
            owned = self._owned(loader, ranges)
            if position is None or mark is None:
                left_out += owned
            else:
                backed.append(BackedPart(loader.name, position, _mapping_of(loader), mark, owned))

        def write() -> tuple[Path, Saved]:
            path = place.next(saved_s)
            kept, inside = _without(rows, left_out), [one for part in backed for one in part.ranges]
            slices, has_deadlines = in_slices(kept, deadlines), bool(deadlines)
            written = write_slices(
                path, slices, backed, self._origin, has_deadlines=has_deadlines, is_stopped=stop.is_set
            )
            inside_count = written.key_count - len(_without(kept, inside).keys)
            return path, Saved(path, written.key_count, len(inside), inside_count, written.file_bytes)

        path, saved = await _in_thread(write, stop)
        return path, saved_s, saved

    def _owned(self, loader: Loader, ranges: Sequence[Range]) -> tuple[Range, ...]:
        """Return the parts of loaded ranges that a database owns."""
        owned = self._databases.assignment.ranges_of(loader)
        parts = overlap([KeyRange(*one) for one in ranges], owned)
        return tuple(Range(one.first, one.last) for one in parts if one.last is not None)

    async def restore_at_start(self) -> dict[str, int]:
        """Take in the latest file, if there is one; return the positions after which feeds have to start.

        Returns:
            Positions by databases' names.

        Raises:
            SnapshotError: The file is no snapshot, is damaged, or does not fit joins and settings; or none could be
                written there at the end. Nothing is taken.
            BackingUnavailableError, SchemaError: As the database says.
        """
        since: dict[str, int] = {}
        if self._place is None:
            return since
        await asyncio.to_thread(self._place.take)
        if (path := self._place.latest()) is None:
            return since
        snapshot = await asyncio.to_thread(read_snapshot, path)
        self.saved_s = snapshot.saved_s
        reasons = {part.name: await self._why_not(part) for part in snapshot.backed}
        self._put(path, snapshot)
        self._origin = snapshot.origin or self._origin
        for part in snapshot.backed:
            if reasons[part.name]:
                continue
            since[part.name] = part.position
            for one in self._owned(self._databases.named(part.name), part.ranges):
                rows = _within(snapshot.rows, one)
                try:
                    self._engine.load(*one, zip(rows.keys, rows.values, strict=True))
                except LimitExceededError as error:
                    # It is loaded from the database when it is read.
                    log.warning("a range of the snapshot is left out", extra={"reason": str(error)})
        facts = {"file": str(path), "keys": len(snapshot.rows.keys), "ranges": self._engine.loaded_range_count}
        log.info("restored a snapshot", extra=facts)
        for name, reason in reasons.items():
            if reason:
                facts = {"database": name, "reason": reason}
                log.warning("the database's part of the snapshot is not used", extra=facts)
        return since

    async def _why_not(self, part: BackedPart) -> str:
        """Return why the rows of a database are not used; empty if they are."""
        if not self._databases.all:
            return "no database is behind the server now"
        try:
            loader = self._databases.named(part.name)
        except KeyError:
            return "no database of this name is behind the server now"
        if part.mapping != _mapping_of(loader):
            return "the mapping is another one"
        if not await loader.store.knows(part.mark):
            return "the database cannot tell what it changed since"
        return ""

    async def restore(self) -> Restored:
        """Put the keys of the latest file, all or none.

        Raises:
            SnapshotError: As `restore_at_start`; there is no file; or a database is behind the server: only a start
                can tell what the file is worth then.

        Cost:
            All wait while the keys are put, 1 s or so a million.
        """
        place = self.place
        if self._databases.all:
            raise SnapshotError(str(place.path), "with a database behind it, a server restores it when it starts")
        async with self._lock:
            if (path := place.latest()) is None:
                raise SnapshotError(str(place.path), "there is no such file, or none in the folder")
            snapshot = await asyncio.to_thread(read_snapshot, path)
            return Restored(path, self._put(path, snapshot), snapshot.saved_s)

    async def end(self) -> None:
        """End a save that is under way, and give the place free."""
        await self.stop_saving()
        if self._place is not None:
            self._place.leave()

    def _put(self, path: Path, snapshot: SnapshotContent) -> int:
        """Put the client-written keys, without those that have expired since; return how many."""
        now_ms = self._databases.expiring.clock_ms()
        gone = [Range(key, key + b"\0") for key, at_ms in snapshot.deadlines if at_ms <= now_ms]
        rows = _without(snapshot.rows, [*(one for part in snapshot.backed for one in part.ranges), *gone])
        try:
            self._engine.put_all(rows.keys, rows.values)
        except PequodError as error:
            raise SnapshotError(str(path), f"{error}; mend the settings, or move the file away") from error
        self._engine.restore_deadlines(one for one in snapshot.deadlines if one[1] > now_ms)
        return len(rows.keys)


async def _mark_of(loader: Loader) -> str | None:
    try:
        return await loader.store.mark()
    except (BackingUnavailableError, SchemaError) as error:
        facts = {"database": loader.name, "reason": str(error)}
        log.warning("saving without what is loaded of the database", extra=facts)
        return None


async def _in_thread(work: Callable[[], _T], stop: threading.Event) -> _T:
    """Return what work in a thread returns; if the caller is cancelled, stop the work, and wait until it has ended."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([running])
        raise


def _drop_oldest(place: SnapshotPlace) -> None:
    try:
        dropped = place.drop_oldest()
    except SnapshotError as error:
        log.warning("old snapshots stay", extra={"reason": str(error)})
        return
    if dropped:
        log.info("removed old snapshots", extra={"files": " ".join(one.name for one in dropped)})


def _mapping_of(loader: Loader) -> str:
    return hashlib.sha256(repr(loader.store.mappings).encode()).hexdigest()


def _within(rows: Rows, one: Range) -> Rows:
    start, stop = bisect_left(rows.keys, one.first), bisect_left(rows.keys, one.last)
    return Rows(rows.keys[start:stop], rows.values[start:stop])


def _without(rows: Rows, ranges: Iterable[Range]) -> Rows:
    """Return the rows outside of the ranges, which are disjoint."""
    keys: list[bytes] = []
    values: list[bytes] = []
    at = 0
    for first, last in sorted(ranges):
        start = bisect_left(rows.keys, first)
        keys += rows.keys[at:start]
        values += rows.values[at:start]
        at = bisect_left(rows.keys, last)
    return Rows(keys + rows.keys[at:], values + rows.values[at:])
