"""What callers learn from errors of the database: that it refuses or does not answer, and nothing of what is there."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server import PequodServer, ServerConfig
from pequod_server.backing import parse_mappings
from pequod_server.backing.postgres.store import PostgresStore

from pequod.commands.kinds import FAILED, GET, PUT
from tests.backing.conftest import Connection

MAPPING = """
[[mapping]]
keys = "p|<poster>|<time:4>"
table = "posts"
slots.time = { column = "at", type = "integer" }
value = "body"
where = "NOT hidden"
"""
#: What no caller may learn: where the database is and as whom, SQL, and rows that the mapping hides.
PRIVATE = ["postgres", "pequod-pg", "SELECT", "DETAIL", "Failing row", "hunter2", "already exists", "b'", "asyncpg"]


@pytest.fixture
async def server(dsn: str, database: Connection, tmp_path: Path) -> AsyncIterator[PequodServer]:
    await database.execute("CREATE UNIQUE INDEX one_body ON posts (body); ALTER TABLE posts ADD CHECK (body <> 'bad')")
    await database.execute("INSERT INTO posts (poster, at, body, hidden) VALUES ('liz', 1, 'hunter2', true)")
    store = PostgresStore(dsn, parse_mappings(MAPPING), mode="notify")
    await store.install()
    await store.close()
    (tmp_path / "twip.toml").write_text(MAPPING)
    server = PequodServer(
        ServerConfig(
            listen="127.0.0.1:0",
            backing=dsn,
            backing_mapping=tmp_path / "twip.toml",
            backing_feed="notify",
            backing_mode="write-through",
            backing_stale_max_s=3,
        )
    )
    server.port = await server.start()  # type: ignore[attr-defined]
    yield server
    await server.close()


@pytest.fixture
async def stub(server: PequodServer) -> AsyncIterator[Any]:
    async with aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:  # type: ignore[attr-defined]
        yield PequodStub(channel)  # type: ignore[no-untyped-call]


async def _said(stub: Any, key: bytes, value: bytes | None = None) -> list[str]:
    """Read or write a key in both ways; return all that is told of the failures."""
    call = stub.Get(pb.GetRequest(key=key)) if value is None else stub.Put(pb.PutRequest(key=key, value=value))
    with pytest.raises(aio.AioRpcError) as caught:
        await call
    metadata = b"".join(bytes(data) for _, data in caught.value.trailing_metadata() if isinstance(data, bytes))
    kinds, arguments = (bytes([GET]), [key]) if value is None else (bytes([PUT]), [key, value])
    stream = stub.Execute()
    await stream.write(pb.ExecuteRequest(batch=1, kinds=kinds, arguments=arguments))
    reply = await stream.read()
    assert list(reply.statuses) == [FAILED]
    stream.cancel()
    return [caught.value.details() or "", metadata.decode("utf-8", "replace"), str(reply.errors[0])]


def _tells_nothing(said: list[str]) -> None:
    for text in said:
        assert not [word for word in PRIVATE if word in text], text


async def test_a_refused_write_tells_the_constraint_and_no_rows(stub: Any) -> None:
    said = await _said(stub, b"p|bob|0002", b"hunter2")
    assert "one_body" in said[0]
    _tells_nothing([text.replace("one_body", "") for text in said])
    said = await _said(stub, b"p|bob|0002", b"bad")
    assert "posts_body_check" in said[0]
    _tells_nothing(said)
    said = await _said(stub, b"p|b\xff|0001", b"x")
    assert r"key 'p|b\xff|0001'" in said[0]
    _tells_nothing(said)


async def test_a_database_that_is_away_is_not_described(
    stub: Any, server: PequodServer, database: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "pequod.server")
    await database.execute("ALTER TABLE posts RENAME COLUMN body TO secret_words")
    said = await _said(stub, b"p|new|0001")
    _tells_nothing(said)
    assert "secret" not in "".join(said)
    records = [vars(record) for record in caplog.records]
    noted = {record["number"]: record["reason"] for record in records if "number" in record}
    assert [number for number in noted if f"the server's log has more under {number}" in said[0]]
    assert any("body" in reason for reason in noted.values())
