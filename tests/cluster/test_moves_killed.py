"""A range moves between two databases under writes while its command, a home or a node of etcd is killed."""

from __future__ import annotations

import asyncio
import math
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pequod_server.backing import SqliteStore
from pequod_server.backing.mapping import Mapping
from typer.testing import CliRunner

from pequod import Client
from pequod.cli.app import app
from pequod.errors import NotHomeError, PequodError
from tests.cluster.conftest import Etcd
from tests.cluster.test_commands import COMMAND, Servers, servers

__all__ = ["servers"]

ROWS = {f"p|m|{number:05}".encode(): b"%d" % number for number in range(4000)}
#: A lease of etcd has to end before a killed server comes back.
PATIENCE_S = 60.0


@dataclass
class Writer:
    """Writes keys of the range, one after the other, until it is told to stop: puts, sums, and keys that go again."""

    address: str
    prefix: bytes
    certain: dict[bytes, bytes] = field(default_factory=dict)
    unknown: dict[bytes, bytes] = field(default_factory=dict)
    removed: set[bytes] = field(default_factory=set)
    _is_over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        number = 0
        with Client(self.address, timeout_s=5.0) as client:
            while not self._is_over.is_set():
                number += 1
                key, value = b"%b%06d" % (self.prefix, number), b"%d" % number
                try:
                    if number % 3 == 0:
                        client.put(key, value, ttl_s=3_600)
                    else:
                        client.add(key, number)
                    self.certain[key] = value
                    if number % 3 == 1:
                        # What is removed has no certain end before that is answered.
                        self.unknown[key] = self.certain.pop(key)
                        client.remove(key)
                        self.removed.add(key)
                        del self.unknown[key]
                except NotHomeError:
                    pass
                except PequodError:
                    self.unknown.setdefault(key, value)
                time.sleep(0.02)

    def stop(self) -> None:
        self._is_over.set()


@pytest.fixture
def databases(tmp_path: Path) -> Iterator[dict[str, list[str]]]:
    """Make a database for each of two homes; return the options of each."""
    options = {}
    for home, group in (("h1", "a"), ("h2", "b")):
        store = SqliteStore(tmp_path / f"{home}.db", (Mapping.generic([b"p"]),))

        async def install(store: SqliteStore = store) -> None:
            await store.install()
            await store.close()

        asyncio.run(install())
        backing = [
            "--backing",
            f"sqlite:{tmp_path / home}.db",
            "--backing-tables",
            "p",
            "--backing-mode",
            "write-through",
        ]
        options[home] = [*backing, "--cluster-roles", "home", "--cluster-group", group]
    yield options


def begun(servers: Servers, databases: dict[str, list[str]]) -> str:
    """Start two homes, of which the first has the range, and a compute; return the compute's address."""
    servers.run("init", servers.place)
    servers.run("add-home", servers.place, "a", "p")
    for home, options in databases.items():
        servers.start(home, *options)
    return servers.start("c1")


@pytest.mark.parametrize("victim", ["command", "h1", "h2", "etcd"])
def test_a_move_loses_nothing_when_something_is_killed_in_the_middle(
    servers: Servers, etcd: Etcd, databases: dict[str, list[str]], victim: str
) -> None:
    place = servers.place
    compute = begun(servers, databases)
    with Client(compute) as client:
        client.multi_put(ROWS)
    # A compute refuses what moves by itself; the old home is asked, too.
    writers = [Writer(compute, b"p|w|"), Writer(servers.addresses["h1"], b"p|x|")]
    threads = [threading.Thread(target=writer.run) for writer in writers]
    for thread in threads:
        thread.start()
    try:
        time.sleep(0.3)
        command = [*COMMAND, "cluster", "move", place, "p|m", "p}", "--to", "b"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as moving:
            assert moving.stderr is not None
            said = moving.stderr.readline()
            assert "rows are copied while writes are taken" in said, said + moving.stderr.read()
            if victim == "command":
                moving.kill()
            elif victim == "etcd":
                etcd.leader.kill()
            else:
                servers.signal(victim, signal.SIGKILL)
                servers.wait(victim)
            moving.stderr.read()
            code = moving.wait()
        assert code != 0 or victim == "etcd", "it was in the middle"
        if victim == "etcd":
            etcd.start()
        elif victim != "command":
            servers.start(victim, *databases[victim])
        end_s = time.monotonic() + PATIENCE_S
        while True:
            done = CliRunner().invoke(app, command[command.index("cluster") :])
            if done.exit_code == 0 or "it is in b already" in done.output:
                break
            assert time.monotonic() < end_s, done.output
            time.sleep(0.5)
        time.sleep(0.5)
    finally:
        for writer, thread in zip(writers, threads, strict=True):
            writer.stop()
            thread.join()
    certain = writers[0].certain | writers[1].certain
    unknown = writers[0].unknown | writers[1].unknown
    old, new = (servers.addresses[home] for home in databases)
    with Client(compute) as client, Client(new) as after, Client(old) as before:
        rows = dict(client.scan("p|m", "p}"))
        assert rows == dict(after.scan("p|m", "p}"))
        assert (ROWS | certain).items() <= rows.items()
        assert rows.items() <= (ROWS | certain | unknown).items()
        with pytest.raises(NotHomeError):
            before.put("p|m|00001", "")
        assert not rows.keys() & (writers[0].removed | writers[1].removed)
        timed = [key for key in certain if int(certain[key]) % 3 == 0]
        assert all(0 < (after.ttl(key) or 0) < math.inf for key in timed)
    assert all(writer.certain and writer.removed for writer in writers)
