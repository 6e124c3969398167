"""The file that says which versioned views there are, and where their store is."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from pequod.errors import PequodError
from pequod_views.versioned.cassandra_address import CassandraAddress
from pequod_views.versioned.conditions import ColumnCondition, ConditionRefusedError
from pequod_views.versioned.groups import AggregateRefusedError, GroupAggregate, GroupView
from pequod_views.versioned.leases import LEASE_S_MIN, SHARES_MAX, ShareLeases
from pequod_views.versioned.records import RecordStore
from pequod_views.versioned.replicas import (
    CASSANDRA,
    REDIS,
    SQLITE,
    ReplicaRefusedError,
    refuse_twice,
    replica_of,
    shown,
)
from pequod_views.versioned.rows import NameRefusedError, VersionedView, check_views

#: The store's.
StoreKind: TypeAlias = Literal["sqlite", "redis", "cassandra"]
#: A record whose holder died waits for so long.
_LEASE_S_MAX: Final = 3600.0
_FILE: Final = {"replicas", "lease_s", "share_count", "view"}
_VIEW: Final = {"name", "base", "key", "columns", "where"}
_GROUPS: Final = {"name", "base", "key", "where", "aggregates", "by"}


class VersionedFileError(PequodError):
    """A file of versioned views says something that cannot be."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.where = where
        self.reason = reason


@dataclass(frozen=True, slots=True)
class VersionedFile:
    """Versioned views over one store."""

    replicas: tuple[str, ...]
    #: Those of groups with the rows that they are computed from.
    views: tuple[VersionedView, ...]
    groups: tuple[GroupView, ...]
    lease_s: float
    share_count: int

    @property
    def kind(self) -> StoreKind:
        """What the replicas are."""
        if self.replicas[0].startswith(CASSANDRA):
            return "cassandra"
        return "sqlite" if self.replicas[0].startswith(SQLITE) else "redis"

    def leases(self, store: RecordStore) -> ShareLeases:
        """Return the leases of this process."""
        return ShareLeases(store, share_count=self.share_count, lease_s=self.lease_s)


def parse_versioned(text: str) -> VersionedFile:
    """Return what a file in TOML declares.

    Raises:
        VersionedFileError: It is not TOML, has no replicas, one of them twice, no view, or a malformed one.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise VersionedFileError("the file", f"it is not TOML: {error}") from error
    _check_names("the file", document, _FILE)
    replicas, lease_s, share_count = (document.get(name) for name in ("replicas", "lease_s", "share_count"))
    if not _are_texts(replicas) or not replicas:
        raise VersionedFileError("replicas", 'it is a list of texts, such as ["sqlite:a.db", "sqlite:b.db"]')
    if not any(all(replica.startswith(kind) for replica in replicas) for kind in (SQLITE, REDIS, CASSANDRA)):
        kinds = "each is sqlite:PATH, or each is redis://, rediss:// or unix://PATH, or it is one cassandra://"
        raise VersionedFileError("replicas", kinds)
    if lease_s is not None and (type(lease_s) not in {int, float} or not LEASE_S_MIN <= lease_s <= _LEASE_S_MAX):
        reason = f"it is a number of seconds from {LEASE_S_MIN:g} to {_LEASE_S_MAX:g}, not {lease_s!r}"
        raise VersionedFileError("lease_s", reason)
    if share_count is not None and (type(share_count) is not int or not 1 <= share_count <= SHARES_MAX):
        raise VersionedFileError("share_count", f"it is a whole number from 1 to {SHARES_MAX}, not {share_count!r}")
    try:
        _check_replicas(replicas)
    except ReplicaRefusedError as error:
        raise VersionedFileError("replicas", str(error)) from error
    tables = document.get("view")
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise VersionedFileError("the file", "it has no view; begin one with a line [[view]]")
    found = [_view(table) for table in tables]
    views = tuple(one.rows_view if isinstance(one, GroupView) else one for one in found)
    groups = tuple(one for one in found if isinstance(one, GroupView))
    try:
        check_views(views)
    except NameRefusedError as error:
        raise VersionedFileError("the file", str(error)) from error
    return VersionedFile(tuple(replicas), views, groups, float(lease_s or 2.0), share_count or 64)


def _check_replicas(replicas: Sequence[str]) -> None:
    """Pass if addresses can be those of replicas."""
    if not replicas[0].startswith(CASSANDRA):
        refuse_twice(list(map(replica_of, replicas)), replicas)
        return
    CassandraAddress.of(replicas[0])
    if len(replicas) > 1:
        raise ReplicaRefusedError(shown(replicas[1]), "a keyspace of Cassandra is one address, and knows its replicas")


def _view(table: Mapping[str, Any]) -> VersionedView | GroupView:
    where = f"the view {table.get('name')!r}"
    has_groups = "aggregates" in table or "by" in table
    _check_names(where, table, _GROUPS if has_groups else _VIEW)
    for name in ("name", "base", "key"):
        if not isinstance(table.get(name), str):
            raise VersionedFileError(where, f"`{name}` is a text, not {table.get(name)!r}")
    for name in ("columns", "where", "by"):
        if not _are_texts(table.get(name, [])):
            raise VersionedFileError(where, f"`{name}` is a list of texts, not {table[name]!r}")
    try:
        conditions = tuple(map(ColumnCondition.of, table.get("where", [])))
        if has_groups:
            aggregates = _aggregates(where, table.get("aggregates"))
            return GroupView(
                table["name"], table["base"], table["key"], aggregates, tuple(table.get("by", [])), conditions
            )
        return VersionedView(table["name"], table["base"], table["key"], tuple(table.get("columns", [])), conditions)
    except (AggregateRefusedError, ConditionRefusedError, NameRefusedError) as error:
        raise VersionedFileError(where, str(error)) from error


def _aggregates(where: str, found: object) -> tuple[GroupAggregate, ...]:
    if not isinstance(found, dict) or not _are_texts(list(found.values())):
        reason = f'`aggregates` is a table such as {{ tickets = "count", hours = "sum hours" }}, not {found!r}'
        raise VersionedFileError(where, reason)
    return tuple(GroupAggregate.of(name, text) for name, text in found.items())


def _check_names(where: str, table: Mapping[str, Any], names: set[str]) -> None:
    if unknown := set(table) - names:
        raise VersionedFileError(where, f"{min(unknown)!r} is no setting; there are {', '.join(sorted(names))}")


def _are_texts(found: object) -> bool:
    return isinstance(found, list) and all(isinstance(text, str) for text in found)
