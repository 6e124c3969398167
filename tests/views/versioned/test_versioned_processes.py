"""`pequod versioned` as processes of their own: over files, and over servers of Redis that are killed."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

import pytest
from pequod_views.versioned import Update
from pequod_views.versioned.rows import base_column

from tests.forked import run_command
from tests.views.versioned.servers import RedisServers, skip_without_redis
from tests.views.versioned.test_versioned_cli import FILE, REPLICAS, UPDATES, file, written

__all__ = ["file"]

_WAIT_S: Final = 60.0


@contextmanager
def serving(file: Path) -> Iterator[tuple[IO[str], Path]]:
    """Run `pequod versioned serve`, and see that it ends in order when it is told to; yield what it writes and says."""
    command = [sys.executable, "-m", "pequod.cli", "versioned", "serve", str(file), "--every", "0.2", "--json"]
    says = file.with_suffix(".err")
    with says.open("w") as errors, subprocess.Popen(command, stdout=-1, stderr=errors, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout, says
            process.send_signal(signal.SIGTERM)
            assert process.wait(_WAIT_S) == 0, says.read_text()
        finally:
            process.kill()
    assert "Traceback" not in says.read_text()


async def write(urls: list[str], update: Update) -> None:
    """Write a base cell, as a program that died before it propagated it."""
    from pequod_views.versioned.redis_store import RedisReplicas

    store = RedisReplicas(urls)
    await store.put(update.table, update.key, {base_column(update.column): update.cell}, 2)
    await store.close()


def read_until_propagated(out: IO[str], count: int) -> None:
    """Read what sweeps have done until they have propagated some rows."""
    while count > 0:
        line = out.readline()
        assert line, "it has ended"
        count -= json.loads(line)["propagated"]


def test_serve_propagates_what_programs_leave_until_it_is_told_to_end(file: Path) -> None:
    written(file.parent, *UPDATES)
    with serving(file) as (out, _):
        read_until_propagated(out, 3)
    outcome = run_command("versioned", "check", str(file))
    assert (outcome.code, outcome.out) == (0, "2 records, 0 not propagated yet, 0 wrong\n"), outcome.err


def test_servers_that_are_away_are_named_and_waited_for(tmp_path: Path) -> None:
    skip_without_redis()
    file = tmp_path / "versioned.toml"
    with RedisServers(tmp_path) as servers:
        file.write_text(FILE.replace(REPLICAS, json.dumps(servers.urls)[1:-1]))
        with serving(file) as (out, says):
            assert out.readline()
            for number in (0, 1):
                servers.kill(number)
            end_s = time.monotonic() + _WAIT_S
            while "1 replicas answered, and 2 have to: unix:///" not in says.read_text():
                assert time.monotonic() < end_s, says.read_text()
                time.sleep(0.02)
            assert "redis0/socket" in says.read_text()
            outcome = run_command("versioned", "sweep", str(file))
            assert (outcome.code, "1 replicas answered, and 2 have to" in outcome.err) == (4, True), outcome.err
            servers.start(0)
            asyncio.run(write(servers.urls, UPDATES[0]))
            read_until_propagated(out, 1)


@pytest.mark.parametrize("name", ["redis://127.0.0.1:1", "unix:///nowhere/socket"])
def test_one_server_under_two_names_is_refused(tmp_path: Path, name: str) -> None:
    """A name that nothing answers to is none of them."""
    skip_without_redis()
    file = tmp_path / "versioned.toml"
    with RedisServers(tmp_path, 1) as servers:
        (url,) = servers.urls
        (tmp_path / "link").symlink_to(tmp_path / "redis0")
        for other in (f"unix://{tmp_path}/link/socket", f"unix://{tmp_path}/./redis0/socket?db=0"):
            names = json.dumps([url, other, name])[1:-1]
            file.write_text(FILE.replace(REPLICAS, names))
            outcome = run_command("versioned", "check", str(file))
            assert outcome.code == 2
            assert "it is one replica, and counts as 2" in outcome.err
