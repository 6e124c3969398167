"""Tokens across the failover of a PostgreSQL whose standby lacked the end of the log."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import asyncpg
import grpc
import pytest
from pequod_server.backing import parse_mappings
from pequod_server.backing.postgres.schema import Mode
from pequod_server.backing.postgres.store import PostgresStore

from pequod.freshness import Token
from tests.backing.chaos.standby import Standby
from tests.backing.conftest import Postgres, started
from tests.backing.test_levels import after, latest, refusal
from tests.backing.test_levels_of_databases import MAPPING, TABLES, Site, served


@pytest.mark.parametrize("mode", ["slot", "notify"])
async def test_a_token_holds_up_to_the_fork_and_is_lost_beyond_it(mode: Mode) -> None:
    with started(Postgres) as primary, tempfile.TemporaryDirectory(prefix="pequod-pg-") as directory:
        connection = await asyncpg.connect(primary.dsn("postgres"))
        await connection.execute(TABLES)
        hosts = f"{primary.directory},{directory}"
        dsn = f"postgresql://postgres@/postgres?host={hosts}&target_session_attrs=read-write"
        # What is installed is copied to the standby, but a slot.
        installing = PostgresStore(primary.dsn("postgres"), parse_mappings(MAPPING), mode=mode)
        await installing.install()
        await installing.close()
        standby = await asyncio.to_thread(Standby, primary, Path(directory))
        standby.start()
        store = PostgresStore(dsn, parse_mappings(MAPPING), mode=mode, timeout_s=2.0)
        async with served([store]) as stubs:
            site = Site(stubs, _unused)
            await connection.execute("INSERT INTO posts VALUES ('bob', 1, 'kept')")
            count, kept = await site.count(0, latest())
            assert count == 1
            await _replayed(connection)
            standby.stop()
            await connection.execute("INSERT INTO posts VALUES ('bob', 2, 'lost')")
            count, lost = await site.count(0, latest())
            assert count == 2
            primary.stop(kill=True)
            standby.start()
            standby.promote()
            # Without a level, the server may answer from before the failover until it hears of it.
            found, seen = await site.count(0, latest(60_000))
            assert found == 1
            assert (await site.count(0, after(kept)))[0] == 1
            code, reason, facts = await refusal(site.count(0, after(lost)))
            assert (code, reason) == (grpc.StatusCode.FAILED_PRECONDITION, "TokenLostError")
            assert "failed over" in facts["reason"]
            # What a session knows of both timelines is told, too.
            both = Token.parse(lost).merged(Token.parse(seen))
            assert (await refusal(site.count(0, after(bytes(both)))))[1] == "TokenLostError"
            assert {mark.timeline for mark in both.positions} == {1, 2}
        connection.terminate()
        standby.stop(kill=True)
        # So that the fixture finds it as it left it.
        primary.start()


async def _replayed(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """Wait until the standby has all that is in the log."""
    async with asyncio.timeout(30):
        while not await connection.fetchval(  # noqa: ASYNC110 - the database has no event for it
            "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_flush_lsn() "
            "AND application_name = 'walreceiver')"
        ):
            await asyncio.sleep(0.05)


async def _unused(_number: int) -> bytes:
    raise AssertionError("the test writes by itself")
