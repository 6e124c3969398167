"""Replicas by name: one that is named twice would be a majority by itself, and a majority is what everything rests on.

>>> replica_of("redis://:secret@Host/0"), shown("redis://:secret@Host/0")
(('redis', 'host', '6379', '0'), 'redis://Host/0')
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import parse_qs, urlsplit

from pequod.errors import PequodError, SettingError

#: What two names of one replica have in common.
ReplicaId: TypeAlias = tuple[str, ...]

SQLITE: Final = "sqlite:"
REDIS: Final = ("redis://", "rediss://", "unix://")
CASSANDRA: Final = "cassandra://"
_REDIS_PORT: Final = 6379


class ReplicaRefusedError(PequodError):
    """A replica cannot be one: it is there twice, or is no replica at all. Nothing was written."""

    def __init__(self, replica: str, reason: str) -> None:
        super().__init__(f"{replica}: {reason}")
        self.replica = replica
        self.reason = reason


def shown(replica: str) -> str:
    """Return the name of a replica for messages, without its password."""
    scheme, separator, rest = replica.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if separator else replica


def replica_of(replica: str) -> ReplicaId:
    """Return which replica a name means, as far as the name says it.

    Raises:
        ReplicaRefusedError: The name is malformed.
    """
    if replica.startswith(SQLITE):
        path = replica.removeprefix(SQLITE)
        if not path:
            raise ReplicaRefusedError(replica, "it is sqlite: and the path of a file")
        return file_of(Path(path))
    try:
        parts = urlsplit(replica)
        port = str(parts.port or _REDIS_PORT)
    except ValueError as error:
        raise ReplicaRefusedError(shown(replica), str(error)) from error
    path, asked = parts.path, parse_qs(parts.query).get("db", [])
    if parts.scheme == "unix":
        if not path:
            raise ReplicaRefusedError(shown(replica), "it is unix:// and the path of a socket")
        return "unix", os.path.realpath(path), (asked or ["0"])[-1]
    if not parts.hostname:
        raise ReplicaRefusedError(shown(replica), f"it is {parts.scheme}:// and a host")
    database = asked[-1] if asked else path.strip("/") or "0"
    if not (database.isascii() and database.isdigit()):
        raise ReplicaRefusedError(shown(replica), f"a database of Redis has a number, not {database!r}")
    return "redis", parts.hostname.lower(), port, str(int(database))


def file_of(path: Path) -> ReplicaId:
    """Return which file a path means: links to one file are the same."""
    try:
        found = path.stat()
    except OSError:
        return "file", os.path.realpath(path)
    return "file", str(found.st_dev), str(found.st_ino)


def refuse_twice(ids: Sequence[ReplicaId], names: Sequence[str]) -> None:
    """Pass if all replicas are different ones.

    Raises:
        ReplicaRefusedError: One has two names, or one name twice.
    """
    if not ids:
        return
    found, count = Counter(ids).most_common(1)[0]
    if count > 1:
        same = [shown(name) for one, name in zip(ids, names, strict=True) if one == found]
        raise ReplicaRefusedError(", ".join(dict.fromkeys(same)), f"it is one replica, and counts as {count}")


def refuse_duration(setting: str, value_s: float, *, least_s: float = 0.0) -> None:
    """Pass if a duration is a finite number of seconds that is not below another.

    Raises:
        SettingError: It is not.
    """
    if not (math.isfinite(value_s) and value_s >= least_s):
        raise SettingError(setting, f"it is a number of seconds from {least_s:g} on, not {value_s!r}")
