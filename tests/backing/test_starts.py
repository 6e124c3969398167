"""How `pequod serve` starts and ends, as a supervisor sees it: exit codes, states, what it waits for."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from aiohttp import ClientSession
from pequod_server import PequodServer, ServerConfig

from pequod.errors import PequodError
from tests.backing.conftest import Connection
from tests.backing.test_twip import Database
from tests.backing.test_twip import database as database_of_twip
from tests.forked import run_command
from tests.peer.homes import fake, running

__all__ = ["database_of_twip"]

MAPPING = (
    '[[mapping]]\nkeys = "p|<poster>|<time:4>"\ntable = "posts"\nslots.time = { column = "at", type = "integer" }\n'
)


@contextmanager
def served(*options: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "pequod.cli", "serve", "--listen", "127.0.0.1:0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **variables}) as process:
        yield process
        process.kill()


@pytest.fixture
def mapping(tmp_path: Path) -> str:
    path = tmp_path / "twip.toml"
    path.write_text(MAPPING)
    return str(path)


def test_a_start_that_fails_ends_with_the_code_of_its_reason(mapping: str, tmp_path: Path) -> None:
    away = ["--backing", "postgresql://twip@127.0.0.1:1/twip", "--backing-mapping", mapping]
    (tmp_path / "bad.snapshot").write_text("no snapshot")
    for code, options, reason in (
        (2, ["--key-bytes-max", "many"], "--key-bytes-max"),
        (2, ["--joins", "t|<a> = coutn p|<a>"], "coutn"),
        (2, ["--listen", "0.0.0.0:0"], "plain text"),
        (3, ["--snapshot-file", str(tmp_path / "bad.snapshot")], "snapshot"),
        (3, ["--listen", "192.0.2.1:7744", "--insecure"], "cannot listen"),
        (4, away, "is not available"),
    ):
        ended = run_command("serve", "--listen", "127.0.0.1:0", *options)
        assert ended.code == code, ended.err
        assert reason in ended.err
        assert "Traceback" not in ended.err


async def test_a_start_says_what_it_waits_for_and_can_be_stopped(mapping: str, dsn: str, database: Connection) -> None:
    await database.execute("CREATE PUBLICATION pequod FOR TABLE posts")
    await database.execute("ALTER TABLE posts REPLICA IDENTITY FULL")
    transaction = database.transaction()
    await transaction.start()
    await database.execute("INSERT INTO posts (poster, at) VALUES ('bob', 1)")
    try:
        with served("--backing", dsn, "--backing-mapping", mapping) as process:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert "the start waits" in line
            assert "a new replication slot waits for the transactions that are open" in line
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
            said = process.stderr.read()
            assert said.endswith("pequod stopping before it has started\n"), said
    finally:
        await transaction.rollback()


def test_systemd_is_told_when_it_serves_and_stops(tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(path)
        channel.settimeout(30)
        with served(NOTIFY_SOCKET=path) as process:
            states = channel.recv(4096).decode().splitlines()
            assert states[0] == "READY=1"
            assert states[1].startswith("STATUS=serving on 127.0.0.1:")
            process.send_signal(signal.SIGTERM)
            assert channel.recv(4096).decode().splitlines() == ["STOPPING=1", "STATUS=stopping"]
            assert process.wait(30) == 0


@pytest.mark.parametrize("database_of_twip", ["slot"], indirect=True)
async def test_a_second_server_with_the_same_slot_says_so_while_it_waits(
    database_of_twip: Database, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(**database_of_twip.config):  # type: ignore[arg-type]
        second = PequodServer(ServerConfig(listen="127.0.0.1:0", **database_of_twip.config))  # type: ignore[arg-type]
        starting = asyncio.create_task(second.start())

        def is_told() -> bool:
            lines = [getattr(record, "error", "") for record in caplog.records]
            return all(
                any("uses the replication slot pequod" in one for one in some) for some in ([second.waits_for], lines)
            )

        while not is_told():
            assert not starting.done(), "the start ended before it said why it waits"
            await asyncio.sleep(0.01)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await second.stop()


async def test_a_server_whose_feed_is_older_than_it_may_be_is_not_ready() -> None:
    async with running(fake(), metrics="127.0.0.1:0") as home, ClientSession() as http:
        loader, url = home.server.loader, f"{home.server.instruments.url}/readyz"
        assert loader is not None
        async with http.get(url) as reply:
            assert (reply.status, await reply.text()) == (200, "ready\n")
        clock, loader._clock = loader._clock, lambda: clock() + ServerConfig().backing_stale_max_s + 1
        async with http.get(url) as reply:
            assert reply.status == 503
            assert "backing_stale_max_s is 300" in await reply.text()
        with pytest.raises(PequodError, match="backing_stale_max_s is 300"):
            await home.client.scan("p|", "p}")
        loader._clock = clock
        async with http.get(url) as reply:
            assert reply.status == 200
