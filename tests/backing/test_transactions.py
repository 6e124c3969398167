"""Transactions where a database owns the keys: one transaction of it decides, also between other writers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from pequod_server import ServerConfig
from pequod_server.backing import SqliteStore
from pequod_server.backing.postgres.session import PostgresSession
from pequod_server.backing.postgres.store import PostgresStore
from pequod_server.stores import make_store

import pequod
from pequod.client import AsyncClient
from pequod.engine import Rows
from pequod.errors import LimitExceededError, NotNumberError, PackError, SumTooLongError, WriteRefusedError
from pequod.interface.transaction_parts import TransactionCommand
from tests.backing.test_twip import Database, database, serving, timeline

__all__ = ["database"]

ONE, TWO, THREE = (f"p|bob|000000000{number}" for number in (1, 2, 3))


@asynccontextmanager
async def two_servers(database: Database) -> AsyncIterator[tuple[AsyncClient, AsyncClient]]:
    # Each server beside PostgreSQL has a slot of its own.
    second = {**database.config, "backing_feed_name": "second"}
    store = make_store(ServerConfig(**second))  # type: ignore[arg-type]
    assert isinstance(store, PostgresStore | SqliteStore)
    await store.install()
    await store.close()
    async with (
        serving(database, backing_mode="write-through") as (_, one),
        serving(Database(second, database.application), backing_mode="write-through") as (_, two),
    ):
        yield one, two


async def test_a_transaction_holds_in_the_database_and_timelines_follow(database: Database) -> None:
    async with serving(database, backing_mode="write-through") as (server, client):
        await client.put("s|ann|bob", "")
        done = await client.transaction(
            [pequod.absent(ONE), pequod.value_of(TWO) != "x"],
            [
                *(pequod.Put(ONE, "one"), pequod.Get(ONE), pequod.Put(TWO, "2"), pequod.Remove(THREE)),
                *(pequod.Remove(TWO), pequod.Put(TWO, "7"), pequod.Scan(prefix="p|bob|", limit=1)),
                *(pequod.Scan(prefix="p|bob|", reverse=True), pequod.Count(prefix="p|")),
            ],
        )
        rows = [ONE.encode(), TWO.encode()], [b"one", b"7"]
        down = Rows(rows[0][::-1], rows[1][::-1])
        assert done == (True, [None, b"one", None, False, True, None, Rows(rows[0][:1], rows[1][:1]), down, 2])
        assert await timeline(client, "ann") == [
            (b"t|ann|0000000001|bob", b"one"),
            (b"t|ann|0000000002|bob", b"7"),
        ]
        refused = await client.transaction(
            [pequod.value_of(TWO) > "7.0"], [pequod.Remove(ONE)], [pequod.Get(TWO), pequod.Put(THREE, "three")]
        )
        assert refused == (False, [b"7", None])
        server.engine.forget(b"", None)
        assert len(await timeline(client, "ann")) == 3


async def test_what_the_database_refuses_takes_all_with_it(database: Database) -> None:
    async with serving(database, backing_mode="write-through", reply_bytes_max=300) as (_, client):
        await client.put(ONE, "x" * 200)
        with pytest.raises(PackError):
            await client.transaction([], [pequod.Remove(ONE)], [pequod.Put("p|bob|no number", "")])
        with pytest.raises(LimitExceededError):
            await client.transaction([], [pequod.Put(TWO, ""), pequod.Get(ONE), pequod.Get(ONE)])
        assert await client.scan(prefix="p|") == [(ONE.encode(), b"x" * 200)]


async def test_transfers_of_racing_writers_at_two_servers_keep_the_sum(database: Database) -> None:
    async with two_servers(database) as (one, two):
        await one.multi_put({ONE: "50", TWO: "50"})
        moved = await asyncio.gather(
            *(
                _transfer(client, *keys, amount)
                for client in (one, two)
                for keys, amount in (((ONE, TWO), 3), ((TWO, ONE), 5))
            )
        )
        assert sum(moved) > 0
        session = one.session(two.last_token)
        rows = await session.multi_get([ONE, TWO])
        assert sum(int(value or b"0") for value in rows) == 100


async def _transfer(client: AsyncClient, source: str, target: str, amount: int) -> int:
    """Move an amount some times, if the source has it; another writer may be faster, and then nothing is done."""
    moved = 0
    for _ in range(6):
        before = [int(value or b"0") for value in await client.multi_get([source, target])]
        done = await client.transaction(
            [pequod.value_of(source) == str(before[0]), pequod.value_of(target) == str(before[1]),
             pequod.value_of(source) > amount],
            [pequod.Put(source, str(before[0] - amount)), pequod.Put(target, str(before[1] + amount))],
        )  # fmt: skip
        moved += done.held
    return moved


async def test_adds_of_a_transaction_are_the_database_s(database: Database) -> None:
    async with serving(database, backing_mode="write-through") as (server, client):
        await client.put("s|ann|bob", "")
        await client.put(ONE, "50")
        transfer: list[TransactionCommand] = [
            pequod.Add(ONE, -30),
            pequod.Add(TWO, "30.5"),
            pequod.Get(ONE),
            pequod.Scan(prefix="p|bob|"),
        ]
        done = await client.transaction([pequod.value_of(ONE) > 29], [*transfer, pequod.Add(TWO, 1)])
        rows = Rows([ONE.encode(), TWO.encode()], [b"20", b"30.5"])
        assert done == (True, [b"20", b"30.5", b"20", rows, b"31.5"])
        assert await timeline(client, "ann") == [
            (b"t|ann|0000000001|bob", b"20"),
            (b"t|ann|0000000002|bob", b"31.5"),
        ]
        await client.multi_put({TWO: "text", THREE: "9" * 64})
        for key, error in ((TWO, NotNumberError), (THREE, SumTooLongError)):
            with pytest.raises(error):
                await client.transaction(
                    [], [pequod.Remove(ONE), pequod.Put("p|bob|0000000004", ""), pequod.Add(key, 1)]
                )
        with pytest.raises(PackError):
            await client.transaction([], [pequod.Remove(ONE)], [pequod.Add("p|bob|no number", 1)])
        server.engine.forget(b"", None)
        left = [(ONE.encode(), b"20"), (TWO.encode(), b"text"), (THREE.encode(), b"9" * 64)]
        assert await client.scan(prefix="p|") == left


async def test_racing_transfers_by_adds_at_two_servers_keep_the_sum(database: Database) -> None:
    """Each runs once, also where the target has no row yet, and none takes what is not there."""
    async with two_servers(database) as (one, two):
        await one.put(ONE, "50")
        transfers = [(client, ONE, TWO, 3) for client in (one, two) for _ in range(8)]
        transfers += [(client, TWO, ONE, 5) for client in (one, two) for _ in range(4)]
        done = await asyncio.gather(
            *(
                client.transaction(
                    [pequod.value_of(source) > amount - 1], [pequod.Add(source, -amount), pequod.Add(target, amount)]
                )
                for client, source, target, amount in transfers
            )
        )
        session = one.session(two.last_token)
        values = [int(value or b"0") for value in await session.multi_get([ONE, TWO])]
        moved = sum(
            amount if source == ONE else -amount
            for (_, source, _, amount), outcome in zip(transfers, done, strict=True)
            if outcome
        )
        assert any(done)
        assert values == [50 - moved, moved]
        assert min(values) >= 0


async def test_of_two_that_each_want_the_others_key_absent_one_writes(database: Database) -> None:
    """No row is there that could be locked."""
    async with two_servers(database) as (one, two):
        for number in range(8):
            mine, yours = (f"p|{name}{number}|0000000001" for name in ("x", "y"))
            done = await asyncio.gather(
                one.transaction([pequod.absent(mine)], [pequod.Put(yours, "1")]),
                two.transaction([pequod.absent(yours)], [pequod.Put(mine, "1")]),
            )
            assert [outcome.held for outcome in done].count(True) == 1


async def test_a_row_that_changes_between_lock_and_write_has_all_tried_again(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    if str(database.config["backing"]).startswith("sqlite"):
        return  # its transactions come one after the other
    rows, looks = PostgresSession._rows, 0

    async def look(self: PostgresSession, *arguments: Any) -> dict[bytes, bytes]:
        nonlocal looks
        looks += 1
        if looks == 1:
            insert = "INSERT INTO posts (poster, at, body) VALUES ($1, $2, $3)"
            await database.application._run([(insert, ("bob", 1, "theirs"))])
        return await rows(self, *arguments)

    async with serving(database, backing_mode="write-through") as (_, client):
        monkeypatch.setattr(PostgresSession, "_rows", look)
        done = await client.transaction(
            [pequod.absent(ONE)], [pequod.Put(ONE, "ours"), pequod.Put(TWO, "ours")], [pequod.Get(ONE)]
        )
        assert done == (False, [b"theirs"])
        assert await client.get(TWO) is None
        # A write under a condition meets the same between its lock and its look.
        monkeypatch.undo()
        looks = 0
        await client.remove(ONE)
        monkeypatch.setattr(PostgresSession, "_rows", look)
        assert await client.put(ONE, "ours", condition=pequod.IF_ABSENT) == pequod.Unmet(b"theirs")


async def test_a_row_that_is_compared_or_read_changes_after_the_transaction(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    if str(database.config["backing"]).startswith("sqlite"):
        return  # its transactions come one after the other
    rows, kept = PostgresSession._rows, 0

    async def look(self: PostgresSession, *arguments: Any) -> dict[bytes, bytes]:
        nonlocal kept
        for at in (1, 2):
            update = "UPDATE posts SET body = 'theirs' WHERE poster = 'bob' AND at = $1"
            with pytest.raises(asyncpg.LockNotAvailableError):
                await database.application._run([("SET LOCAL lock_timeout = '20ms'", ()), (update, (at,))])
            kept += 1
        return await rows(self, *arguments)

    async with serving(database, backing_mode="write-through") as (_, client):
        await client.multi_put({ONE: "1", TWO: "2"})
        # The triggers' feed reads rows, too.
        await client.scan(prefix="p|")
        monkeypatch.setattr(PostgresSession, "_rows", look)
        done = await client.transaction([pequod.value_of(ONE) == "1"], [pequod.Get(TWO), pequod.Get(ONE)])
        monkeypatch.undo()
        assert (done, kept) == ((True, [b"2", b"1"]), 4)


async def test_a_conflict_that_does_not_end_is_a_refusal(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    if str(database.config["backing"]).startswith("sqlite"):
        return  # its transactions come one after the other
    rows, attempts = PostgresSession._rows, 0

    async def look(self: PostgresSession, *arguments: Any) -> dict[bytes, bytes]:
        nonlocal attempts
        if arguments[2:] == ([],):
            # The compares, of which there are none. The triggers' feed names searches, too, and may read nothing else.
            attempts += 1
            insert = "INSERT INTO posts (poster, at, body) VALUES ($1, $2, $3)"
            await database.application._run([(insert, ("bob", attempts, "theirs"))])
        return await rows(self, *arguments)

    async with serving(database, backing_mode="write-through") as (_, client):
        monkeypatch.setattr(PostgresSession, "_rows", look)
        with pytest.raises(WriteRefusedError):
            await client.transaction([], [pequod.Put(f"p|bob|{number:010}", "ours") for number in range(1, 6)])
        monkeypatch.undo()
        assert {value for _, value in await client.scan(prefix="p|bob|")} == {b"theirs"}
        assert attempts >= 3
