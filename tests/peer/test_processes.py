"""Homes and computes as processes that are killed and stopped."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pequod.client import AsyncClient
from pequod.errors import StaleError
from pequod.freshness import Latest, MaxAge
from tests.forked import ForkedServer
from tests.peer.homes import LATEST, MAPPING, TIMELINE, sqlite


class Server:
    """A process with a server."""

    def __init__(self, *options: str) -> None:
        self.process = ForkedServer("--listen", "127.0.0.1:0", *options)
        self.address = self.process.target

    def client(self) -> AsyncClient:
        return AsyncClient(self.address, timeout_s=30.0)


@contextmanager
def serving(*options: str) -> Iterator[Server]:
    server = Server(*options)
    try:
        yield server
    finally:
        server.process.kill()


@contextmanager
def computing(*homes: Server) -> Iterator[Server]:
    backing = f"pequod://{','.join(home.address for home in homes)}"
    with serving("--backing", backing, "--backing-tables", "p,s", "--joins", TIMELINE) as server:
        yield server


@contextmanager
def stopped(server: Server) -> Iterator[None]:
    server.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[list[str]]:
    """Return the options of a home beside an SQLite database."""
    await sqlite(tmp_path / "posts.db")
    (tmp_path / "mapping.toml").write_text(MAPPING)
    path, mapping = str(tmp_path / "posts.db"), str(tmp_path / "mapping.toml")
    yield ["--backing", f"sqlite:{path}", "--backing-mapping", mapping, "--backing-mode", "write-through"]


async def test_a_home_that_is_killed_is_replaced_under_writes(database: list[str]) -> None:
    with serving(*database) as one, serving(*database) as two, computing(one, two) as compute:
        async with two.client() as writer, compute.client() as reader:
            await writer.put("s|ann|bob", "1")
            session = writer.session()
            for at in range(60):
                if at == 20:
                    one.process.kill()
                await session.put(f"p|bob|{at:04d}", "post")
                seen = await reader.session(session.token, wait_s=20).scan(prefix="t|ann|")
                assert len(seen) == at + 1
            statistics = (await reader.statistics()).backing
            assert statistics is not None
            assert statistics.reloads == 0


async def test_a_home_that_is_stopped_is_given_up_and_its_old_answers_claim_no_freshness(database: list[str]) -> None:
    with serving(*database) as one, serving(*database) as two, computing(one, two) as compute:
        async with two.client() as writer, compute.client() as reader:
            await writer.put("s|ann|bob", "1")
            assert await reader.scan(prefix="t|ann|", freshness=LATEST) == []
            with stopped(one):
                await writer.put("p|bob|0001", "post")
                rows = await reader.scan(prefix="t|ann|", freshness=Latest(wait_s=20))
                assert len(rows) == 1, "the other home was asked"


async def test_a_compute_that_is_stopped_slows_nobody_and_is_exact_afterwards() -> None:
    with serving("--peer-keep-bytes", "100KiB") as home, computing(home) as slow, computing(home) as quick:
        async with home.client() as writer, slow.client() as late, quick.client() as early:
            await writer.put("s|ann|bob", "1")
            for reader in (late, early):
                assert await reader.scan(prefix="t|ann|", freshness=LATEST) == []
            with stopped(slow):
                for start in range(0, 5000, 500):
                    rows = {f"p|bob|{at:04d}": "x" * 500 for at in range(start, start + 500)}
                    await writer.multi_put(rows)
                    assert await early.count(prefix="t|ann|", freshness=LATEST) == start + 500
            assert await late.count(prefix="t|ann|", freshness=Latest(wait_s=20)) == 5000


async def test_reads_of_loaded_ranges_go_on_while_no_home_answers_and_levels_are_refused() -> None:
    with serving() as home, computing(home) as compute:
        async with home.client() as writer, compute.client() as reader:
            await writer.put("s|ann|bob", "1")
            await writer.put("p|bob|0001", "post")
            rows = await reader.scan(prefix="t|ann|", freshness=LATEST)
            with stopped(home):
                await asyncio.sleep(0.3)
                assert await reader.scan(prefix="t|ann|") == rows
                for level in (Latest(wait_s=0.3), MaxAge(0.1, wait_s=0.3)):
                    with pytest.raises(StaleError):
                        await reader.scan(prefix="t|ann|", freshness=level)
            assert await reader.scan(prefix="t|ann|", freshness=Latest(wait_s=20)) == rows
