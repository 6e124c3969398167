"""Keys that expire in a cluster and before a database: homes expire them, computes follow, databases have none."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from pequod_server import PequodServer
from pequod_server.backing import Mapping, SqliteStore, timed

from pequod import Add, Put
from pequod.errors import NoDeadlineError
from pequod.freshness import LATEST
from pequod.language.conditions import IF_ABSENT, IF_PRESENT
from tests.peer.homes import computing, on_sqlite, rows_of, running, sqlite, until

NOW_MS = 1_800_000_000_000


class Clock:
    """The time of a server as a test sets it."""

    def __init__(self, *servers: PequodServer) -> None:
        self.now_ms = NOW_MS
        for server in servers:
            server.databases.expiring.clock_ms = lambda: self.now_ms


@pytest.fixture
def stores_ms(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time by which rows are loaded, of all servers of the process."""
    now_ms = [NOW_MS]
    monkeypatch.setattr(timed.now_ms, "wall_ms", lambda: now_ms[0])
    monkeypatch.setattr(timed.now_ms, "_latest_ms", 0)
    return now_ms


@pytest.mark.parametrize("kind", ["memory", "database"])
async def test_a_compute_goes_by_the_deadlines_of_its_home_though_the_home_has_not_removed_the_keys(
    tmp_path: Path, stores_ms: list[int], kind: str
) -> None:
    async with running(None, **await base(tmp_path, kind)) as home, computing([home.address]) as compute:
        # The home's clock stands still.
        Clock(home.server)
        clock = Clock(compute.server)
        await home.client.multi_put({"s|ann|bob": "", "p|bob|0200": "Ho", "p|bob|0400": "Hu"})
        await home.client.put("p|bob|0100", "Hi", ttl_s=5)
        assert len(await rows_of(compute, "t|ann|", freshness=LATEST)) == 3, "loaded"
        await home.client.put("p|bob|0300", "Ha", ttl_s=5)
        await home.client.expire("p|bob|0200", 5)
        await home.client.expire("p|bob|0100", 50)
        assert len(await rows_of(compute, "t|ann|", freshness=LATEST)) == 4, "told"
        clock.now_ms += 4_999
        assert len(await rows_of(compute, "p|bob|")) == 4
        clock.now_ms += 1
        assert [key for key, _ in await rows_of(compute, "t|ann|")] == [b"t|ann|0100|bob", b"t|ann|0400|bob"]
        assert [key for key, _ in await rows_of(compute, "p|bob|")] == [b"p|bob|0100", b"p|bob|0400"]
        assert len(await rows_of(home, "p|bob|")) == 4, "the home removes them later"
        await home.client.persist("p|bob|0100")
        assert len(await rows_of(compute, "p|bob|", freshness=LATEST)) == 2
        clock.now_ms += 100_000
        assert [key for key, _ in await rows_of(compute, "p|bob|")] == [b"p|bob|0100", b"p|bob|0400"]


@pytest.mark.parametrize("kind", ["memory", "database"])
async def test_a_compute_has_its_home_set_and_keep_deadlines(tmp_path: Path, stores_ms: list[int], kind: str) -> None:
    async with running(None, **await base(tmp_path, kind)) as home, computing([home.address]) as compute:
        Clock(home.server)
        clock = Clock(compute.server)
        client = compute.client
        await client.put("p|bob|0100", "Hi", ttl_s=5)
        await client.put("p|bob|0100", "Ho", keep_ttl=True)
        assert await client.put("p|bob|0200", "Hi", condition=IF_ABSENT, ttl_s=6)
        assert await client.put("p|bob|0200", "Ho", condition=IF_PRESENT, keep_ttl=True)
        await client.multi_put({"p|bob|0300": "Ha", "p|bob|0400": "Ha"}, ttl_s=7)
        assert await client.persist("p|bob|0400")
        assert not await client.expire("p|bob|0500", 8)
        done = await client.transaction([], [Put("p|bob|0500", "1", ttl_s=8), Add("p|bob|0500", 1)])
        assert done.held
        for one in (client, home.client):
            session = one.session(client.last_token)
            left_s = [await session.ttl(f"p|bob|0{number}00") for number in range(1, 7)]
            assert left_s == [5.0, 6.0, 7.0, math.inf, 8.0, None]
        clock.now_ms += 6_000
        assert [value for _, value in await rows_of(compute, "p|bob|")] == [b"Ha", b"Ha", b"2"]


async def base(tmp_path: Path, kind: str) -> dict[str, str]:
    """Return the settings of a home with its own base data, or with those of a database."""
    if kind == "memory":
        return {}
    store = SqliteStore(tmp_path / "base.db", [Mapping.generic([b"p", b"s"])])
    await store.install()
    await store.close()
    return {"backing": f"sqlite:{tmp_path / 'base.db'}", "backing_tables": "p, s", "backing_mode": "write-through"}


async def test_a_compute_follows_what_expires_at_its_home(stores_ms: list[int]) -> None:
    async with running(None) as home, computing([home.address]) as compute:
        now_ms = [NOW_MS]
        home.server.databases.expiring.clock_ms = lambda: now_ms[0]
        # The compute's clock stands still: it is told.
        Clock(compute.server)
        await home.client.put("s|ann|bob", "1")
        await home.client.put("p|bob|0100", "Hi", ttl_s=5)
        await home.client.put("p|bob|0200", "Ho")
        assert len(await rows_of(compute, "t|ann|")) == 2
        now_ms[0] += 5_000
        await until(lambda: compute.server.engine.count(b"t|ann|", b"t|ann}") == 1)
        assert await rows_of(compute, "t|ann|") == [(b"t|ann|0200|bob", b"Ho")]


async def test_a_deadline_of_a_key_of_a_database_is_refused_and_the_batch_goes_on(tmp_path: Path) -> None:
    await sqlite(tmp_path / "posts.db")
    async with running(on_sqlite(tmp_path / "posts.db"), backing_mode="write-through") as home:
        batch = home.client.batch()
        batch.put("p|bob|0100", "one")
        batch.put("p|bob|0200", "two", ttl_s=5)
        batch.put("p|bob|0300", "three", keep_ttl=True)
        batch.expire("p|bob|0100", 5)
        batch.get("p|bob|0200")
        batch.put("p|bob|0400", "four")
        results = await batch.send()
        assert [isinstance(one, NoDeadlineError) for one in results] == [False, True, False, True, False, False]
        assert results[4] is None
        assert [key for key, _ in await rows_of(home, "p|bob|")] == [b"p|bob|0100", b"p|bob|0300", b"p|bob|0400"]
        await home.client.put("note|1", "mine", ttl_s=5)
        assert await home.client.ttl("note|1") is not None, "other tables are the server's own"
