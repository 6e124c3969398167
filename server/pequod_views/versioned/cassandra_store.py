"""A record store in Cassandra, whose nodes are the replicas. Needs the extra cassandra.

    cells        (tbl, key), name, base_key -> value      WRITETIME(value) is the timestamp of the cell
    registers    name -> value                            compared and set by lightweight transactions

A value is `=` and the text, or nothing for NULL, so that NULL is a value with a timestamp, below all texts, as `newest`
has it. A NULL of Cassandra would be a deletion: it has no timestamp that can be read, and wins a tie against a value.
Cassandra breaks ties of values by their bytes, and bytes of UTF-8 are ordered as the characters are.

The keyspace says how many replicas there are (N). Nothing is deleted, so `gc_grace_seconds` does not matter, and there
is no `forget`: Cassandra would hold a deletion against cells that are copied there later with older timestamps.

A node must not forget what it has acknowledged, or leases and majorities are worth nothing: `commitlog_sync: group` or
`batch`. With `periodic`, its default, a node that is killed may lose a tenth of a second, and a host without power ten.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Self

from cassandra import AuthenticationFailed, ConsistencyLevel, DriverException, UnresolvableContactPoints
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable, Session
from cassandra.policies import RoundRobinPolicy, TokenAwarePolicy
from cassandra.query import BatchStatement, BatchType, PreparedStatement, tuple_factory

from pequod.errors import SettingError
from pequod_views.versioned.cassandra_address import CassandraAddress
from pequod_views.versioned.cassandra_nodes import AWAY, CassandraNodes
from pequod_views.versioned.records import Cells, KeyPage, Put, QuorumError, StoredCell, StoredColumn
from pequod_views.versioned.replicas import ReplicaRefusedError, refuse_duration
from pequod_views.versioned.rows import NameRefusedError

#: A timestamp of Cassandra is a signed integer of 64 bits.
TIMESTAMP_MAX: Final = (1 << 63) - 1
#: Of a key of Cassandra: each part with its length in two bytes, and a byte behind it.
_KEY_BYTES_MAX: Final = (1 << 16) - 1
_PART_BYTES: Final = 3
#: When another node is asked as well; swaps that meet at two nodes hold each other up.
_PAUSE_S: Final = 0.02
_SWAP_PAUSE_S: Final = 0.25
#: How long scans do without a replica that was away.
_AWAY_S: Final = 10.0
_LEVELS: Final = {1: ConsistencyLevel.ONE, 2: ConsistencyLevel.TWO, 3: ConsistencyLevel.THREE}
#: Each column of the tables, to be compared with those that are there.
_TABLES: Final = {
    "cells": {"tbl": "text", "key": "text", "name": "text", "base_key": "text", "value": "text"},
    "registers": {"name": "text", "value": "text"},
}
# A read waits for no node that is slow: one more is asked. It repairs nothing, since it would repair the cells that it
# reads alone, and a put is to arrive as a whole.
_OPTIONS: Final = "WITH speculative_retry = 'ALWAYS' AND read_repair = 'NONE'"
_CELLS: Final = "tbl text, key text, name text, base_key text, value text, PRIMARY KEY ((tbl, key), name, base_key)"
_SCHEMA: Final = (
    f"CREATE TABLE IF NOT EXISTS cells ({_CELLS}) {_OPTIONS}",
    "CREATE TABLE IF NOT EXISTS registers (name text PRIMARY KEY, value text)",
)
_GET: Final = "SELECT name, base_key, value, WRITETIME(value) FROM cells WHERE tbl = ? AND key = ?"
_GET_SOME: Final = f"{_GET} AND (name, base_key) IN ?"
_PUT: Final = "UPDATE cells USING TIMESTAMP ? SET value = ? WHERE tbl = ? AND key = ? AND name = ? AND base_key = ?"
_KEYS: Final = "SELECT DISTINCT tbl, key FROM cells LIMIT ?"
_KEYS_AFTER: Final = "SELECT DISTINCT tbl, key FROM cells WHERE token(tbl, key) > token(?, ?) LIMIT ?"
_KEYS_BESIDE: Final = "SELECT DISTINCT tbl, key FROM cells WHERE token(tbl, key) = token(?, ?)"
_SWAP: Final = "UPDATE registers SET value = ? WHERE name = ? IF value = ?"
_STATEMENTS: Final = (_GET, _GET_SOME, _PUT, _KEYS, _KEYS_AFTER, _KEYS_BESIDE, _SWAP)


class CassandraReplicas:
    """Replicas in a keyspace of Cassandra; `open` connects to one."""

    def __init__(
        self,
        session: Session,
        address: str,
        replica_count: int,
        statements: Mapping[str, PreparedStatement],
        timeout_s: float,
    ) -> None:
        self.replica_count = replica_count
        self._session = session
        self._nodes = CassandraNodes(session, address, max(replica_count, 2), timeout_s)
        self._statements = statements
        self._timeout_s = timeout_s
        #: Until when scans ask a majority, and how many replicas were away then.
        self._scan_all_s = float("-inf")
        self._away = 0

    @classmethod
    async def open(cls, address: str, *, timeout_s: float = 2.0, missing: Literal["made", "refused"] = "made") -> Self:
        """Connect to a keyspace.

        Args:
            address: Such as `cassandra://host,host:9042/keyspace`, with `user:password@` before the hosts if need be.
            timeout_s: How long a node may take before it counts as away.
            missing: Whether tables that are not there are made, or refused.

        Raises:
            QuorumError: No node answers.
            ReplicaRefusedError: The address is malformed, there is no such keyspace, or it has other tables.
            SettingError: The timeout is no number of seconds.
        """
        refuse_duration("timeout_s", timeout_s, least_s=0.001)
        place = CassandraAddress.of(address)
        return await asyncio.to_thread(cls._open, place, timeout_s, missing)

    @classmethod
    def _open(cls, place: CassandraAddress, timeout_s: float, missing: Literal["made", "refused"]) -> Self:
        cluster = _cluster(place, timeout_s)
        try:
            session = cluster.connect()
            replica_count = _replica_count(session, place)
            session.set_keyspace(place.keyspace)
            _check_tables(session, place, missing)
            statements = {text: session.prepare(text) for text in _STATEMENTS}
        except BaseException as error:
            cluster.shutdown()
            causes = error.errors if isinstance(error, NoHostAvailable) else {}
            is_refused = any(isinstance(cause, AuthenticationFailed) for cause in causes.values())
            if isinstance(error, (*AWAY, UnresolvableContactPoints)) and not is_refused:
                reasons = sorted(f"{node}: {cause}" for node, cause in causes.items())
                raise QuorumError(1, 0, reasons or [str(error)]) from error
            if isinstance(error, DriverException) or is_refused:
                raise ReplicaRefusedError(place.shown, str(error)) from error
            raise
        return cls(session, place.shown, replica_count, statements, timeout_s)

    async def close(self) -> None:
        """Disconnect."""
        await asyncio.to_thread(self._session.cluster.shutdown)

    def check_record(self, table: str, key: str) -> None:
        """Pass if Cassandra can keep a record under a key.

        Raises:
            NameRefusedError: The key is too long.
        """
        if len(_bytes(table, key)) > _KEY_BYTES_MAX:
            reason = f"it is longer than {_KEY_BYTES_MAX - 2 * _PART_BYTES} bytes with the name of its table"
            raise NameRefusedError("the key", f"{key[:20]}...", reason)

    async def get(self, table: str, key: str, columns: Sequence[StoredColumn] | None, quorum: int) -> Cells:
        """Return the newest of each cell."""
        self.check_record(table, key)
        if columns is None:
            statement = self._statements[_GET].bind((table, key))
        else:
            statement = self._statements[_GET_SOME].bind((table, key, [tuple(column) for column in columns]))
        rows = await self._ask(statement, quorum)
        return {StoredColumn(name, base_key): _cell(value, stamp) for name, base_key, value, stamp in rows}

    async def put(self, table: str, key: str, cells: Cells, quorum: int) -> None:
        """Write cells, at once at each replica.

        Raises:
            NameRefusedError: A timestamp or a name is none that Cassandra can keep; nothing was written.
            QuorumError: Too few replicas answer.
            StatementRefusedError: The cells are too large together.
        """
        await self.put_all([Put(table, key, tuple(cells.items()), quorum)], quorum)

    async def put_all(self, puts: Sequence[Put], quorum: int) -> None:
        """Write cells of several records, those of each at once at each replica.

        Raises:
            NameRefusedError, QuorumError, StatementRefusedError: See `put`.
        """
        # All cells of a record are in one partition, and are one change there, seen as a whole or not at all. The node
        # that gets the batch passes each partition on by itself.
        batch, is_empty = BatchStatement(batch_type=BatchType.UNLOGGED), True
        for put in puts:
            self.check_record(put.table, put.key)
            for column, cell in put.cells:
                _check_cell(column, cell)
                values = cell.timestamp, _text(cell.value), put.table, put.key, *column
                batch.add(self._statements[_PUT], values)
                is_empty = False
        if not is_empty:
            await self._ask(batch, quorum)

    async def keys(self, table: str, after: str | None, count: int) -> KeyPage:
        """Return the first keys of a table that come after one, by their tokens.

        Cost:
            The keys of all tables between the first and the last are read.
        """
        found, replicas_away = list[str](), 0
        place = None if after is None else (table, after)
        while len(found) < count:
            page, away = await self._page(place, count)
            replicas_away = max(replicas_away, away)
            if not page:
                break
            found += [key for name, key in page if name == table]
            place = page[-1]
        # Keys beyond the count are read again with the next page.
        return KeyPage(found[:count], replicas_away)

    async def _page(self, place: tuple[str, str] | None, count: int) -> tuple[list[tuple[str, str]], int]:
        """Return records after one, of any table, and how many replicas did not answer."""
        if place is None:
            return await self._scan(_KEYS, (count,))
        # Those with the same token come first, in the order of their bytes.
        beside, _ = await self._scan(_KEYS_BESIDE, place)
        behind = sorted((one for one in beside if _bytes(*one) > _bytes(*place)), key=lambda one: _bytes(*one))
        after, replicas_away = await self._scan(_KEYS_AFTER, (*place, count))
        return behind + after, replicas_away

    async def _scan(self, text: str, parameters: tuple[object, ...]) -> tuple[list[tuple[str, str]], int]:
        """Ask all replicas, or a majority if one is away or was a short while ago."""
        loop, majority = asyncio.get_running_loop(), self.replica_count // 2 + 1
        if loop.time() >= self._scan_all_s:
            try:
                return await self._ask(self._statements[text].bind(parameters), self.replica_count), 0
            except QuorumError as error:
                self._scan_all_s = loop.time() + _AWAY_S
                self._away = self.replica_count - max(error.answered, majority)
        return await self._ask(self._statements[text].bind(parameters), majority), self._away

    async def swap(self, register: str, old: str | None, new: str | None) -> str | None:
        """Set a register if it has another value.

        A swap may be carried out twice, if its end is not known: the texts of a register must not recur.
        """
        statement = self._statements[_SWAP].bind((new, register, old))
        statement.consistency_level = ConsistencyLevel.QUORUM
        statement.serial_consistency_level = ConsistencyLevel.SERIAL
        end_s = asyncio.get_running_loop().time() + self._timeout_s
        while True:
            try:
                ((is_set, *found),) = await self._nodes.ask(statement, self.replica_count // 2 + 1, _SWAP_PAUSE_S)
            except QuorumError:
                # Perhaps another swap came in between.
                if asyncio.get_running_loop().time() >= end_s:
                    raise
                await asyncio.sleep(random.uniform(0, _SWAP_PAUSE_S))  # noqa: S311
                continue
            value: str | None = found[0] if found else None
            return new if is_set else value

    async def _ask(self, statement: Any, quorum: int) -> list[Any]:
        statement.consistency_level = consistency(quorum, self.replica_count)
        # Rows of a record come at once, and not in pages.
        statement.fetch_size = None
        return await self._nodes.ask(statement, quorum, _PAUSE_S)


def consistency(quorum: int, replica_count: int) -> int:
    """Return the level of Cassandra that waits for `quorum` of the replicas.

    Raises:
        QuorumError: There are not as many.
        SettingError: Cassandra has no such level.
    """
    if quorum > replica_count:
        raise QuorumError(quorum, replica_count, ["the keyspace has no more"])
    if quorum == replica_count:
        return int(ConsistencyLevel.ALL)
    if quorum == replica_count // 2 + 1:
        return int(ConsistencyLevel.QUORUM)
    if quorum not in _LEVELS:
        reason = f"Cassandra waits for 1, 2 or 3 replicas, for a majority or for all {replica_count}, not for {quorum}"
        raise SettingError("quorum", reason)
    return int(_LEVELS[quorum])


def _cluster(place: CassandraAddress, timeout_s: float) -> Cluster:
    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(RoundRobinPolicy()), row_factory=tuple_factory, request_timeout=timeout_s
    )
    return Cluster(
        place.hosts,
        port=place.port,
        auth_provider=PlainTextAuthProvider(place.user, place.password) if place.user else None,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        connect_timeout=timeout_s,
        control_connection_timeout=timeout_s,
        # A node that lacks a statement asks for it.
        prepare_on_all_hosts=False,
        application_name="pequod",
    )


def _replica_count(session: Session, place: CassandraAddress) -> int:
    """Return how many replicas the keyspace has of each record, in all data centres."""
    rows = session.execute(
        "SELECT replication, durable_writes FROM system_schema.keyspaces WHERE keyspace_name = %s", (place.keyspace,)
    ).all()
    if not rows:
        reason = (
            f"there is no keyspace {place.keyspace!r}; make it: CREATE KEYSPACE {place.keyspace} WITH replication = "
            "{'class': 'NetworkTopologyStrategy', 'replication_factor': 3}"
        )
        raise ReplicaRefusedError(place.shown, reason)
    ((replication, is_durable),) = rows
    counts = [count for name, count in replication.items() if name != "class"]
    if not counts or not all(count.isdigit() for count in counts) or not sum(map(int, counts)):
        raise ReplicaRefusedError(place.shown, f"its replication {dict(replication)} does not say how many replicas")
    if not is_durable:
        raise ReplicaRefusedError(place.shown, "it has durable_writes = false: its nodes forget what they acknowledged")
    return sum(map(int, counts))


def _check_tables(session: Session, place: CassandraAddress, missing: Literal["made", "refused"]) -> None:
    there: dict[str, dict[str, str]] = {}
    for table, column, kind in session.execute(
        "SELECT table_name, column_name, type FROM system_schema.columns WHERE keyspace_name = %s", (place.keyspace,)
    ):
        there.setdefault(table, {})[column] = kind
    for (table, columns), statement in zip(_TABLES.items(), _SCHEMA, strict=True):
        if table not in there and missing == "refused":
            reason = f"the keyspace has no table {table!r}; the programs that write make it"
            raise ReplicaRefusedError(place.shown, reason)
        if table in there and there[table] != columns:
            raise ReplicaRefusedError(place.shown, f"its table {table!r} is another one, and no replica")
        if table not in there:
            session.execute(statement, timeout=60.0)


def _check_cell(column: StoredColumn, cell: StoredCell) -> None:
    """Pass if Cassandra can keep a cell."""
    if not 0 <= cell.timestamp <= TIMESTAMP_MAX:
        raise NameRefusedError("the timestamp", str(cell.timestamp), f"Cassandra has those from 0 to {TIMESTAMP_MAX}")
    for text in column:
        if len(text.encode()) > _KEY_BYTES_MAX:
            raise NameRefusedError("the column", f"{text[:20]}...", f"it is longer than {_KEY_BYTES_MAX} bytes")


def _bytes(table: str, key: str) -> bytes:
    """Return a key of a record as Cassandra has it."""
    parts = table.encode(), key.encode()
    return b"".join(len(part).to_bytes(4)[-2:] + part + b"\0" for part in parts)


def _text(value: str | None) -> str:
    return "" if value is None else f"={value}"


def _cell(text: str, timestamp: int) -> StoredCell:
    return StoredCell(text[1:] if text else None, timestamp)
