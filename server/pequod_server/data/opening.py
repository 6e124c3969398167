"""From a folder to its rows: which ends of its log are right, and which are damage.

    closed in order                    the position is the note's, or rows are missing
    killed                             the same: what the process wrote, the operating system has
    killed, a record half written      cut off with a line in the log: nobody was told of it
    the machine was lost               what was synced is there; behind that, all or some may be lost: a new timeline
    all else                           damage: the start ends, and nothing is changed

The rows are read before they are opened for writing, since RocksDB drops what it cannot read of a log.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

from rocksdict import DBRecoveryMode

from pequod_server.data.errors import MAKE_ROOM, DamagedError, FolderError, told
from pequod_server.data.folder import NOTE, Folder
from pequod_server.data.gaps import gap, list_of
from pequod_server.data.library import CUT, SMALL, TORN, WHOLE, Caches, Logs, RowsError
from pequod_server.data.rows import StoredRows

log = logging.getLogger("pequod.data")


class _Seen(NamedTuple):
    position: int
    logs: Logs


def open_rows(folder: Folder, caches: Caches = SMALL) -> StoredRows:
    """Open the rows of a folder for this process, after a look at whether they are as they should be.

    Args:
        caches: As `StoredRows` has it.

    Raises:
        DamagedError: StoredRows are missing, or a file is damaged; nothing is changed.
        FolderError: They cannot be opened.
    """
    if not folder.rows.exists() and not folder.note.is_whole:
        folder.note.begin(0)
    recovery = WHOLE
    # A first start may have ended anywhere.
    if not folder.note.is_whole or folder.note.least or (folder.rows / "CURRENT").exists():
        if not folder.rows.exists():
            raise DamagedError(folder.rows, folder.path, "the rows are gone")
        recovery, logs = judged(folder)
        folder.note.opens(logs)
    rows = _opened(folder, recovery, caches)
    try:
        position = rows.meta().position
        _refuse_less(folder, position)
        if not folder.note.had_ended and not folder.note.is_same_boot:
            # The end may be lost, and tokens of it may be about.
            folder.lose_tail(position)
            log.warning("the machine was lost before the server ended: a new timeline begins", extra=_facts(folder))
        folder.note.begin(position, rows.logs)
    except RowsError as error:
        rows.close()
        raise damaged(folder, error) from error
    except OSError as error:
        rows.close()
        raise FolderError(folder.path, f"it cannot be written: {told(error)}") from error
    except FolderError:
        rows.close()
        raise
    return rows


def judged(folder: Folder) -> tuple[DBRecoveryMode, Logs]:
    """Return how the logs of a folder have to be read, and where they begin.

    Raises:
        DamagedError: StoredRows are missing, or a file is damaged.
    """
    if not folder.note.is_whole:
        raise DamagedError(folder.path / NOTE, folder.path, "the file is gone, or is damaged")
    try:
        return WHOLE, _look(folder, WHOLE).logs
    except RowsError as error:
        refused = error
    is_lost = not folder.note.is_same_boot
    for recovery in (TORN, CUT) if is_lost else (TORN,):
        try:
            position, logs = _look(folder, recovery)
        except RowsError:
            continue
        facts = {**_facts(folder), "position": position, "reason": str(refused)}
        log.warning("the log of the data ends in the middle of a record, which is cut off", extra=facts)
        return recovery, logs
    raise damaged(folder, refused) from refused


def _look(folder: Folder, recovery: DBRecoveryMode) -> _Seen:
    """Return the position of a folder, read in some way, and where its logs begin.

    Raises:
        DamagedError: StoredRows are missing.
        RowsError: It cannot be read so.
    """
    with StoredRows.to_read(folder.rows, recovery) as rows:
        seen = _Seen(rows.meta().position, rows.logs)
    _refuse_less(folder, seen.position)
    if reason := gap(seen.logs, folder.note.logs, is_opening=folder.note.is_opening):
        raise DamagedError(list_of(folder.rows), folder.path, reason)
    return seen


def _refuse_less(folder: Folder, position: int) -> None:
    least = folder.note.least
    if position < least:
        reason = f"its log ends at change {position}, and {least} were written: {least - position} are missing"
        raise DamagedError(folder.rows, folder.path, reason)


def _opened(folder: Folder, recovery: DBRecoveryMode, caches: Caches) -> StoredRows:
    try:
        return StoredRows(folder.rows, recovery, caches=caches)
    except RowsError as error:
        raise damaged(folder, error) from error


def damaged(folder: Folder, error: RowsError) -> FolderError:
    """Return the error of a folder whose rows cannot be read."""
    if error.is_full:
        return FolderError(folder.path, f"it cannot be opened: {str(error).rstrip('.')}; {MAKE_ROOM}")
    if not error.is_damage:
        return FolderError(folder.path, str(error))
    return DamagedError(_file_of(folder, str(error)), folder.path, str(error).rstrip("."))


def _file_of(folder: Folder, text: str) -> Path:
    """Return the file that a message of RocksDB names, or the folder of the rows."""
    named = [word.rstrip(".:,") for word in text.replace("'", " ").split() if "/" in word or word.endswith(".sst")]
    return next(
        (folder.rows / Path(word).name for word in named if (folder.rows / Path(word).name).exists()), folder.rows
    )


def _facts(folder: Folder) -> dict[str, object]:
    return {"folder": str(folder.path)}
