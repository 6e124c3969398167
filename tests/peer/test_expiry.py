"""Keys that expire in a cluster and before a database: homes expire them, computes follow, databases have none."""

from __future__ import annotations

from pathlib import Path

from pequod.errors import NoDeadlineError
from tests.peer.homes import computing, on_sqlite, rows_of, running, sqlite, until


async def test_a_compute_follows_what_expires_at_its_home_and_sets_no_deadline_itself() -> None:
    async with running(None) as home, computing([home.address]) as compute:
        now_ms = [1_000_000]
        home.server.databases.expiring.clock_ms = lambda: now_ms[0]
        await home.client.put("s|ann|bob", "1")
        await home.client.put("p|bob|0100", "Hi", ttl_s=5)
        await home.client.put("p|bob|0200", "Ho")
        assert len(await rows_of(compute, "t|ann|")) == 2
        for refused in (
            compute.client.put("p|bob|0300", "Ha", ttl_s=5),
            compute.client.expire("p|bob|0200", 5),
            compute.client.persist("p|bob|0100"),
            compute.client.ttl("p|bob|0100"),
        ):
            try:
                await refused
            except NoDeadlineError as error:
                assert error.key.startswith(b"p|bob|")
            else:
                raise AssertionError("a compute keeps no deadlines")
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
