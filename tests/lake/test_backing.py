"""A server before a lake: loads, the feed of SCUs, write-through, joins that are exact at the SCU."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pequod_lake import IngestLimits, Lake, MergePolicy
from pequod_server import PequodServer, ServerConfig
from pequod_server.backing import Changes, Event, KeyRange, Progress, Reload, SchemaError, parse_mappings
from pequod_server.backing.lake.store import LakeStore
from typer.testing import CliRunner, Result

from pequod.cli.app import app
from pequod.client import AsyncClient
from pequod.errors import PackError
from tests.lake.twip import JOIN, MAPPING, SCHEMA, USERS, Twip

EVERYTHING = [KeyRange(b"p|", b"p}"), KeyRange(b"s|", b"s}")]


@pytest.fixture
def lake(make: Callable[[str], Lake]) -> Lake:
    return make(SCHEMA)


@asynccontextmanager
async def serving(lake: Lake, tmp_path: Path, **settings: object) -> AsyncIterator[tuple[PequodServer, AsyncClient]]:
    mapping = tmp_path / "mapping.toml"
    mapping.write_text(MAPPING)
    backing: dict[str, object] = {"backing": f"lake:{lake.folder}", "backing_mapping": mapping}
    server = PequodServer(ServerConfig(listen="127.0.0.1:0", joins=JOIN, **backing, **settings))  # type: ignore[arg-type]
    port = await server.start()
    try:
        async with AsyncClient(f"127.0.0.1:{port}") as client:
            yield server, client
    finally:
        await server.stop()
        server.engine._check()


async def test_timelines_equal_a_recomputation_while_scus_come_and_are_merged(lake: Lake, tmp_path: Path) -> None:
    with lake.ingestor(IngestLimits(scu_age_s=0)) as ingestor:
        twip = Twip(ingestor, 1)
        worker = lake.worker(MergePolicy(fan_in=3, authority_after_s=0.2))
        for _ in range(20):
            twip.write()
        worker.drain()
        async with serving(lake, tmp_path) as (server, client):
            assert server.loader is not None
            for turn in range(25):
                await asyncio.to_thread(twip.write)
                if turn % 3 == 0:
                    await asyncio.to_thread(worker.step)
                if turn % 5 == 0:
                    await server.loader.caught_up()
                    for user in USERS:
                        expected = twip.timeline(user)
                        assert list(await client.scan(f"t|{user}|", f"t|{user}}}")) == expected
            assert server.loader.counters.changes_applied > 0
        worker.close()


async def test_the_feed_tells_each_scu_so_that_a_copy_equals_the_lake(lake: Lake) -> None:
    with lake.ingestor(IngestLimits(scu_age_s=0)) as ingestor:
        twip = Twip(ingestor, 2)
        for _ in range(5):
            twip.write()
        store = LakeStore(lake.folder, parse_mappings(MAPPING))
        assert await store.check() == []
        mark = await store.mark()
        feed = store.changes()
        first = await anext(feed)
        assert isinstance(first, Progress)
        assert first.position == 5
        loaded = await store.load(EVERYTHING)
        assert dict(loaded.rows) == twip.rows()
        copy = dict(loaded.rows)
        worker = lake.worker(MergePolicy(fan_in=2, authority_after_s=0))
        for _ in range(12):
            scu = await asyncio.to_thread(twip.write)
            await asyncio.to_thread(worker.step)
            event = await anext(feed)
            assert isinstance(event, Changes)
            assert event.position == scu
            apply(copy, event)
            assert copy == twip.rows()
        assert await store.knows(mark)
        assert not await store.knows(mark.replace(" 5 ", " 4 "))
        await store.close()
        # A feed that comes back goes on from its SCU, or has everything loaded again.
        again = LakeStore(lake.folder, parse_mappings(MAPPING))
        feed = again.changes(since=15)
        assert isinstance(await anext(feed), Progress)
        told = [await anext(feed), await anext(feed)]
        assert [event.position for event in told] == [16, 17]
        await again.close()
        worker.compact()
        worker.close()
        lake.expire(0.0)
        last = LakeStore(lake.folder, parse_mappings(MAPPING))
        event = await anext(last.changes(since=3))
        assert isinstance(event, Reload)
        assert dict((await last.load(EVERYTHING)).rows) == twip.rows()
        await last.close()


def apply(copy: dict[bytes, bytes], event: Event) -> None:
    assert isinstance(event, Changes)
    for change in event.changes:
        if change.value is None:
            copy.pop(change.key, None)
        else:
            copy[change.key] = change.value


async def test_what_is_put_in_write_through_is_in_the_lake_and_in_timelines(lake: Lake, tmp_path: Path) -> None:
    async with serving(lake, tmp_path, backing_mode="write-through") as (_, client):
        await client.put("s|ann|bob", "")
        await client.put("p|bob|0000000007", "hi")
        await client.put("p|bob|0000000008", "there")
        assert await client.remove("p|bob|0000000008")
        assert list(await client.scan("t|ann|", "t|ann}")) == [(b"t|ann|0000000007|bob", b"hi")]
        with pytest.raises(PackError):
            await client.put("p|bob|x", "no number")
    with lake.snapshot() as snapshot:
        assert snapshot.scan("posts").rows.to_pylist() == [{"poster": "bob", "at": 7, "body": "hi"}]


async def test_a_mapping_that_does_not_fit_is_refused_with_all_reasons(lake: Lake) -> None:
    text = """
[[mapping]]
keys = "p|<poster>"
table = "posts"
where = "body <> ''"

[[mapping]]
keys = "q|<at>|<poster>"
table = "posts"

[[mapping]]
keys = "r|<x>"
table = "nothing"
"""
    store = LakeStore(lake.folder, parse_mappings(text))
    with pytest.raises(SchemaError) as caught:
        await store.check()
    assert [word in str(caught.value) for word in ("no `where`", "at of the primary key", "slot <at>", "no table")] == [
        True
    ] * 4
    await store.close()


def test_backing_check_compares_a_mapping_with_a_lake(tmp_path: Path) -> None:
    mapping, folder = tmp_path / "twip.toml", tmp_path / "lake"
    mapping.write_text(MAPPING)

    def check() -> Result:
        return CliRunner().invoke(app, ["backing", "check", str(mapping), f"lake:{folder}"])

    assert check().exit_code == 4
    Lake.create(folder, SCHEMA).close()
    outcome = check()
    assert outcome.exit_code == 0
    assert "ok: s|<user>|<poster> <- follows" in outcome.stdout.splitlines()
    mapping.write_text(MAPPING.replace('value = "body"', 'value = "text"'))
    outcome = check()
    assert outcome.exit_code == 3
    assert "text" in outcome.stderr
