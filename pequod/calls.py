"""What calls take and give, with a server or without: keys and values, ranges, pages, installed joins.

Nothing here knows of gRPC: `pequod.open` does without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import index
from typing import Final, NamedTuple

from pequod.engine.base.rows import Rows
from pequod.engine.joins.watches import Change
from pequod.engine.shown.statistics import Statistics
from pequod.errors import PequodError
from pequod.language.ranges import Range, within

#: What calls take as keys and values; text goes as UTF-8.
Data = bytes | str
#: What calls take as rows; as columns if there are many.
Writes = Rows | Mapping[str, Data] | Mapping[bytes, Data] | Iterable[tuple[Data, Data]]
Row = tuple[bytes, bytes]
#: What a command gives: rows of a scan, value or None of a get, None of a put, whether a remove found its key, a
#: count; or the error of a command that failed.
Result = Rows | bytes | bool | int | PequodError | None
#: The largest limit that the wire can say; no store holds so many rows.
_LIMIT_MAX: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Join:
    """An installed join."""

    #: Unique on the server.
    name: str
    #: The declaration in canonical form.
    text: str
    #: What is accepted but may surprise.
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BackingStatistics:
    """How the database behind a server is, and what was asked of it since the start."""

    #: write-around or write-through.
    mode: str
    #: Of the feed of changes: starting, ok, down or closed.
    state: str
    #: What is wrong with the feed, or was last; empty if nothing ever was.
    error: str
    #: How far the feed has come, in the database's own unit; None before the first time.
    position: int | None
    #: What the database has beyond that; None if it is not known.
    lag: int | None
    #: How long ago the feed was last known to have told everything; None before the first time.
    age_s: float | None
    #: Ranges that are loaded now.
    loaded_ranges: int
    feed_failures: int
    reloads: int
    #: Loads, the ranges in them, and the rows that came.
    flights: int
    ranges: int
    rows: int
    #: Changes that the feed told, and those of them in loaded ranges.
    changes: int
    changes_applied: int
    writes: int


@dataclass(frozen=True, slots=True)
class ServerStatistics(Statistics):
    """Everything of one server."""

    #: None where no database is behind it.
    backing: BackingStatistics | None


@dataclass(frozen=True, slots=True)
class SavedSnapshot:
    """What a server wrote into its file."""

    #: On the server.
    path: str
    keys: int
    #: Ranges of the database that are loaded, and how many of the keys are in them.
    ranges: int
    backed_keys: int
    file_bytes: int


@dataclass(frozen=True, slots=True)
class RestoredSnapshot:
    """What a server took from its file."""

    path: str
    keys: int
    #: When it was saved, in seconds since 1970.
    saved_s: float


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows of a range, and where to go on."""

    rows: list[Row]
    #: Where the next page begins, for `scan_page`; None after the last row of the range.
    resume_key: bytes | None


class RangeRead(NamedTuple):
    """What a call reads of a range."""

    first: bytes
    last: bytes | None
    limit: int | None
    reverse: bool
    keys_only: bool

    def resumed(self, resume_key: bytes) -> RangeRead:
        """Return what is left of it at the resume key of a page."""
        return self._replace(last=resume_key) if self.reverse else self._replace(first=resume_key)


@dataclass(frozen=True, slots=True)
class BackfillStatus:
    """A backfill and how far it is."""

    #: Random.
    id: int
    join: str
    first: bytes
    last: bytes
    #: How many slots of the output the reads fix that this is for.
    level: int
    #: What is loaded follows from the sources as they were then.
    revision: int
    #: The ranges of source keys that can contribute, in the order of the join's sources.
    sources: tuple[Range, ...]
    ranges_loaded: int
    rows_loaded: int
    #: Pieces that were materialised before they came.
    pieces_skipped: int
    #: Source keys that changed since the revision, and what remembering them takes.
    record_keys: int
    record_bytes: int
    #: What its driver said last: what it is doing, and about how many rows there will be; 0 if it does not know.
    stage: str
    rows_expected: int
    #: Seconds since it began, or that it took if it has ended.
    age_s: float
    #: Seconds until it ends unless its driver is heard of.
    lease_s: float
    #: Why it ended; empty while it goes on.
    ended: str


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """What happened in a watched range up to a revision."""

    #: The range is as of this revision of the server once the event is taken in.
    revision: int
    #: In the order in which they happened.
    changes: list[Change]
    #: In the first event only, and if asked for: the rows of the range at its revision.
    rows: Rows | None = None
    #: Revisions of servers with other numbers do not compare.
    server_id: int = field(default=0, compare=False)


def to_bytes(data: Data) -> bytes:
    """Return keys and values as bytes."""
    if isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode()
    raise TypeError(f"keys and values are bytes or str, not {type(data).__name__}")


def to_limit(limit: int | None) -> int | None:
    """Return a limit as the wire takes it.

    Raises:
        ValueError: It is negative.
    """
    if limit is None:
        return None
    if limit < 0:
        raise ValueError(f"limit is {limit}; it cannot be negative")
    return min(index(limit), _LIMIT_MAX)


def to_part_count(count: int) -> int:
    """Return into how many parts a range is to be cut, as the wire takes it.

    Raises:
        ValueError: It is below 1.
    """
    if count < 1:
        raise ValueError(f"count is {count}; a range has one part at least")
    return min(index(count), _LIMIT_MAX)


def to_page_limit(limit: int | None) -> int | None:
    """Return the limit of a page as the wire takes it.

    Raises:
        ValueError: It is below 1, so that no page would ever get on.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit is {limit}; a page has one row at least")
    return to_limit(limit)


def to_range(first: Data, last: Data | None, prefix: Data = b"") -> tuple[bytes, bytes | None]:
    """Return the part of ``[first, last)`` whose keys start with ``prefix``."""
    start, stop = to_bytes(first), None if last is None else to_bytes(last)
    return within(to_bytes(prefix), start, stop) if prefix else (start, stop)


def to_doomed_range(first: Data | None, last: Data | None, prefix: Data) -> tuple[bytes, bytes | None]:
    """Return the range that is to be removed.

    Raises:
        TypeError: Neither ``first`` nor ``prefix`` says where it begins.
    """
    if first is None and not prefix:
        raise TypeError("name the range by first or prefix; first is b'' for everything")
    return to_range(first or b"", last, prefix)


def to_range_read(
    first: Data,
    last: Data | None,
    *,
    prefix: Data,
    limit: int | None = None,
    reverse: bool = False,
    keys_only: bool = False,
) -> RangeRead:
    """Return the arguments of a read of a range as the wire and the engine take them."""
    start, stop = to_range(first, last, prefix)
    return RangeRead(start, stop, to_limit(limit), reverse, keys_only)


def to_columns(rows: Writes) -> tuple[list[bytes], list[bytes]]:
    """Return rows as keys and values."""
    if isinstance(rows, Rows):
        return rows.keys, rows.values
    pairs: Iterable[tuple[Data, Data]] = rows.items() if isinstance(rows, Mapping) else rows
    keys, values = [], []
    for key, value in pairs:
        keys.append(to_bytes(key))
        values.append(to_bytes(value))
    return keys, values
