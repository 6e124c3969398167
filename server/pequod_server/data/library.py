"""RocksDB as it is used here: how it is opened, and what it says of errors."""

from __future__ import annotations

from types import TracebackType
from typing import Final, NamedTuple

from rocksdict import BlockBasedOptions, Cache, DBCompressionType, DBRecoveryMode, Options, ReadOptions

from pequod_server.setting_kinds import MIB

#: The most for the latest changes that RocksDB keeps in memory, beside its log. There may be two such buffers.
BUFFER_BYTES: Final = 16 * MIB
_BUFFER_BYTES_MIN: Final = 1 * MIB
#: No more of them have rows that are in no file: `gaps.gap` relies on it.
_BUFFERS: Final = 2
#: For blocks of files that were just read. Where all rows are in the engine, the least of them does.
_CACHE_BYTES: Final = 4 * MIB
_CACHE_BYTES_MAX: Final = 128 * MIB
#: Which part of a process's memory each of these is.
_SHARE: Final = 64
#: A file is written anew if 2048 of 4096 entries in a row, or half of all, say that a row is gone.
_GONE: Final = (4096, 2048, 0.5)
#: The list of files and what RocksDB tells of itself (LOG) grow with each file that it makes: beyond this size they are
#: begun anew, and the older ones go. Of the latter there are two. Tests make them small.
LIST_BYTES_MAX: Final = 4 * MIB
TOLD_BYTES_MAX: Final = 1 * MIB
#: A scan of all rows reads this part of a file at a time.
_AHEAD_BYTES: Final = 2 * MIB

#: How a log is read that does not end in order: not at all; up to a record at its end that is not whole; up to the
#: first record that is not right.
WHOLE: Final = DBRecoveryMode.absolute_consistency()
TORN: Final = DBRecoveryMode.tolerate_corrupted_tail_records()
CUT: Final = DBRecoveryMode.point_in_time()


class Caches(NamedTuple):
    """The memory that RocksDB takes of its process."""

    buffer_bytes: int = BUFFER_BYTES
    cache_bytes: int = _CACHE_BYTES


class Meta(NamedTuple):
    """Position and joins, which are beside the rows."""

    position: int
    joins: str


class Logs(NamedTuple):
    """Where the logs of rows begin."""

    #: The number of the first log whose rows are in no file, as the list of files says.
    asked: int
    #: The number of the first log that is there from that number on; 0: none is.
    first: int


class Piece(NamedTuple):
    """Some rows of a range."""

    keys: list[bytes]
    values: list[bytes]
    #: Whether the range has no more.
    is_end: bool


#: Where all rows are in the engine.
SMALL: Final = Caches()


def caches_within(limit_bytes: int) -> Caches:
    """Return what RocksDB may take of a process of this size."""
    share_bytes = limit_bytes // _SHARE
    return Caches(
        min(max(share_bytes, _BUFFER_BYTES_MIN), BUFFER_BYTES), min(max(share_bytes, _CACHE_BYTES), _CACHE_BYTES_MAX)
    )


class RowsError(Exception):
    """RocksDB says that something is wrong."""

    @property
    def is_full(self) -> bool:
        """Whether there is no room on the disk."""
        return "No space left on device" in str(self) or "Writer has previous error" in str(self)

    @property
    def is_damage(self) -> bool:
        """Whether a file is not as it was written."""
        return not str(self).startswith("IO error") or "No such file" in str(self)


def ahead() -> ReadOptions:
    """Return how all rows are read."""
    how = ReadOptions()
    how.set_readahead_size(_AHEAD_BYTES)
    return how


def options(recovery: DBRecoveryMode, caches: Caches) -> Options:
    """Return how rows are opened."""
    how = Options(raw_mode=True)
    how.create_if_missing(True)  # noqa: FBT003 - as the library has it, also below
    how.set_wal_recovery_mode(recovery)
    how.set_write_buffer_size(caches.buffer_bytes)
    how.set_max_write_buffer_number(_BUFFERS)
    how.set_compression_type(DBCompressionType.lz4())
    how.set_max_background_jobs(2)
    how.set_max_manifest_file_size(LIST_BYTES_MAX)
    how.set_max_log_file_size(TOLD_BYTES_MAX)
    how.set_keep_log_file_num(2)
    # A range of removed rows gives its room back though nobody writes other rows there.
    how.add_compact_on_deletion_collector_factory(*_GONE)
    how.set_stats_dump_period_sec(0)
    how.set_stats_persist_period_sec(0)
    table = BlockBasedOptions()
    table.set_block_cache(Cache(caches.cache_bytes))
    how.set_block_based_table_factory(table)
    return how


class said:  # noqa: N801 - it reads as a statement
    """Raises errors of the library as `RowsError`: it has no classes of its own."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        # A panic of the library is no Exception.
        if error is not None and type(error).__name__ in ("Exception", "DbClosedError", "PanicException"):
            raise RowsError(str(error)) from error
