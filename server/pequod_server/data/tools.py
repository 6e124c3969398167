"""Work on a folder of data without a server: check, repair, copy, and rows in and out.

check     reads every block, and changes nothing
repair    what can be read goes into new files; the old ones stay beside them as rows.damaged
backup    of a folder that a server has open, too: its rows as they are now, in a folder of another name
"""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from pequod_grammar import parse

from pequod.escapes import shown
from pequod.language.patterns import compile_matcher
from pequod_server.data.errors import DamagedError, FolderError
from pequod_server.data.folder import ROWS, About, Folder, read_about, write_about
from pequod_server.data.gaps import gap
from pequod_server.data.library import CUT, RowsError
from pequod_server.data.note import PositionNote
from pequod_server.data.opening import damaged, judged, open_rows
from pequod_server.data.rows import StoredRows, salvage

#: A key, its value, and when it expires, in milliseconds since 1970; 0: never.
TimedRow = tuple[bytes, bytes, int]
_ROWS_A_BATCH: Final = 1000
_TRIES: Final = 20


class FolderContents(NamedTuple):
    """The contents of a folder, in numbers."""

    name: str
    key_count: int
    position: int
    timeline: int
    join_count: int


class Repaired(NamedTuple):
    """The outcome of a repair."""

    contents: FolderContents
    #: Where the files are that were damaged; None: nothing was, and nothing was changed.
    kept: Path | None
    #: How many times reading stopped at damage: rows are missing there.
    hole_count: int


def check(path: Path) -> FolderContents:
    """Read all of a folder, and change nothing of it.

    Raises:
        FolderError, DamagedError: It cannot be used, or a server has it open.
    """
    with Folder(path, make=False) as folder:
        try:
            with StoredRows.to_read(folder.rows, judged(folder)[0]) as rows:
                key_count = sum(len(keys) for keys, _ in rows.chunks(_ROWS_A_BATCH))
                for _ in rows.deadlines():
                    # Each is read, so that damage is found.
                    pass
                return _contents(folder.about, rows, key_count)
        except RowsError as error:
            raise damaged(folder, error) from error


def has_deadlines(path: Path) -> bool:
    """Return whether a key of a folder has a deadline.

    Raises:
        FolderError, DamagedError: As `check`.
    """
    with Folder(path, make=False) as folder:
        try:
            with StoredRows.to_read(folder.rows, judged(folder)[0]) as rows:
                return next(rows.deadlines(), None) is not None
        except RowsError as error:
            raise damaged(folder, error) from error


def rows_of(path: Path) -> Iterator[TimedRow]:
    """Yield the rows of a folder with their deadlines, but for those that are due.

    Raises:
        FolderError, DamagedError: As `check`.
    """
    with Folder(path, make=False) as folder:
        try:
            with StoredRows.to_read(folder.rows, judged(folder)[0]) as rows:
                now_ms = time.time() * 1000
                deadlines = dict(rows.deadlines())
                for row in _timed(_pairs(rows), deadlines):
                    if not row[2] or row[2] > now_ms:
                        yield row
        except RowsError as error:
            raise damaged(folder, error) from error


def put_rows(path: Path, found: Iterable[TimedRow]) -> int:
    """Put rows and their deadlines into a folder, which is made if it is not there; return how many.

    Raises:
        FolderError, DamagedError: As `check`; a join of the folder computes a row; or the disk is full. What was put
            before is there.
    """
    with Folder(path) as folder:
        try:
            rows = open_rows(folder)
            meta = rows.meta()
            try:
                count = _copy(_written(path, found, meta.joins), rows, meta.position, None)
            finally:
                _end(folder, rows)
        except RowsError as error:
            raise damaged(folder, error) from error
    return count


def _written(path: Path, found: Iterable[TimedRow], joins: str) -> Iterator[TimedRow]:
    """Yield rows, up to one that a join computes: no server could start with it."""
    computing = [(join, compile_matcher(join.output).match) for join in parse(joins)]
    for row in found:
        for join, match in computing:
            if match(row[0]) is not None:
                reason = f"key {shown(row[0])} is computed by its join {join.output}, and cannot be put: leave it out"
                raise FolderError(path, reason)
        yield row


def backup(path: Path, to: Path) -> FolderContents:
    """Copy the rows of a folder as they are now, also while a server has it open, into a new folder.

    The copy has a name of its own: tokens of the folder are none of the copy's.

    Raises:
        FolderError, DamagedError: The folder cannot be read, or the new one is there already.
    """
    if to.exists():
        raise FolderError(to, "it is there already; a backup goes into a new folder")
    about = read_about(path)
    with TemporaryDirectory() as scratch, _beside(path, Path(scratch)) as source:
        meta = source.meta()
        try:
            with Folder(to) as folder:
                rows = open_rows(folder)
                count = _copy(_timed(_pairs(source), dict(source.deadlines())), rows, 0, meta.joins)
                contents = _contents(folder.about, rows, count)
                _end(folder, rows)
        except BaseException as error:
            # A copy that is not whole is none.
            shutil.rmtree(to, ignore_errors=True)
            if isinstance(error, RowsError):
                raise DamagedError(path / ROWS, path, str(error)) from error
            raise
    assert about.name != contents.name, "two folders are two histories"
    return contents


def _beside(path: Path, scratch: Path) -> StoredRows:
    """Open the rows of a folder that a server may write: none may be missing that it had written before."""
    for attempt in range(_TRIES):
        with PositionNote(path / "note") as note:
            least, noted, is_opening = note.written, note.logs, note.is_opening
        try:
            rows = StoredRows.beside(path / ROWS, scratch / str(attempt))
            # Of a file and its log, RocksDB may have read a list that lacks the one, and found the other gone.
            reason = gap(rows.logs, noted, is_opening=is_opening) if noted else "nobody knows where its logs begin"
            if not reason and rows.meta().position < least:
                reason = f"its log ends before change {least}, which was written"
            if not reason:
                return rows
            rows.close()
        except RowsError as error:
            # The server has replaced a file meanwhile.
            reason = str(error)
        time.sleep(0.1)
    raise DamagedError(path / ROWS, path, reason)


def repair(path: Path) -> Repaired:
    """Make the rows of a folder anew of all that can be read; a new timeline begins. Undamaged files stay.

    Raises:
        FolderError: A server has it open, nothing can be read, or there is no room for the new files.
    """
    with suppress(FolderError, FileNotFoundError):
        return Repaired(check(path), None, 0)
    try:
        about = read_about(path)
    except (FolderError, FileNotFoundError):
        # Nobody knows its history any more.
        about = About(secrets.token_hex(16))
        if not (path / ROWS).exists():
            raise FolderError(path, "there are no data in it") from None
        write_about(path, about)
    with Folder(path, make=False) as folder:
        draft, scratch = path / "rows.new", path / "rows.salvaged"
        for left in (draft, scratch):
            shutil.rmtree(left, ignore_errors=True)
        try:
            with _readable(folder, scratch) as source, StoredRows(draft) as rows:
                logs = rows.logs
                try:
                    meta = source.meta()
                except RowsError:
                    meta = None
                holes: list[bytes] = []
                position = max(folder.note.written, folder.note.synced, 0 if meta is None else meta.position)
                joins, deadlines = "" if meta is None else meta.joins, _salvaged_deadlines(source, holes)
                count = _copy(_timed(_salvaged(source, holes), deadlines), rows, position, joins)
                contents = _contents(about, rows, count)
        except RowsError as error:
            shutil.rmtree(draft, ignore_errors=True)
            raise FolderError(path, f"it cannot be repaired: {error}") from error
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        kept = _free_name(path)
        folder.rows.rename(kept)
        draft.rename(folder.rows)
        folder.write(about.after_loss(0 if meta is None else meta.position))
        folder.note.begin(contents.position, logs)
        folder.note.end()
        return Repaired(contents._replace(timeline=folder.about.timeline), kept, len(holes))


def _readable(folder: Folder, scratch: Path) -> StoredRows:
    """Open what is left of the rows of a folder; a copy of it, if RocksDB has to mend it, or find files, first."""
    try:
        rows = StoredRows.to_read(folder.rows, CUT)
        if not gap(rows.logs, folder.note.logs, is_opening=folder.note.is_opening):
            return rows
        rows.close()
    except RowsError:
        pass
    shutil.copytree(folder.rows, scratch, ignore=shutil.ignore_patterns("LOCK"))
    salvage(scratch)
    return StoredRows.to_read(scratch, CUT)


def _salvaged(source: StoredRows, holes: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows that can be read: of each part of the keys from its beginning on, and from its end back."""
    for first, last in source.parts():
        reached = first
        try:
            for key, value in source.between(first, last):
                reached = key + b"\0"
                yield key, value
        except RowsError:
            holes.append(reached)
            with suppress(RowsError):
                for key, value in source.between(reached, last, is_down=True):
                    yield key, value


def _salvaged_deadlines(source: StoredRows, holes: list[bytes]) -> dict[bytes, int]:
    """Return the deadlines that can be read: those of keys before the first damage."""
    found: dict[bytes, int] = {}
    try:
        # When this raises, `found` has the deadlines before the damage.
        found.update(source.deadlines())
    except RowsError:
        holes.append(max(found, default=b""))
    return found


def _free_name(path: Path) -> Path:
    names = ["rows.damaged", *(f"rows.damaged.{number}" for number in range(2, 1000))]
    return next(path / name for name in names if not (path / name).exists())


def _pairs(rows: StoredRows) -> Iterator[tuple[bytes, bytes]]:
    for keys, values in rows.chunks(_ROWS_A_BATCH):
        yield from zip(keys, values, strict=True)


def _timed(pairs: Iterable[tuple[bytes, bytes]], deadlines: Mapping[bytes, int]) -> Iterator[TimedRow]:
    for key, value in pairs:
        yield key, value, deadlines.get(key, 0)


def _copy(found: Iterable[TimedRow], rows: StoredRows, position: int, joins: str | None) -> int:
    """Put rows and their deadlines behind a position; return how many rows."""
    count = 0
    remaining = iter(found)
    while some := list(islice(remaining, _ROWS_A_BATCH)):
        part = {key: value for key, value, _ in some}
        count += len(part)
        # Of a key that is there twice the last row counts.
        last = {key: at_ms for key, _, at_ms in some}
        rows.write(part, position + count, deadlines={key: at_ms for key, at_ms in last.items() if at_ms})
    rows.write({}, position + count, joins)
    return count


def _end(folder: Folder, rows: StoredRows) -> None:
    """Close rows that were written, so that a start finds all of them."""
    rows.sync()
    folder.note.written = folder.note.synced = rows.meta().position
    rows.close()
    folder.note.end()


def _contents(about: About, rows: StoredRows, key_count: int) -> FolderContents:
    meta = rows.meta()
    return FolderContents(about.name, key_count, meta.position, about.timeline, meta.joins.count(";"))
