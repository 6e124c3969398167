"""A server whose database is larger than its memory: what was loaded goes and comes back, and answers are right."""

from __future__ import annotations

import asyncio

import pytest
from pequod_server import PequodServer, ServerConfig
from pequod_server.backing import FakeStore, parse_mappings

from pequod.client import AsyncClient
from pequod.engine import Engine
from pequod.errors import LimitExceededError

MAPPINGS = parse_mappings("""
[[mapping]]
keys = "s|<user>|<poster>"
table = "subscriptions"

[[mapping]]
keys = "p|<poster>|<time:4>"
table = "posts"
value = "body"
""")
TIMELINE = "t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"
POSTERS = 200


async def test_a_database_larger_than_the_memory_is_served() -> None:
    rows = {b"p|p%03d|%04d" % (poster, time): bytes(1000) for poster in range(POSTERS) for time in range(10)}
    rows |= {b"s|u%03d|p%03d" % (user, (user + step) % POSTERS): b"" for user in range(POSTERS) for step in range(5)}
    rows |= {b"s|all|p%03d" % poster: b"" for poster in range(POSTERS)}
    store = FakeStore(MAPPINGS)
    store.commit(rows)
    engine = Engine(backed=[b"s", b"p"], memory_limit=1 << 20)
    server = PequodServer(ServerConfig(listen="127.0.0.1:0", joins=TIMELINE), engine, store=store)
    target = f"127.0.0.1:{await server.start()}"
    try:
        async with AsyncClient(target) as client:
            for start in range(0, 2 * POSTERS, 20):
                users = [user % POSTERS for user in range(start, start + 20)]
                found = await asyncio.gather(*[client.scan(f"t|u{user:03}|", f"t|u{user:03}}}") for user in users])
                for user, timeline in zip(users, found, strict=True):
                    posters = sorted(f"p{(user + step) % POSTERS:03}" for step in range(5))
                    times = [f"t|u{user:03}|{time:04}|{poster}" for time in range(10) for poster in posters]
                    assert [key.decode() for key, _ in timeline] == times
            assert server.engine.make_room()
            memory = (await client.statistics()).memory
            assert memory.evictions > POSTERS
            assert 0 < memory.loaded_bytes < memory.limit_bytes
            # What needs more than there is is refused, and others go on.
            with pytest.raises(LimitExceededError, match="memory_limit"):
                await client.scan("t|all|", "t|all}")
            assert len(await client.scan("t|u007|", "t|u007}")) == 50
    finally:
        await server.stop()
    server.engine._check()
