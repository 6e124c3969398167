"""How fresh an answer has to be, and tokens: the names of the states that answered.

    token   01 | 9f3a61c2 01 a5b4d803 | ...       version, then for each mark: database, timeline, position
    text    pq1.AZ86YcIBpbTYAw                     the same bytes for people

A *mark* names a database and its timeline, or a server without a database; a *position* is a place in its log. Clients
take tokens as they are: from a reply, and to the next read.

>>> mark = Mark(database_of("sqlite", "twip"), 1)
>>> token = Token({mark: 17})
>>> Token.parse(str(token)) == token
True
>>> token.merged(Token({mark: 12})) == token
True
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from pequod.errors import InvalidTokenError

#: The longest time that a read waits for its level, unless it says otherwise.
WAIT_S: Final = 1.0
#: A token of a session has an entry for each database, and one more for each failover that it went through.
TOKEN_BYTES_MAX: Final = 1024

_VERSION: Final = 1
_PREFIX: Final = "pq1."
_DATABASE_BYTES: Final = 4
_POSITION_MAX: Final = (1 << 64) - 1
#: The timeline of servers without a database, whose positions are revisions. Those of databases begin at 1.
NO_TIMELINE: Final = 0


class Mark(NamedTuple):
    """The history that positions belong to."""

    #: The beginning of a hash, see `database_of`.
    database: bytes
    #: Counts the failovers of the database; `NO_TIMELINE` for a server without a database.
    timeline: int


def database_of(kind: str, *names: object) -> bytes:
    """Return what names a database in a mark.

    Args:
        kind: postgresql, sqlite or server.
        names: What tells it from the others of its kind.
    """
    return hashlib.sha256("\0".join([kind, *map(str, names)]).encode()).digest()[:_DATABASE_BYTES]


@dataclass(frozen=True, slots=True)
class Token:
    """The state of one database or of several, as far as a reply or a session knows it.

    Shape:
        As bytes, the version, and for each mark, in ascending order, four bytes of the database, then timeline and
        position as varints: 12 to 14 bytes for one PostgreSQL.
    """

    #: How far each history has come.
    positions: Mapping[Mark, int]

    def __hash__(self) -> int:
        return hash(frozenset(self.positions.items()))

    def __bytes__(self) -> bytes:
        """Return the token as it is in messages."""
        entries = sorted(self.positions.items())
        return bytes([_VERSION]) + b"".join(
            mark.database + varint(mark.timeline) + varint(position) for mark, position in entries
        )

    def __str__(self) -> str:
        """Return the token as text, of characters that URLs, cookies and command lines take as they are."""
        return _text_of(bytes(self))

    @staticmethod
    def parse(token: bytes | str) -> Token:
        """Return the token that bytes or a text show.

        Raises:
            InvalidTokenError: They show none.
        """
        return _parsed(token)

    def has(self, other: Token) -> bool:
        """Return whether this state has everything that the other one has."""
        return all(self.positions.get(mark, -1) >= position for mark, position in other.positions.items())

    def merged(self, other: Token) -> Token:
        """Return the token of a state that has what both have."""
        if self.positions == other.positions:
            return self
        merged = dict(self.positions)
        for mark, position in other.positions.items():
            merged[mark] = max(position, merged.get(mark, 0))
        return Token(merged)


#: What `postgres_token` and `sqlite_token` need to know. PostgreSQL answers it on a primary alone; the position is not
#: before the commits that were answered. Where commits do not wait for the log, that is the end of what is still to be
#: flushed.
POSTGRES_STATE: Final = """
SELECT system_identifier, current_database()::text AS name,
       ('x' || left(pg_walfile_name(at), 8))::bit(32)::int AS timeline, (at - '0/0')::bigint AS position
FROM pg_control_system(), (
    SELECT CASE current_setting('synchronous_commit')
           WHEN 'off' THEN pg_current_wal_insert_lsn() ELSE pg_current_wal_flush_lsn() END
) AS log (at)
"""
SQLITE_STATE: Final = """
SELECT (SELECT seq FROM sqlite_sequence WHERE name = 'pequod_database') AS id,
       (SELECT seq FROM sqlite_sequence WHERE name = 'pequod_changes') AS position
"""


def postgres_token(system_identifier: int, name: str, timeline: int, position: int) -> Token:
    """Return the token of a state of a PostgreSQL, from a row of `POSTGRES_STATE`."""
    return Token({Mark(database_of("postgresql", system_identifier, name), timeline): position})


def sqlite_token(file_id: int, position: int | None) -> Token:
    """Return the token of a state of an SQLite database, from a row of `SQLITE_STATE`."""
    return Token({Mark(database_of("sqlite", file_id), 1): position or 0})


#: Demands nothing.
NO_TOKEN: Final = Token({})


@lru_cache(maxsize=64)
def merged(*tokens: bytes) -> bytes:
    """Return the token of what all of these name; those that are empty say nothing."""
    found = NO_TOKEN
    for token in tokens:
        if token:
            found = found.merged(Token.parse(token))
    return bytes(found) if found.positions else b""


# Servers get the same tokens again and again.
@lru_cache(maxsize=1024)
def _parsed(token: bytes | str) -> Token:
    data = _bytes_of(token) if isinstance(token, str) else token
    if len(data) > TOKEN_BYTES_MAX:
        raise InvalidTokenError(f"it has {len(data)} bytes, and tokens have {TOKEN_BYTES_MAX} at most")
    if not data or data[0] != _VERSION:
        raise InvalidTokenError("it is not of a version that is known here" if data else "it is empty")
    positions: dict[Mark, int] = {}
    at = 1
    while at < len(data):
        database = data[at : at + _DATABASE_BYTES]
        timeline, at = _read_varint(data, at + _DATABASE_BYTES)
        position, at = _read_varint(data, at)
        positions[Mark(database, timeline)] = position
    parsed = Token(positions)
    if bytes(parsed) != data:
        raise InvalidTokenError("its parts are not in the order in which tokens have them")
    return parsed


def _text_of(data: bytes) -> str:
    return _PREFIX + base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes_of(text: str) -> bytes:
    if not text.startswith(_PREFIX):
        raise InvalidTokenError(f"tokens start with {_PREFIX}")
    encoded = text.removeprefix(_PREFIX)
    try:
        data = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        data = b""
    if _text_of(data) != text:
        raise InvalidTokenError("it has characters that tokens do not have, or its end is missing")
    return data


def varint(number: int) -> bytes:
    """Return a number as protobuf's messages, and tokens, have it."""
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number > _POSITION_MAX:
                break
            return number, at
        shift += 7
        if shift > 63:
            break
    raise InvalidTokenError("its end is missing, or a number in it is too large")


@dataclass(frozen=True, slots=True)
class AnyState:
    """What is there, unless the operator's settings bound its age."""

    wait_s: float = WAIT_S


@dataclass(frozen=True, slots=True)
class After:
    """At least the state that a token names."""

    token: Token
    wait_s: float = WAIT_S


@dataclass(frozen=True, slots=True)
class Latest:
    """At least everything that was committed when the read began."""

    wait_s: float = WAIT_S


@dataclass(frozen=True, slots=True)
class MaxAge:
    """Everything that was committed longer ago than this."""

    age_s: float
    wait_s: float = WAIT_S


#: How fresh an answer has to be, and how long the read waits for it at most.
Freshness = AnyState | After | Latest | MaxAge

ANY: Final = AnyState()
LATEST: Final = Latest()


def after(token: Token | bytes | str, *, wait_s: float = WAIT_S) -> After:
    """Ask for at least the state of a token.

    Raises:
        InvalidTokenError: It is no token.
    """
    return After(token if isinstance(token, Token) else Token.parse(token), wait_s)


def max_age(age_s: float, *, wait_s: float = WAIT_S) -> MaxAge:
    """Ask for a state that lacks nothing that was committed longer ago than ``age_s``.

    Raises:
        ValueError: It is negative.
    """
    if not age_s >= 0:
        raise ValueError(f"age_s is {age_s}; an age cannot be negative")
    return MaxAge(age_s, wait_s)
