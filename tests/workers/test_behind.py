"""Workers with a database behind their home, by each transport: what is written by one is read by all, and stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pequod import Client
from pequod.freshness import Latest
from pequod.native.http2 import why_absent
from tests.backing.conftest import dsn, postgres
from tests.forked import run_command
from tests.workers.conftest import Workers, met_by, timeline

__all__ = ["dsn", "postgres"]

TRANSPORTS = [
    pytest.param("native", marks=pytest.mark.skipif(why_absent() is not None, reason="there is no native transport")),
    "grpcio",
]


@pytest.fixture(params=["sqlite", "postgres"])
def backing(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return a database with what the feed of changes needs."""
    place = f"sqlite:{tmp_path / 'base.db'}" if request.param == "sqlite" else request.getfixturevalue("dsn")
    done = run_command("backing", "install", "--generic", place)
    assert not done.code, done.err
    return str(place)


def flags(backing: str, transport: str) -> tuple[str, ...]:
    behind = ("--backing", backing, "--backing-tables", "p,s", "--backing-mode", "write-through")
    return (*behind, "--transport", transport)


def at_each_worker(server: Workers, count: int, read: Callable[[Client], object], wanted: object) -> None:
    """See that connections read the same at every worker."""
    seen: set[int] = set()
    while len(seen) < count:
        seen.add(met_by(server.target, lambda _: None))
        with Client(server.target) as client:
            assert read(client) == wanted


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_what_is_written_at_one_worker_is_read_at_all_and_outlives_them(backing: str, transport: str) -> None:
    posts = [(f"p|bob|{number:010}", f"post {number}") for number in range(12)]
    wanted = [(f"t|ann|{number:010}|bob".encode(), f"post {number}".encode()) for number in range(12)]

    def latest(client: Client) -> list[tuple[bytes, bytes]]:
        return list(client.scan("t|ann|", "t|ann}", freshness=Latest(30.0)))

    with Workers(3, *flags(backing, transport)) as server:
        with Client(server.target) as client:
            client.put("s|ann|bob", "1")
        for key, text in posts:
            with Client(server.target) as client:
                client.put(key, text)
                # A connection sees its own writes.
                assert client.get(key) == text.encode()
                assert timeline(client)[-1][1] == text.encode()
        at_each_worker(server, 3, latest, wanted)
        for name in ("w1", "w0"):
            server.kill_worker(name)
            server.hear("a worker serves again")
            with Client(server.target, timeout_s=60, retries=100) as client:
                assert latest(client) == wanted
        with Client(server.target) as client:
            client.remove(posts[0][0])
        at_each_worker(server, 3, latest, wanted[1:])
    with Workers(2, *flags(backing, transport)) as server:
        at_each_worker(server, 2, latest, wanted[1:])


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_without_a_database_each_transport_passes_reads_and_writes_on(transport: str) -> None:
    with Workers(3, "--transport", transport) as server:
        for number in range(10):
            with Client(server.target) as client:
                client.put(f"s|user{number}|bob", "1")
                client.put(f"p|bob|{number:010}", "Hi")
                assert len(timeline(client, f"user{number}")) == number + 1
                client.put("note|1", str(number))
                assert client.get("note|1") == str(number).encode()
