"""Backfills over a real socket: what is read, loaded, told, and when they end."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import AsyncIterator
from dataclasses import replace
from random import Random

import pytest
from pequod_proto import pequod_pb2 as pb
from pequod_server import PequodServer, ServerConfig

from pequod.calls import BackfillStatus
from pequod.client import AsyncClient
from pequod.engine import Piece
from pequod.errors import (
    BackfillEndedError,
    InvalidPieceError,
    LimitExceededError,
    NotBackfillableError,
    UnknownBackfillError,
)
from tests.engine.backfilling import draw_pieces

JOINS = """
t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:4>;
n|<user> = check s|<user>|<poster> count p|<poster>|<time:4>;
m|<user>|all = check s|<user>|<poster> max p|<poster>|<time:4>;
l|<time:4> = check s|<user>|<poster> copy p|<poster>|<time:4>;
f|<user> = pull count s|<user>|<poster>
"""


@pytest.fixture
async def server() -> AsyncIterator[PequodServer]:
    config = ServerConfig(listen="127.0.0.1:0", joins=JOINS, reply_bytes_max=2000, rows_max=20, backfills_max=2)
    server = PequodServer(config)
    server.port = await server.start()  # type: ignore[attr-defined]
    yield server
    await server.stop()
    server.engine._check()


@pytest.fixture
async def client(server: PequodServer) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(f"127.0.0.1:{server.port}") as client:  # type: ignore[attr-defined]
        random = Random(1)
        users = [f"u{number:02}" for number in range(30)]
        await client.multi_put([(f"s|{user}|{other}", "1") for user in users for other in random.sample(users, 4)])
        await client.multi_put([(f"p|{random.choice(users)}|{time:04}", f"post {time % 7}") for time in range(100)])
        yield client


def request_of(status: BackfillStatus, pieces: list[Piece]) -> pb.LoadBackfillRequest:
    request = pb.LoadBackfillRequest(id=status.id, join=status.join)
    for piece in pieces:
        request.firsts.append(piece.first)
        request.lasts.append(piece.last)
        request.row_counts.append(len(piece.tails))
        for column, entries, at in (
            (piece.tails, request.tails, request.tail_at),
            (piece.values, request.values, request.value_at),
            (piece.source_keys, request.source_keys, request.source_key_at),
        ):
            at.extend(range(len(entries), len(entries) + len(column)))
            entries.extend(column)
        request.times.extend(piece.times)
    return request


@pytest.mark.parametrize("join", ["t", "n", "m", "l"])
async def test_what_is_loaded_while_others_write_is_exact(server: PequodServer, client: AsyncClient, join: str) -> None:
    base = dict(await client.scan("p|", "p}")) | dict(await client.scan("s|", "s}"))
    status = await client.backfills.begin(join)
    (backfill,) = server.engine.backfills
    pieces = draw_pieces(Random(2), backfill, base)
    seen: dict[bytes, bytes] = {}
    for number, piece in enumerate(pieces):
        await client.put(f"p|u{number % 30:02}|{200 + number:04}", "new")
        await client.remove(f"p|u{number % 30:02}|{number:04}")
        await client.put(f"s|u{number % 30:02}|u{number * 7 % 30:02}", "1")
        await client.remove(f"s|u{number * 3 % 30:02}|u{number * 5 % 30:02}")
        await client.backfills.load(request_of(status, [piece]))
        await client.scan(piece.first, piece.last)
    for first, last in status.sources:
        at: bytes | None = first
        while at is not None:
            page, at = await client.backfills.read(status, at, last)
            seen.update(zip(*page, strict=True))
        digest = await client.backfills.digest(status, first, last)
        within = [row for row in base.items() if first <= row[0] < last]
        assert digest == (len(within), sum(zlib.crc32(b"\0".join(row)) for row in within))
    assert seen == base
    computed = server.engine.statistics().joins[join].computed_ranges
    assert computed == 0, "reads of what was loaded computed something"
    loaded = await client.scan(prefix=f"{join}|")
    server.engine.evict(10_000)
    assert loaded == await client.scan(prefix=f"{join}|")
    (before,) = await client.backfills.list()
    assert before.record_keys
    assert (before.ranges_loaded, before.pieces_skipped) == (len(pieces), 0)
    ended = await client.backfills.end(status, "finished")
    assert ended == replace(before, ended="finished", age_s=ended.age_s, lease_s=0.0)
    server.engine.evict(1_000_000)
    await client.drop_join(join)
    await client.put("p|u01|9999", "after the end")
    assert await client.backfills.list() == [ended], "what became of it does not change any more"


async def test_what_ends_a_backfill_leaves_its_counts(client: AsyncClient) -> None:
    """Its join is dropped, and nobody asks about it for a while."""
    began_s = time.monotonic()
    status = await client.backfills.begin("t")
    await client.put("p|u01|0500", "new")
    (before,) = await client.backfills.list()
    await client.drop_join("t")
    ended_s = time.monotonic()
    await asyncio.sleep(3)
    (ended,) = await client.backfills.list()
    assert ended == replace(before, ended="the join was dropped", age_s=ended.age_s, lease_s=0.0)
    assert (ended.record_keys, ended.id) == (1, status.id)
    assert before.record_bytes == ended.record_bytes > 0
    # The server looks twice a second which ones have ended.
    assert ended.age_s < ended_s - began_s + 2, "the age is that of its end, not that of the next look"


async def test_a_backfill_of_whose_driver_nothing_is_heard_ends(client: AsyncClient, server: PequodServer) -> None:
    status = await client.backfills.begin("t", lease_s=0.05)
    while (await client.backfills.list())[0].ended == "":  # noqa: ASYNC110 -- a server tells nobody of it
        await asyncio.sleep(0.01)
    with pytest.raises(BackfillEndedError, match="nothing was heard of its driver"):
        await client.backfills.renew(status, "late")
    assert not list(server.engine.backfills)
    await client.backfills.end(status, "finished")


async def test_a_driver_that_is_heard_of_keeps_its_backfill(client: AsyncClient) -> None:
    status = await client.backfills.begin("t", lease_s=100)
    (before,) = await client.backfills.list()
    told = await client.backfills.renew(status, "computing", 9)
    assert before.lease_s < told.lease_s <= 100
    (shown,) = await client.backfills.list()
    assert (shown.stage, shown.rows_expected, shown.revision, shown.ended) == ("computing", 9, status.revision, "")


async def test_there_are_limits(client: AsyncClient) -> None:
    first = await client.backfills.begin("t")
    await client.backfills.begin("n")
    with pytest.raises(LimitExceededError, match="backfills_max is 2"):
        await client.backfills.begin("m")
    with pytest.raises(NotBackfillableError):
        await client.backfills.end(first, "cancelled")
        await client.backfills.begin("f")
    with pytest.raises(BackfillEndedError, match="cancelled"):
        await client.backfills.load(pb.LoadBackfillRequest(id=first.id, join="t"))
    with pytest.raises(UnknownBackfillError):
        await client.backfills.load(pb.LoadBackfillRequest(id=first.id, join="n"))


@pytest.mark.parametrize(
    "columns",
    [
        {"firsts": [b"t|u01|"]},
        {"row_counts": [1]},
        {"firsts": [b"t|u01|"], "lasts": [b"t|u01}"], "row_counts": [1], "tail_at": [0]},
        {"firsts": [b"t|u01|"], "lasts": [b"t|u01}"], "row_counts": [1], "tails": [b"x"], "tail_at": [0]},
        {"firsts": [b"t|u01|"], "lasts": [b"t|u01}"], "row_counts": [1 << 31], "tails": [b"x"], "tail_at": [0]},
    ],
)
async def test_columns_that_do_not_fit_are_refused(client: AsyncClient, columns: dict[str, list[object]]) -> None:
    status = await client.backfills.begin("t")
    with pytest.raises(InvalidPieceError):
        await client.backfills.load(pb.LoadBackfillRequest(id=status.id, join="t", **columns))  # type: ignore[arg-type]
    assert (await client.statistics()).joins["t"].contexts == 0
