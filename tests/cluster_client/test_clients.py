"""A client of a cluster is, to its caller, a client of one server: the same calls give the same answers."""

import asyncio
import sqlite3
from contextlib import closing
from typing import Any

import pytest
from typer.testing import CliRunner

from pequod import LATEST, AsyncClient, Client
from pequod.answers.rows import Rows
from pequod.calls import Results
from pequod.cli.app import app
from pequod.client.cluster.connection import ClusterConnection
from pequod.cluster.map import HomeRange, Placement
from pequod.cluster.servers import ServerState
from pequod.errors import MixedWriteError, NoClusterError, SettingError, UnavailableError
from tests.cluster_client.site import Site, until
from tests.forked import started_server


def owner(client: AsyncClient, key: bytes) -> str:
    link = client._link
    assert isinstance(link, ClusterConnection)
    assert link.routes is not None
    node = link.routes.reader(key)
    assert node is not None
    return node.id


async def fill(client: AsyncClient) -> None:
    rows = {f"p|u{poster}|{time}": f"{poster}.{time}" for poster in range(6) for time in range(5)}
    await client.multi_put(rows)
    await client.multi_put({f"s|u{user}|u{(user + step) % 6}": "1" for user in range(6) for step in (1, 2)})


async def answers(client: AsyncClient) -> list[Any]:
    """Return what all reads answer, once everything that was written is there."""
    latest: dict[str, Any] = {"freshness": LATEST}
    batch = client.batch(LATEST)
    for user in range(6):
        batch.get(f"p|u{user}|3")
        batch.scan(prefix=f"t|u{user}|")
        batch.count(prefix=f"t|u{user}|")
        batch.scan(prefix=f"t|u{user}|", limit=2, reverse=True)
    return [
        list(await batch.send()),
        await asyncio.gather(*[client.get(f"p|u{user}|2", **latest) for user in range(7)]),
        await client.multi_get([f"p|u{user}|{user}" for user in range(7)], **latest),
        await client.scan("t|u1|", "t|u4|", **latest),
        await client.scan(prefix="t|u2|", limit=3, reverse=True, **latest),
        [row async for row in client.scan_iter("t|", "t}", **latest)],
        [row async for row in client.scan_iter("t|", "t}", reverse=True, limit=7, **latest)],
        [rows async for rows in client.scan_chunks(prefix="p|u3|", **latest)],
        await client.keys(prefix="t|u5|", **latest),
        await client.count("", **latest),
        await client.scan_page(prefix="t|u1|", limit=4, **latest),
        [join.name for join in await client.joins()],
        (await client.explain_join("t")).text,
        (await client.explain_range("t|u1|", "t|u1}")).first,
    ]


async def test_every_read_answers_what_one_server_answers(site: Site, client: AsyncClient) -> None:
    await fill(client)
    assert len({owner(client, b"t|u%d|" % user) for user in range(6)}) > 1
    async with AsyncClient(site.processes["s1"].target) as single:
        assert await answers(client) == await answers(single)


async def test_every_write_is_written_once(site: Site, client: AsyncClient) -> None:
    await fill(client)
    await client.put("p|u1|9", "new")
    assert await client.remove("p|u1|0") is True
    assert await client.remove("p|u1|0") is False
    assert await client.remove_range(prefix="p|u2|") == 5
    with closing(sqlite3.connect(site.database)) as connection:
        rows = connection.execute("SELECT a, b FROM p ORDER BY a, b").fetchall()
    expected = {(f"u{poster}", str(time)) for poster in (0, 1, 3, 4, 5) for time in range(5)} - {("u1", "0")}
    assert rows == sorted(expected | {("u1", "9")})
    assert await client.get("p|u1|9", freshness=LATEST) == b"new"


async def test_a_batch_of_several_servers_says_that_it_is_of_no_revision(client: AsyncClient) -> None:
    await fill(client)
    batch = client.batch()
    for user in range(6):
        batch.get(f"p|u{user}|1")
    whole = await batch.send()
    assert isinstance(whole, Results)
    assert (whole.server_id, whole.revision) == (0, 0)
    assert whole.token.positions
    batch.get("p|u1|1")
    one = await batch.send()
    assert one.server_id == client.server_id != 0


async def test_put_and_get_of_a_key_go_to_one_server_where_servers_are_homes_and_computes(client: AsyncClient) -> None:
    for user in range(8):
        batch = client.batch()
        batch.put(f"p|v{user}|1", "x")
        batch.get(f"p|v{user}|1")
        assert list(await batch.send()) == [None, b"x"]


async def test_a_session_reads_its_writes_wherever_it_reads(client: AsyncClient) -> None:
    session = client.session()
    for number in range(30):
        poster, user = number % 5, (number + 1) % 5
        await session.put(f"s|u{user}|u{poster}", "1")
        await session.put(f"p|u{poster}|{number:03}", "x")
        keys = await session.keys(prefix=f"t|u{user}|")
        assert f"t|u{user}|{number:03}|u{poster}".encode() in keys
        assert await session.get(f"p|u{poster}|{number:03}") == b"x"


async def test_reads_of_a_session_s_batch_show_the_writes_before_them(client: AsyncClient) -> None:
    session = client.session()
    for number in range(10):
        batch = session.batch()
        batch.put(f"s|a{number}|b{number}", "1")
        batch.put(f"p|b{number}|1", "x")
        batch.scan(prefix=f"t|a{number}|")
        batch.remove(f"s|a{number}|b{number}")
        batch.count(prefix=f"t|a{number}|")
        *_, rows, removed, count = await batch.send()
        assert isinstance(rows, Rows)
        assert rows.keys == [b"t|a%d|1|b%d" % (number, number)]
        assert (removed, count) == (True, 0)


async def test_sessions_of_one_turn_share_batches(client: AsyncClient) -> None:
    await fill(client)
    sessions = [client.session() for _ in range(50)]
    for number, session in enumerate(sessions):
        await session.put(f"vote|u1|{number}", "1")
    sent = client.batches_sent
    counts = await asyncio.gather(*[session.get("karma|u1") for session in sessions])
    assert all(int(count or 0) > number for number, count in enumerate(counts))
    assert client.batches_sent - sent < 5


async def test_a_draining_server_gets_no_new_reads(site: Site, client: AsyncClient) -> None:
    await fill(client)
    name = owner(client, b"t|u1|")
    await client.get("t|u1|")
    drained = client.server_id
    await site.set_state(name, ServerState.DRAINING)
    await until(lambda: owner(client, b"t|u1|") != name)
    for user in range(6):
        await client.get(f"t|u{user}|")
        assert client.server_id not in (0, drained)


async def test_reads_of_a_hot_group_are_spread(site: Site, client: AsyncClient) -> None:
    await client.put("vote|u1|u2", "1")
    await site.tell(placements=(Placement(b"karma|", read_spread=2),))
    seen = set[int]()
    async with asyncio.timeout(30):
        while len(seen) < 2:
            assert await client.get("karma|u1", freshness=LATEST) == b"1"
            seen.add(client.server_id)
    for _ in range(50):
        await client.get("karma|u1")
        seen.add(client.server_id)
    assert len(seen) <= 3


async def test_a_write_of_several_home_groups_cannot_be_all_or_nothing(site: Site, client: AsyncClient) -> None:
    await site.tell(home_ranges=(HomeRange(b"p|", b"p}", "a"), HomeRange(b"s|", b"s}", "b")))
    link = client._link
    assert isinstance(link, ClusterConnection)
    await client.get("p|u1|1")
    with pytest.raises(MixedWriteError):
        await client.multi_put({"p|u1|1": "x", "s|u1|u2": "1"})
    assert await client.get("p|u1|1", freshness=LATEST) is None


async def test_an_invalidation_reaches_every_compute(site: Site, client: AsyncClient) -> None:
    await fill(client)
    for process in site.processes.values():
        async with AsyncClient(process.target) as single:
            await single.scan(prefix="t|u1|", freshness=LATEST)
    assert await client.invalidate_range("t|u1|", "t|u1}") == 3


async def test_calls_about_a_server_go_to_the_one_that_is_named(site: Site) -> None:
    for name, process in site.processes.items():
        async with AsyncClient(f"{site.target}?server={name}") as client, AsyncClient(process.target) as single:
            await client.joins()
            await single.joins()
            assert client.server_id == single.server_id
    async with AsyncClient(f"{site.target}?server=s9") as client:
        with pytest.raises(SettingError, match="no server of the cluster has the id 's9'"):
            await client.statistics()


async def test_many_readers_of_a_new_client_wait_for_one_map(site: Site) -> None:
    told = site.map_server.told
    async with AsyncClient(site.target) as client:
        assert await asyncio.gather(*[client.get(f"p|u{user}|1") for user in range(100)]) == [None] * 100
    assert site.map_server.told == told + 1


@pytest.mark.parametrize("retries", [0, 1])
async def test_without_a_server_that_tells_the_map_calls_fail(retries: int) -> None:
    async with AsyncClient("pequod+cluster://127.0.0.1:1,127.0.0.1:2", retries=retries, timeout_s=30) as client:
        for call in (client.get("p|a|1"), client.put("p|a|1", "x"), client.joins(), client.multi_get(["a"])):
            with pytest.raises(UnavailableError) as failed:
                await call
            assert failed.value.is_unapplied


async def test_a_server_that_is_in_no_cluster_says_so() -> None:
    with started_server() as (target, _):
        async with AsyncClient(f"pequod+cluster://{target}") as client:
            with pytest.raises(NoClusterError):
                await client.get("p|a|1")
        async with AsyncClient(f"pequod+cluster://127.0.0.1:1,{target}", retries=0) as client:
            with pytest.raises(NoClusterError):
                await client.joins()


async def test_a_dead_seed_is_skipped(site: Site) -> None:
    async with AsyncClient(f"pequod+cluster://127.0.0.1:1,{site.map_server.target}", retries=0) as client:
        assert await client.get("p|a|1") is None


async def test_a_client_that_is_closed_early_leaves_nothing(site: Site) -> None:
    client = AsyncClient(site.target)
    reading = asyncio.create_task(client.get("p|a|1"))
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(Exception, match="closed"):
        await reading
    with pytest.raises(Exception, match="closed"):
        await client.get("p|a|1")


async def test_callers_of_any_thread_have_the_same_client(site: Site) -> None:
    def work() -> list[tuple[bytes, bytes]]:
        with Client(site.target) as client:
            session = client.session()
            session.put("s|ann|bob", "1")
            for number in range(20):
                session.put(f"p|bob|{number:02}", "x")
            rows = session.scan(prefix="t|ann|")
            assert list(client.scan_iter(prefix="p|bob|", freshness=LATEST))
            assert client.multi_get(["p|bob|01", "p|cat|01"], freshness=LATEST) == [b"x", None]
            return rows

    assert len(await asyncio.to_thread(work)) == 20


async def test_every_command_takes_a_cluster_as_its_target(site: Site) -> None:
    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, [*arguments, "--target", site.target])
        assert done.exit_code == 0, done.output
        return done.stdout

    def work() -> None:
        run("put", "s|ann|bob", "1")
        run("put", "p|bob|01", "hi")
        assert run("scan", "--latest", "t|ann|", "t|ann}").strip() == "t|ann|01|bob\thi"
        assert run("get", "--latest", "p|bob|01").strip() == "hi"
        assert "karma" in run("join", "list")
        assert "keys" in run("stats")

    await asyncio.to_thread(work)
