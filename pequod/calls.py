"""The values that calls take and return, with a server or without: keys, values, ranges, pages, installed joins.

Nothing here knows of gRPC: `pequod.open` does without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from operator import index
from typing import Final, NamedTuple

from pequod.answers.changes import Change
from pequod.answers.heat import HeatStatistics
from pequod.answers.rows import Rows
from pequod.answers.statistics import Statistics
from pequod.errors import PequodError
from pequod.freshness import NO_TOKEN, Freshness, Token
from pequod.language.conditions import Met, Unmet
from pequod.language.ranges import Range, within

#: Keys and values as arguments; text is encoded as UTF-8.
Data = bytes | str
#: Rows as arguments; as columns if there are many.
Writes = Rows | Mapping[str, Data] | Mapping[bytes, Data] | Iterable[tuple[Data, Data]]
Row = tuple[bytes, bytes]
#: The result of a command: rows of a scan, value or None of a get, None of a put, whether a remove found its key, a
#: count, the seconds that a key has left (infinity without a deadline, None if the key is absent), what came of a
#: condition; or the error of a command that failed.
Result = Rows | bytes | bool | int | float | Met | Unmet | PequodError | None
#: A number that is to be added, or its digits.
Delta = int | Decimal | Data
#: A token as an argument: as replies have it, as bytes, or as text.
AnyToken = Token | bytes | str
#: The largest limit on the wire; no store holds as many rows.
_LIMIT_MAX: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class BackingStatistics:
    """The state of a database behind a server, and the counts of its use since the start."""

    #: write-around or write-through.
    mode: str
    #: Of the feed of changes: starting, ok, down or closed.
    state: str
    #: The present or last error of the feed; empty if there was none.
    error: str
    #: The position of the feed, in the database's own unit; None before the first.
    position: int | None
    #: How far the database is beyond that; None if it is not known.
    lag: int | None
    #: The time since the feed was last known to be complete; None before the first time.
    age_s: float | None
    #: Ranges that are loaded now.
    loaded_ranges: int
    feed_failures: int
    reloads: int
    #: Loads, the ranges in them, and the rows that came.
    flights: int
    ranges: int
    rows: int
    #: Changes that the feed delivered, and those of them in loaded ranges.
    changes: int
    changes_applied: int
    writes: int
    #: Tells it from the other databases behind the server; empty for the only one.
    name: str = ""


@dataclass(frozen=True, slots=True)
class PeerStatistics:
    """A compute that follows the base data of a server, and the counts of its feed."""

    #: Its id in the cluster; empty outside of one.
    id: str
    address: str
    #: Events that it was not told yet.
    lag_events: int
    messages: int
    changes: int
    #: Of keys and values.
    bytes: int
    #: Times that it was told to read ranges again.
    reloads: int
    #: Ranges that it is subscribed to; those that touch are one. None: the server does not say.
    subscriptions: int | None = None


@dataclass(frozen=True, slots=True)
class ServerStatistics(Statistics):
    """Everything of one server."""

    #: Those behind the server.
    databases: tuple[BackingStatistics, ...]
    #: Computes that follow its base data, and the bounds of the ranges that they are subscribed to.
    peers: tuple[PeerStatistics, ...] = ()
    subscription_bounds: int = 0
    #: Of the server's program; empty if the server does not say it.
    version: str = ""
    #: Which keys its processor time goes to.
    heat: HeatStatistics = field(default_factory=HeatStatistics)

    @property
    def backing(self) -> BackingStatistics | None:
        """The first of ``databases``; None if there is none."""
        return self.databases[0] if self.databases else None


@dataclass(frozen=True, slots=True)
class SavedSnapshot:
    """The result of saving a snapshot."""

    #: The path of the file on the server.
    path: str
    keys: int
    #: Loaded ranges of the database, and how many of the keys are in them.
    ranges: int
    backed_keys: int
    file_bytes: int


@dataclass(frozen=True, slots=True)
class RestoredSnapshot:
    """The result of restoring a snapshot."""

    path: str
    keys: int
    #: When it was saved, in seconds since 1970.
    saved_s: float


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows of a range, and the place of the next ones."""

    rows: list[Row]
    #: The first key of the next page, for `scan_page`; None after the last row of the range.
    resume_key: bytes | None


class RangeRead(NamedTuple):
    """The range and the limit of a read, as a call takes them."""

    first: bytes
    last: bytes | None
    limit: int | None
    reverse: bool
    keys_only: bool
    #: None if the caller does not say it.
    freshness: Freshness | None = None

    def resumed(self, resume_key: bytes) -> RangeRead:
        """Return the rest of the read, from the resume key of a page on."""
        return self._replace(last=resume_key) if self.reverse else self._replace(first=resume_key)


@dataclass(frozen=True, slots=True)
class BackfillStatus:
    """A backfill and its progress."""

    #: Random.
    id: int
    join: str
    first: bytes
    last: bytes
    #: The number of the output's slots that a context fixes.
    level: int
    #: The loaded rows follow from the sources as they were at this revision.
    revision: int
    #: The ranges of source keys that can contribute, in the order of the join's sources.
    sources: tuple[Range, ...]
    ranges_loaded: int
    rows_loaded: int
    #: Pieces that were materialised before they came.
    pieces_skipped: int
    #: Source keys that changed since the revision, and the memory for their old values.
    record_keys: int
    record_bytes: int
    #: What its driver reported last: its present step, and the approximate number of rows; 0 if it does not know.
    stage: str
    rows_expected: int
    #: Seconds since it began, or that it took if it has ended.
    age_s: float
    #: Seconds until it ends unless its driver renews it.
    lease_s: float
    #: The reason for its end; empty while it runs.
    ended: str
    #: The state of the databases at the revision; only where it was begun, and if there are databases.
    token: Token = field(default=NO_TOKEN, compare=False)


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """The changes of a watched range up to a revision."""

    #: With this event's changes, the range is as of this revision of the server.
    revision: int
    #: In the order in which they happened.
    changes: list[Change]
    #: In the first event only, and if asked for: the rows of the range at the event's revision.
    rows: Rows | None = None
    #: Revisions of servers with other ids cannot be compared.
    server_id: int = field(default=0, compare=False)
    #: The state that the event shows, and how old it was at most; None if that is not known.
    token: Token = field(default=NO_TOKEN, compare=False)
    age_s: float | None = field(default=None, compare=False)
    #: In the first event only: names of the data that the server shows. Each database has one, on every server and
    #: after a failover; data in memory have one for as long as they live. None if the server does not know them yet.
    origins: tuple[bytes, ...] = field(default=(), compare=False)


class Results(list[Result]):
    """The results of a batch, in the order of its commands, and the state that answered."""

    __slots__ = ("_token", "age_s", "revision", "server_id")

    def __init__(
        self,
        results: Iterable[Result] = (),
        token: bytes = b"",
        age_ms: int | None = None,
        server_id: int = 0,
        revision: int = 0,
    ) -> None:
        super().__init__(results)
        self._token = token
        #: How old the state was at most, None if that is not known.
        self.age_s = to_age_s(age_ms)
        #: The server that answered, and its revision afterwards. Both are 0 if several servers of a cluster answered
        #: parts of the batch: each part is of a revision of its own.
        self.server_id = server_id
        self.revision = revision

    @property
    def token(self) -> Token:
        """The state that answered, with the writes of the batch."""
        return token_of_reply(self._token)


def token_of_reply(token: bytes) -> Token:
    """Return the token in a reply, the empty one if it has none."""
    return Token.parse(token) if token else NO_TOKEN


def to_age_s(age_ms: int | None) -> float | None:
    """Return the age in a reply in seconds, None if it has none."""
    return None if age_ms is None else age_ms / 1000


def to_token(token: AnyToken | None) -> Token:
    """Return a token that is an argument, the empty one for None.

    Raises:
        InvalidTokenError: It is no token.
    """
    if token is None:
        return NO_TOKEN
    return token if isinstance(token, Token) else Token.parse(token)


def to_bytes(data: Data) -> bytes:
    """Return keys and values as bytes.

    Raises:
        TypeError: It is neither bytes nor text.
    """
    if isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode()
    raise TypeError(f"keys and values are bytes or str, not {_kind_of(data)}")


def _kind_of(other: object) -> str:
    return type(other).__name__ if other is not None else "None; `remove` takes a key away"


def to_delta(delta: Delta) -> bytes:
    """Return a number that is to be added as its digits; what is given as text goes to the server as it is.

    A float is refused, since few floats are the decimals that their writers mean.
    """
    if isinstance(delta, int | Decimal) and not isinstance(delta, bool):
        return f"{delta:f}".encode() if isinstance(delta, Decimal) else b"%d" % delta
    if isinstance(delta, bytes | str):
        return to_bytes(delta)
    raise TypeError(f"what is added is an int, a Decimal, or text such as '0.5', not {type(delta).__name__}")


def to_limit(limit: int | None) -> int | None:
    """Return a limit as the wire has it.

    Raises:
        ValueError: It is negative.
    """
    if limit is None:
        return None
    if limit < 0:
        raise ValueError(f"limit is {limit}; it cannot be negative")
    return min(index(limit), _LIMIT_MAX)


def to_part_count(count: int) -> int:
    """Return the number of parts of a range, as the wire has it.

    Raises:
        ValueError: It is below 1.
    """
    if count < 1:
        raise ValueError(f"count is {count}; a range has one part at least")
    return min(index(count), _LIMIT_MAX)


def to_page_limit(limit: int | None) -> int | None:
    """Return the limit of a page as the wire has it.

    Raises:
        ValueError: It is below 1, so that paging would never end.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit is {limit}; a page has one row at least")
    return to_limit(limit)


def to_range(first: Data, last: Data | None, prefix: Data = b"") -> tuple[bytes, bytes | None]:
    """Return the part of ``[first, last)`` whose keys start with ``prefix``."""
    start, stop = to_bytes(first), None if last is None else to_bytes(last)
    return within(to_bytes(prefix), start, stop) if prefix else (start, stop)


def to_doomed_range(first: Data | None, last: Data | None, prefix: Data) -> tuple[bytes, bytes | None]:
    """Return the range to remove.

    Raises:
        TypeError: Neither ``first`` nor ``prefix`` gives its beginning.
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
    freshness: Freshness | None = None,
) -> RangeRead:
    """Return the arguments of a read of a range as the wire and the engine have them."""
    start, stop = to_range(first, last, prefix)
    return RangeRead(start, stop, to_limit(limit), reverse, keys_only, freshness)


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
