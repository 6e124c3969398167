"""The disk behind an engine: what commands change is committed before their answers leave.

    commands -> effects {key: value} -> commit, once a turn of the loop -> answers leave      everysec, never
                                                  -> sync in a thread   -> answers leave      always

An answer leaves only once everything that the engine showed when it was made is as safe as the setting says: reads and
watches wait like writes, so nobody sees what a crash takes back. All who wait at a time share one sync.

A full disk: writes are refused before the room is gone, so that what was applied can be committed. If a commit fails
all the same, its effects are undone in the engine: nobody was told of them.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

from pequod.engine import Engine
from pequod.errors import BackingUnavailableError, DiskFullError
from pequod_server.backing.store import History
from pequod_server.data.counting import Counts
from pequod_server.data.errors import FolderError, LostDiskError
from pequod_server.data.folder import Folder
from pequod_server.data.library import BUFFER_BYTES, SMALL, Caches, RowsError
from pequod_server.data.opening import damaged, open_rows
from pequod_server.data.rows import StoredRows
from pequod_server.data.waiting import Told, Waiting
from pequod_server.once.memory import RequestIds
from pequod_server.setting_kinds import MIB

log = logging.getLogger("pequod.data")

Fsync = Literal["always", "everysec", "never"]

#: Writes are refused while fewer bytes are free: what is in memory has to be written as files of rows, too.
SPARE_BYTES: Final = 2 * BUFFER_BYTES
#: After these many bytes of commits the free room is looked at, and at least as often as `_LOOK_S` says.
_LOOK_BYTES: Final = 4 * MIB
_LOOK_S: Final = 0.25
_SYNC_S: Final = 1.0


class Disk:
    """The folder of one server, open.

    Args:
        path: The folder; it is made if it is not there.
        fsync: When the disk is asked to have what is written: before each answer, each second, or never.
        caches: The memory that RocksDB takes.

    Invariants:
        1. ``_durable`` <= ``_committed`` <= the engine's revision; an answer leaves once one of the first two has
           reached the revision that it shows.
        2. ``effects`` are the changes of base data between the last two.
    """

    def __init__(self, path: Path, engine: Engine, fsync: Fsync, caches: Caches = SMALL) -> None:
        #: The folder.
        self.path = path
        self._caches = caches
        self._engine = engine
        #: The request ids of the changes, which the same commits take.
        self.ids = RequestIds()
        self.counts = Counts()
        self._fsync = fsync
        self.effects: dict[bytes, bytes | None] = {}
        #: Whether keys of the folder have deadlines, or had some since it was opened.
        self.has_deadlines = False
        #: The positions of which the operating system, and the disk, has everything.
        self._committed = self._durable = 0
        #: Returns the joins to be kept, as text, and what was kept last.
        self._joins: Callable[[], str] = str
        self._kept_joins = ""
        self._are_joins_others = False
        #: How many times effects were undone; see `settle`.
        self.undone_count = 0
        #: Answers that wait.
        self._waiting = Waiting()
        #: Whether a commit comes in the next turn of the event loop.
        self._is_due = False
        self._is_syncing = self._is_broken = False
        self._unlooked_bytes = 0
        #: The room that was left at the last look.
        self.free_bytes = SPARE_BYTES
        self._folder: Folder | None = None
        self._rows: StoredRows | None = None
        self._loop: asyncio.AbstractEventLoop
        self._tasks: list[asyncio.Task[None]] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pequod-disk")
        #: Ends with the error if the disk fails.
        self.failed: asyncio.Future[None] | None = None

    # From the start to the end.

    def open(self) -> StoredRows:
        """Lock the folder, and open its rows, which are to be taken into the engine before `begin`.

        Raises:
            FolderError, DamagedError: The folder cannot be used.
        """
        folder = Folder(self.path)
        try:
            self._rows = open_rows(folder, self._caches)
        except FolderError:
            folder.close()
            raise
        self._folder = folder
        return self._rows

    def begin(self, kept_joins: str, joins: Callable[[], str]) -> None:
        """Keep what the engine changes from now on.

        Args:
            kept_joins: The joins that the folder has, as text.
            joins: Returns those that it is to have.
        """
        self._kept_joins, self._joins = kept_joins, joins
        self.has_deadlines = next(self.rows().deadlines(), None) is not None
        self._committed = self._durable = self._engine.revision
        self._engine.record(self.effects)
        self._loop = asyncio.get_running_loop()
        self.failed = self._loop.create_future()
        self._look()
        self._tasks.append(self._loop.create_task(self._look_again(), name="pequod disk"))

    async def end(self) -> None:
        """Commit and sync what there is, and close the folder.

        Raises:
            FolderError: It could not be written; what was acknowledged is there as the setting says.
        """
        for task in self._tasks:
            task.cancel()
        rows, folder, self._rows, self._folder = self._rows, self._folder, None, None
        if folder is None:
            return
        run, is_whole = asyncio.get_running_loop().run_in_executor, bool(self._tasks) and not self._is_broken
        try:
            if rows is not None and is_whole:
                self._write(rows, folder)
                await run(self._thread, rows.sync)
                folder.note.synced = self._committed
            if rows is not None:
                await run(self._thread, rows.close)
            if is_whole:
                folder.note.end()
        except RowsError as error:
            raise damaged(folder, error) from error
        finally:
            self._engine.record(None)
            self._thread.shutdown(wait=False)
            folder.close()

    def rows(self) -> StoredRows:
        """Return the rows, which have all that the engine has changed.

        Raises:
            DiskFullError: They could not be opened anew after a failed commit.
        """
        with suppress(DiskFullError):
            # A commit that fails undoes the changes in the engine: the rows are as the engine has them.
            self.commit()
        return self.committed

    @property
    def committed(self) -> StoredRows:
        """The rows without what the engine has changed since the last commit; raises as `rows`."""
        if self._rows is None:
            raise self._error()
        return self._rows

    def refuse_damage(self, error: RowsError) -> BackingUnavailableError:
        """End the server, since rows cannot be read; return the error of the call that needs them."""
        self._fail(damaged(self.folder, error))
        return BackingUnavailableError("data on disk", str(error))

    @property
    def folder(self) -> Folder:
        """The folder, once it is open."""
        assert self._folder is not None, "it is opened first"
        return self._folder

    @property
    def history(self) -> History:
        """The history that the engine's revisions belong to, once the folder is open."""
        return self.folder.about.history

    @property
    def is_full(self) -> bool:
        """Whether writes are refused, since there is no room."""
        return self.free_bytes < SPARE_BYTES or self._is_broken

    @property
    def unsynced(self) -> int:
        """How many changes the disk may not have yet."""
        return self._engine.revision - self._durable

    # Commits.

    def commit(self) -> None:
        """Hand over what has changed: the operating system has it when this returns.

        Raises:
            DiskFullError: There was no room, and the changes are undone.

        Cost:
            Nothing if nothing has changed; else 3 µs, and 0.4 µs for each key.
        """
        if (self._engine.revision == self._committed and not self.ids.unsaved) or self._rows is None or self._is_broken:
            return
        try:
            self._write(self._rows, self.folder)
        except RowsError as error:
            self._undo(error)
            raise self._error() from error
        if self._unlooked_bytes >= _LOOK_BYTES:
            self._look()

    def _write(self, rows: StoredRows, folder: Folder) -> None:
        revision, joins = self._engine.revision, None
        if self._are_joins_others and (text := self._joins()) != self._kept_joins:
            joins = text
        away = self._engine.take_away_deadlines()
        self.has_deadlines = self.has_deadlines or bool(self._engine.deadlines or away)
        deadlines = {**dict(self._engine.deadlines.among([*self.effects])), **away} if self.has_deadlines else None
        with self.counts.following(rows, self.effects):
            self._unlooked_bytes += rows.write(self.effects, revision, joins, deadlines, self.ids.unsaved)
        self.effects.clear()
        self.ids.unsaved.clear()
        self._committed = folder.note.written = revision
        self._are_joins_others = False
        self._kept_joins = self._kept_joins if joins is None else joins

    def note_joins(self) -> None:
        """Have the next commit keep the joins, which may be others now."""
        self._are_joins_others = True

    async def settle(self, undone_count: int) -> None:
        """Return once an answer may leave.

        Args:
            undone_count: What `undone_count` was when the call, or its present batch, began: what it has written since
                may be undone.

        Raises:
            DiskFullError: There was no room for its changes, which are undone.
        """
        if undone_count != self.undone_count:
            raise self._error()
        if not self._is_safe:
            await self._waiting.until(self._loop, self._wait)

    def settled(self, then: Told) -> bool:
        """Return whether answers may leave now; if not, ``then`` is called when they may, or never will."""
        if not (is_safe := self._is_safe):
            self._wait(then)
        return is_safe

    @property
    def _position(self) -> int:
        """The position of what the engine shows: while nothing is taken, all changes behind the last one are undone."""
        return self._committed if self._is_broken else self._engine.revision

    @property
    def _is_safe(self) -> bool:
        safe = self._durable if self._fsync == "always" else self._committed
        return self._position <= safe and (self._is_broken or not self.ids.unsaved)

    def _wait(self, then: Told) -> None:
        """Commit in the next turn of the event loop, with what others change until then, and tell who may go."""
        self._waiting.add(self._position, then)
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._commit_due)

    def _commit_due(self) -> None:
        self._is_due = False
        # `commit` has told the waiters whose changes it has undone.
        with suppress(DiskFullError):
            self.commit()
        if self._fsync == "always":
            self._sync_soon()
        else:
            self._waiting.release(self._committed)

    # Syncs.

    def _sync_soon(self) -> None:
        if not self._is_syncing and self._rows is not None and not self._is_broken:
            self._is_syncing = True
            position, rows = self._committed, self._rows
            done = self._loop.run_in_executor(self._thread, rows.sync)
            done.add_done_callback(lambda found: self._synced(position, found))

    def _synced(self, position: int, found: asyncio.Future[None]) -> None:
        """Let those go who waited for a sync, and begin the next one for the others."""
        self._is_syncing = False
        error = None if found.cancelled() else found.exception()
        if error is not None:
            # A log that could not take a record can be synced no more until it is mended.
            if not (self._is_broken and isinstance(error, RowsError) and error.is_full):
                self._fail(LostDiskError(self.path, str(error)))
            return
        if position > self._durable:
            self._durable = position
            if self._rows is not None:
                self.folder.note.synced = position
        self._waiting.release(self._durable)
        if self._durable < self._committed and self._waiting:
            self._sync_soon()

    def _fail(self, error: FolderError) -> None:
        """End the server: after a failed sync, nobody knows what the disk has, or rows cannot be read."""
        self._is_broken = True
        self._engine.refuse_writes(self._error)
        if self.failed is not None and not self.failed.done():
            self.failed.set_exception(error)

    # A full disk.

    async def _look_again(self) -> None:
        """Look at the room again and again, and sync once a second if the setting says so."""
        synced_s = self._loop.time()
        while True:
            with suppress(DiskFullError):
                # A call that failed or was cancelled may have left changes.
                self.commit()
            self._look()
            if self._loop.time() - synced_s >= _SYNC_S:
                synced_s = self._loop.time()
                if self._fsync == "everysec" and self._durable < self._committed:
                    self._sync_soon()
            await asyncio.sleep(_LOOK_S)

    def _look(self) -> None:
        """Refuse writes if there is little room, and take them again once there is more."""
        was_full, self._unlooked_bytes = self.is_full, 0
        room = os.statvfs(self.path)
        self.free_bytes = room.f_bavail * room.f_frsize
        if self._is_broken and self.free_bytes >= SPARE_BYTES and not self._is_syncing:
            self._mend()
        if self.is_full != was_full:
            self._engine.refuse_writes(self._error if self.is_full else None)
            facts = {"folder": str(self.path), "free_bytes": self.free_bytes}
            if self.is_full:
                log.error("the disk is full: writes are refused until there is room", extra=facts)
            else:
                log.warning("the disk has room again: writes are taken", extra=facts)

    def _undo(self, error: RowsError) -> None:
        """Take back in the engine what could not be committed: the rows are as RocksDB has them."""
        assert self._rows is not None, "a commit has failed"
        self._is_broken = True
        self.undone_count += 1
        before = {key: self._rows.get(key) for key in self.effects}
        self._engine.record(None)
        self._engine.restore(before, self._rows.deadlines_of(before))
        self.ids.undo()
        self.effects.clear()
        self._engine.record(self.effects)
        self._engine.refuse_writes(self._error)
        # Positions behind the last commit were of a state that is no more.
        self.folder.about = self.folder.about.after_loss(self._committed)
        facts = {"folder": str(self.path), "changes": len(before), "reason": str(error)}
        log.error("changes could not be written, and are undone; writes are refused until there is room", extra=facts)
        self._waiting.refuse_behind(self._committed, self._error)
        if not error.is_full:
            self._fail(LostDiskError(self.path, str(error)))

    def _mend(self) -> None:
        """Open the rows anew after a failed commit, and note the timeline that has begun; try again later if need be.

        RocksDB's log takes nothing more once it could not take a record.
        """
        if self.failed is not None and self.failed.done():
            return
        rows, self._rows = self._rows, None
        try:
            if rows is not None:
                with suppress(RowsError):
                    rows.close()
            self.folder.write(self.folder.about)
            self._rows = open_rows(self.folder, self._caches)
            self._write(self._rows, self.folder)
        except (OSError, RowsError, FolderError) as error:
            facts = {"folder": str(self.path), "reason": str(error)}
            log.warning("the data cannot be opened anew", extra=facts)
            return
        self._is_broken = False
        if self._waiting and self._fsync == "always":
            self._sync_soon()

    def _error(self) -> DiskFullError:
        return DiskFullError(str(self.path), self.free_bytes)
