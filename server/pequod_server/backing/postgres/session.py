"""What loads, writes and feeds of PostgreSQL share: connections, errors, and reads of one moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, TypeAlias

import asyncpg

from pequod.engine import SearchRange
from pequod_server.backing.boxes import Box
from pequod_server.backing.errors import BackingUnavailableError, SchemaError
from pequod_server.backing.health import Health
from pequod_server.backing.mapping import Mapping
from pequod_server.backing.postgres.history import is_flushed_no_further, proven_place
from pequod_server.backing.postgres.install import check_installed
from pequod_server.backing.postgres.schema import SETTINGS, Connection, Facts, Mode, PostgresDialect, check_schema
from pequod_server.backing.rows import Clip, packed
from pequod_server.backing.searches import by_columns
from pequod_server.backing.sql import Query, boxes_of, select
from pequod_server.backing.store import History, IsWanted, KeyRange, every_key, whole
from pequod_server.backing.turns import Turns, ended
from pequod_server.backing.values import Cell

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
_AWAY: Final = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.ObjectInUseError,
    # A standby that is not promoted yet.
    asyncpg.ObjectNotInPrerequisiteStateError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.SerializationError,
)
_CHANGED: Final = (asyncpg.SyntaxOrAccessError, asyncpg.CannotCoerceError, asyncpg.FeatureNotSupportedError)
_HALF: Final = 1 << 31
#: Pauses between looks at a feed that is waited for: most commits come by themselves before the first.
_PUSH_S: Final = 0.005
_PUSHES: Final = 3
#: Ranges in one statement; and ranges or rows that are processed between two looks at the clock.
_RANGES_MAX: Final = 1000
_DECODED: Final = 128


@asynccontextmanager
async def told(name: str) -> AsyncIterator[None]:
    """Turn asyncpg's exceptions into those of a store."""
    try:
        yield
    except _AWAY as error:
        raise BackingUnavailableError(name, str(error) or type(error).__name__) from error
    except _CHANGED as error:
        raise SchemaError(name, [str(error)]) from error


@dataclass(frozen=True, slots=True)
class SnapshotHorizon:
    """The view of a snapshot of PostgreSQL: exactly the transactions that had ended when it was taken.

    Commits become visible in another order than they are logged, so no position could describe this.
    """

    #: No transaction that the snapshot sees was logged after this.
    position: int
    #: Transactions from ``ended`` up to ``begun`` are seen unless they are in ``running``; those below are.
    ended: int
    begun: int
    running: frozenset[int]

    @staticmethod
    def parse(text: str, position: int) -> SnapshotHorizon:
        """Return the horizon of a `pg_snapshot` such as 100:105:101,103."""
        ended, begun, running = text.split(":")
        return SnapshotHorizon(
            position, int(ended), int(begun), frozenset(map(int, running.split(",") if running else ()))
        )

    def covers(self, stamp: int) -> bool:
        """Return whether the snapshot sees the transaction; feeds have only the low 32 bits of its number."""
        number = (self.begun & ~0xFFFFFFFF) | stamp
        if number - self.begun >= _HALF:
            number -= 1 << 32
        elif self.begun - number > _HALF:
            number += 1 << 32
        return number < self.ended or (number < self.begun and number not in self.running)


@dataclass(frozen=True, slots=True)
class Moment:
    """The moment of a read: its snapshot, the position of the log, and its number among the reads of this store."""

    snapshot: SnapshotHorizon
    number: int
    timeline: int


class PostgresSession:
    """The connections of one store, and the facts about its tables."""

    def __init__(
        self,
        dsn: str,
        mappings: Sequence[Mapping],
        mode: Mode,
        feed_name: str,
        *,
        connections_max: int,
        timeout_s: float,
        held_bytes_max: int,
    ) -> None:
        self.dsn = dsn
        self.mappings = tuple(mappings)
        self.mode = mode
        #: The publication and the replication slot, or the channel.
        self.feed_name = feed_name
        self.timeout_s = timeout_s
        #: The memory that the feed may use for one commit.
        self.held_bytes_max = held_bytes_max
        self.health = Health()
        self.closing = asyncio.Event()
        self._connections_max = connections_max
        self._pool: Pool | None = None
        self._opening = asyncio.Lock()
        self._facts: Facts | None = None
        #: The fingerprint of what the last feed needed: if a part was missing since, changes may be lost.
        self.fingerprint: str | None = None
        #: The history of the present feed's positions.
        self.history: History | None = None
        #: How far the feed has come; how far it is to come soon, and its way to be told so.
        self.passed = 0
        self._wanted = 0
        self.on_hurry: Callable[[], None] = lambda: None
        self._pushing: asyncio.Task[None] | None = None
        #: After this time without a sign of life, the database ends the feed's connection. Normally that is 60 s. It is
        #: longer than the feed's own patience, since the feed gives none while a large commit is taken in.
        self.sender_timeout_s = 2 * timeout_s
        #: The database's process that sent to the last connection of the feed; 0 before the first.
        self.sender = 0
        #: How often in a row the feed broke within one commit, or at one that the database cannot send.
        self.broken_commits = 0
        self._number = 0
        #: Held while a snapshot is taken, so that numbers are in the order of snapshots.
        self._order = asyncio.Lock()

    @property
    def name(self) -> str:
        """The database without its password, for messages."""
        scheme, _, rest = self.dsn.partition("://")
        return f"{scheme}://{rest.rpartition('@')[2]}" if rest else "postgresql"

    @property
    def settings(self) -> dict[str, str]:
        """The settings of each connection: also the database finds out that this machine has no power or network.

        Else it would keep for hours what a connection holds: locks of rows, and a slot.
        """
        return {
            **SETTINGS,
            "tcp_keepalives_idle": str(max(1, int(self.timeout_s))),
            "tcp_keepalives_interval": str(max(1, int(self.timeout_s / 4))),
            "tcp_keepalives_count": "4",
            "tcp_user_timeout": str(int(2000 * self.timeout_s)),
        }

    @property
    def everything(self) -> tuple[KeyRange, ...]:
        """The ranges of all patterns."""
        return whole(self.mappings)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend a connection for a context.

        Raises:
            BackingUnavailableError: The database does not answer.
            SchemaError: It no longer has what a statement names.
        """
        if self.closing.is_set():
            raise BackingUnavailableError(self.name, "the store has been closed")
        async with told(self.name):
            async with self._opening:
                if self._pool is None:
                    self._pool = await asyncpg.create_pool(
                        self.dsn,
                        min_size=0,
                        max_size=self._connections_max,
                        timeout=self.timeout_s,
                        command_timeout=self.timeout_s,
                        server_settings={**self.settings, "application_name": "pequod"},
                    )
            async with self._pool.acquire(timeout=self.timeout_s) as connection:
                yield connection

    async def open_alone(self) -> asyncpg.Connection[asyncpg.Record]:
        """Return a separate connection, which the feed closes."""
        async with told(self.name):
            connection: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(
                self.dsn,
                timeout=self.timeout_s,
                command_timeout=self.timeout_s,
                server_settings={**self.settings, "application_name": "pequod feed"},
            )
            return connection

    async def close(self) -> None:
        """Close all connections but those of feeds."""
        self.closing.set()
        if self._pushing is not None:
            await ended([self._pushing])
        if self._pool is not None:
            try:
                async with asyncio.timeout(self.timeout_s):
                    await self._pool.close()
            except (TimeoutError, *_AWAY):
                self._pool.terminate()

    def hurry(self, position: int) -> None:
        """Have the feed come to a position soon."""
        if self.passed < position:
            self._wanted = max(self._wanted, position)
            self.on_hurry()
            if self._pushing is None and not self.closing.is_set():
                self._pushing = asyncio.create_task(self._push(), name="pequod database hurry")

    async def _push(self) -> None:
        """Have the log flushed if it is not, since a feed sees no further, and tell the feed again."""
        try:
            for _ in range(_PUSHES):
                await asyncio.sleep(_PUSH_S)
                if self.passed >= self._wanted:
                    return
                async with self.connection() as connection:
                    # If it ends just there, too: triggers tell a position for sure when the log has gone beyond it.
                    if await is_flushed_no_further(connection, self._wanted):
                        await proven_place(connection)
                self.on_hurry()
        except (BackingUnavailableError, SchemaError):
            # The feed finds it out, too, and tells all callers that wait.
            return
        finally:
            self._pushing, self._wanted = None, 0

    async def check_installed(self) -> tuple[Facts, str]:
        """Compare the mappings, and what is installed for the feed, with the database.

        Raises:
            SchemaError: Something does not fit.
        """
        async with self.connection() as connection:
            facts = await check_schema(connection, self.name, self.mappings)
            fingerprint = await check_installed(connection, self.name, self.mode, self.feed_name, self.mappings, facts)
        self._facts = facts
        return facts, fingerprint

    async def facts(self, connection: Connection) -> Facts:
        """Return the facts about the tables, read at the first call and after a change."""
        if self._facts is None:
            self._facts = await check_schema(connection, self.name, self.mappings)
        return self._facts

    def forget_facts(self) -> None:
        """Have the facts read again: a table may have been altered."""
        self._facts = None

    async def read(
        self, ranges: Sequence[KeyRange], searches: Sequence[SearchRange] = ()
    ) -> tuple[dict[bytes, bytes], Moment]:
        """Return the rows of the ranges, and those that searches find, in one snapshot."""

        async def named() -> Sequence[KeyRange]:
            return ranges

        return await self.read_then(named, searches)

    async def read_then(
        self, choose: Callable[[], Awaitable[Sequence[KeyRange]]], searches: Sequence[SearchRange] = ()
    ) -> tuple[dict[bytes, bytes], Moment]:
        """Take a snapshot, and return the rows that ranges have in it which are chosen afterwards."""
        try:
            async with self.connection() as connection:
                facts = await self.facts(connection)
                transaction = connection.transaction(isolation="repeatable_read", readonly=True)
                async with self._order:
                    await transaction.start()
                    moment = await self._moment(connection)
                try:
                    await self._refuse_left_behind(moment)
                    rows = await self._rows(connection, facts, await choose(), searches)
                except BaseException:
                    # At a cancellation too: the connection goes back to the pool without a transaction.
                    # On a broken connection, this fails with an error that hides the first one.
                    with suppress(*_AWAY):
                        await transaction.rollback()
                    raise
                await transaction.commit()
                return rows, moment
        except SchemaError:
            self.forget_facts()
            raise
        except asyncpg.PostgresError as error:
            # Such as a division by zero in a condition.
            raise SchemaError(self.name, [str(error)]) from error

    async def _refuse_left_behind(self, moment: Moment) -> None:
        """Raise BackingUnavailableError if a connection leads to a server whose timeline the feed has left."""
        if self.history is not None and moment.timeline < self.history.timeline:
            assert self._pool is not None, "it has lent the connection"
            await self._pool.expire_connections()
            raise BackingUnavailableError(self.name, "a connection led to a server that is not the primary any more")

    async def seen(self) -> SnapshotHorizon:
        """Return a horizon that every read that begins from now on sees."""
        async with self.connection() as connection:
            return SnapshotHorizon.parse(await connection.fetchval("SELECT pg_current_snapshot()::text"), 0)

    async def _moment(self, connection: Connection) -> Moment:
        # The position is read after the snapshot is taken: all that the snapshot sees was logged before it.
        row = await connection.fetchrow(
            "SELECT pg_current_snapshot()::text, (at - '0/0')::bigint, "
            "('x' || left(pg_walfile_name(at), 8))::bit(32)::int FROM pg_current_wal_insert_lsn() AS at"
        )
        assert row is not None
        self._number += 1
        return Moment(SnapshotHorizon.parse(row[0], row[1]), self._number, row[2])

    async def _rows(
        self, connection: Connection, facts: Facts, ranges: Sequence[KeyRange], searches: Sequence[SearchRange] = ()
    ) -> dict[bytes, bytes]:
        rows: dict[bytes, bytes] = {}
        turns = Turns()
        for columns, sought in by_columns(self.mappings, searches):
            query = select(PostgresDialect(facts), columns.mapping, columns.boxes(sought), columns.slots)
            rows |= await self._fetch(connection, facts, columns.mapping, query, every_key, turns)
        for at in range(0, len(ranges), _RANGES_MAX):
            some = ranges[at : at + _RANGES_MAX]
            clip = Clip(some)
            for mapping in self.mappings:
                boxes: dict[Box, None] = {}
                for start in range(0, len(some), _DECODED):
                    boxes.update(dict.fromkeys(boxes_of(mapping, some[start : start + _DECODED])))
                    await turns.give_if_due()
                query = select(PostgresDialect(facts), mapping, boxes)
                rows |= await self._fetch(connection, facts, mapping, query, clip.holds, turns)
        return rows

    async def _fetch(
        self,
        connection: Connection,
        facts: Facts,
        mapping: Mapping,
        query: Query | None,
        is_wanted: IsWanted,
        turns: Turns,
    ) -> dict[bytes, bytes]:
        """Return the rows that a statement gives and that are wanted."""
        rows: dict[bytes, bytes] = {}
        if query is None:
            return rows
        records = await connection.fetch(query.text, *query.parameters)
        kinds = [facts[mapping.table].columns[name].kind for name in mapping.columns]
        for start in range(0, len(records), _DECODED):
            part = records[start : start + _DECODED]
            cells = ([Cell(*pair) for pair in zip(record, kinds, strict=True)] for record in part)
            found = packed(mapping, cells, self.health.unpackable)
            rows.update((key, value) for key, value in found if is_wanted(key))
            await turns.give_if_due()
        return rows


def keys_as_ranges(keys: Iterable[bytes]) -> list[KeyRange]:
    """Return a range for each key."""
    return [KeyRange(key, key + b"\0") for key in keys]
