"""The file of a snapshot: base rows, and what the loaded ranges among them are worth.

    gzip( length block | length block | ... )       head   rows   rows ...   end

gzip's checksum covers everything, and the end says how many rows there are. A file is read to its end before anything
of it is used. It is written beside its place and renamed, so that there is always a whole one. The unfinished file has
one name, which a lock guards: what a killed save leaves goes at the next start or save.
"""

from __future__ import annotations

import fcntl
import gzip
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from google.protobuf.message import DecodeError
from pequod_installed.names import version
from pequod_proto import pequod_pb2 as pb

from pequod.engine import Range, Rows
from pequod.errors import SnapshotError
from pequod_server.snapshots.slices import Deadline, Slice, in_slices

_FORMAT: Final = "pequod snapshot"
#: With one database, and with several.
_VERSION: Final = 1
_VERSION_OF_MANY: Final = 2
#: With deadlines of keys, which earlier servers would not heed.
_VERSION_OF_DEADLINES: Final = 3
_LENGTH: Final = struct.Struct(">I")
#: More than rows of the largest settings make; a length beyond it is no length.
_BLOCK_BYTES_MAX: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class BackedPart:
    """The loaded ranges of a database, and the position as of which they are loaded."""

    #: Of the database.
    name: str
    #: All that the database did up to here is in the rows of the ranges; some of what it did later may be.
    position: int
    mapping: str
    mark: str
    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class SnapshotContent:
    """The content of a file."""

    #: When it was saved, in seconds since 1970.
    saved_s: float
    #: Base rows in key order, those of the ranges among them.
    rows: Rows
    backed: tuple[BackedPart, ...]
    #: Names the data in memory; 0: an earlier version wrote the file.
    origin: int
    #: Of some of the keys.
    deadlines: tuple[Deadline, ...] = ()


def write_snapshot(
    path: Path, rows: Rows, backed: Sequence[BackedPart], origin: int = 0, deadlines: Sequence[Deadline] = ()
) -> int:
    """Write a snapshot in the place of the present one, and return how large the file is.

    Raises:
        SnapshotError: It cannot be written; the present one stays.
    """
    slices = in_slices(rows, [*deadlines])
    return write_slices(path, slices, backed, origin, has_deadlines=bool(deadlines)).file_bytes


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """The size of a file that is written."""

    key_count: int
    file_bytes: int


def write_slices(
    path: Path,
    slices: Iterable[Slice],
    backed: Sequence[BackedPart],
    origin: int,
    *,
    has_deadlines: bool,
    is_stopped: Callable[[], bool] = bool,
) -> WrittenFile:
    """Write a snapshot of rows in key order, in the place of the present one.

    Args:
        has_deadlines: Whether any of the rows may have one.
        is_stopped: Whether the writing is to end; it is asked again and again.

    Raises:
        SnapshotError: It cannot be written, or was stopped; the present one stays, and nothing is left of this one.
    """
    try:
        return _write(path, _blocks(slices, backed, origin, has_deadlines=has_deadlines), is_stopped)
    except OSError as error:
        raise SnapshotError(str(path), f"it cannot be written: {error.strerror}") from error


def try_place(path: Path) -> None:
    """See whether a snapshot could be written, and remove what a save left that was killed.

    Raises:
        SnapshotError: It could not.
    """
    try:
        with _unfinished(path) as file:
            file.write(_FORMAT.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise SnapshotError(str(path), f"no snapshot could be written there: {error.strerror}") from error


def unfinished_of(path: Path) -> Path:
    """Return the file that has a snapshot while it is written."""
    return path.with_name(f".{path.name}.unfinished")


@contextmanager
def _unfinished(path: Path) -> Iterator[BinaryIO]:
    """Open the file beside the place, alone among all processes; it is gone at the end, unless it was renamed.

    Raises:
        SnapshotError: Another process writes it.
    """
    name = unfinished_of(path)
    # Not `O_TRUNC`: the file may be that of another process until the lock says that it is not.
    handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        # Another process may have renamed the file before this one had the lock: it is the snapshot now.
        if not _is_locked(file) or not _is_at(file, name):
            raise SnapshotError(str(path), "another process writes it; give each server a file of its own")
        try:
            file.truncate()
            yield file
        finally:
            if _is_at(file, name):
                name.unlink()


def _is_locked(file: BinaryIO) -> bool:
    """Lock a file until it is closed; return False if another process has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(file: BinaryIO, name: Path) -> bool:
    return name.exists() and os.path.samestat(name.stat(), os.fstat(file.fileno()))


def _write(path: Path, blocks: Iterator[pb.SnapshotBlock], is_stopped: Callable[[], bool]) -> WrittenFile:
    key_count = 0
    with _unfinished(path) as file:
        # Level 1 makes keys of one prefix small as well, five times as fast as the default.
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=1) as stream:
            for block in blocks:
                if is_stopped():
                    raise SnapshotError(str(path), "it is not finished: it was stopped while it was written")
                key_count += len(block.keys)
                data = block.SerializeToString()
                stream.write(_LENGTH.pack(len(data)) + data)
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
        unfinished_of(path).replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return WrittenFile(key_count, size)


def _blocks(
    slices: Iterable[Slice], backed: Sequence[BackedPart], origin: int, *, has_deadlines: bool
) -> Iterator[pb.SnapshotBlock]:
    number = _VERSION_OF_DEADLINES if has_deadlines else _VERSION if len(backed) < 2 else _VERSION_OF_MANY
    head = pb.SnapshotHead(format=_FORMAT, version=number, saved_s=time.time(), server=version())
    head.origin = origin
    for part in backed:
        head.backing.add(
            name=part.name,
            position=part.position,
            mapping=part.mapping,
            mark=part.mark,
            firsts=[one.first for one in part.ranges],
            lasts=[one.last for one in part.ranges],
        )
    yield pb.SnapshotBlock(head=head)
    key_count = 0
    for one in slices:
        block = pb.SnapshotBlock(keys=one.rows.keys, values=one.rows.values)
        if one.deadlines:
            deadlines = dict(one.deadlines)
            block.deadlines.extend(deadlines.get(key, 0) for key in one.rows.keys)
        key_count += len(one.rows.keys)
        yield block
    yield pb.SnapshotBlock(end=pb.SnapshotEnd(keys=key_count))


def read_snapshot(path: Path) -> SnapshotContent:
    """Read a whole file.

    Raises:
        SnapshotError: It is no snapshot, or damaged, or cannot be read.
    """
    try:
        with path.open("rb") as file:
            return _parse(path, file)
    except gzip.BadGzipFile as error:
        raise SnapshotError(str(path), f"it is no snapshot, or damaged ({error})") from error
    except (EOFError, ValueError, zlib.error, DecodeError) as error:
        raise SnapshotError(str(path), f"it is damaged ({error})") from error
    except OSError as error:
        raise SnapshotError(str(path), f"it cannot be read ({error.strerror})") from error


def _parse(path: Path, file: BinaryIO) -> SnapshotContent:
    keys: list[bytes] = []
    values: list[bytes] = []
    deadlines: list[Deadline] = []
    with gzip.GzipFile(fileobj=file, mode="rb") as stream:
        head = _first_block(path, stream).head
        if head.format != _FORMAT:
            raise SnapshotError(str(path), "it is no snapshot of Pequod")
        if not _VERSION <= head.version <= _VERSION_OF_DEADLINES:
            known = f"this server knows {_VERSION_OF_DEADLINES}"
            raise SnapshotError(str(path), f"it is of version {head.version} of the format, and {known}")
        while (block := _block(path, stream)) is not None:
            if block.HasField("end"):
                break
            keys += block.keys
            values += block.values
            if block.deadlines:
                deadlines += [pair for pair in zip(block.keys, block.deadlines, strict=True) if pair[1]]
        # To the end of the file, where the checksum is.
        if block is None or stream.read(1) or block.end.keys != len(keys) or len(keys) != len(values):
            raise SnapshotError(str(path), "it is damaged (it does not end where it should)")
    return SnapshotContent(head.saved_s, Rows(keys, values), _backed(head), head.origin, tuple(deadlines))


def _first_block(path: Path, stream: gzip.GzipFile) -> pb.SnapshotBlock:
    try:
        block = _block(path, stream)
    except (DecodeError, EOFError) as error:
        raise SnapshotError(str(path), "it is no snapshot of Pequod") from error
    return block or pb.SnapshotBlock()


def _block(path: Path, stream: gzip.GzipFile) -> pb.SnapshotBlock | None:
    prefix = stream.read(_LENGTH.size)
    if not prefix:
        return None
    if len(prefix) < _LENGTH.size:
        raise EOFError("it ends in the middle of a block")
    (length,) = _LENGTH.unpack(prefix)
    if length > _BLOCK_BYTES_MAX:
        raise SnapshotError(str(path), "it is no snapshot of Pequod, or damaged (a block is impossibly long)")
    data = stream.read(length)
    if len(data) < length:
        raise EOFError("it ends in the middle of a block")
    return pb.SnapshotBlock.FromString(data)


def _backed(head: pb.SnapshotHead) -> tuple[BackedPart, ...]:
    parts = []
    for part in head.backing:
        ranges: Sequence[Range] = [Range(*pair) for pair in zip(part.firsts, part.lasts, strict=True)]
        parts.append(BackedPart(part.name, part.position, part.mapping, part.mark, tuple(ranges)))
    return tuple(parts)
