"""A primary that is killed under load, with Patroni: `python -m tests.cluster_faults.patroni` (`make cluster-patroni`).

    writers -> c1 c2 c3 -> h1 h2 -> PostgreSQL n1 (killed) | n2 (its synchronous standby), led by Patroni and etcd

Patroni finds out by its lease, 20 s, and promotes the standby. No write that was answered is lost, and all timelines
are what the database has. It takes Patroni, etcd and PostgreSQL, and a minute and a half.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import psutil
from pequod_bench.systems.server import free_port
from pequod_bench.systems.site import started_etcd

from tests.backing.conftest import binaries
from tests.cluster_faults.chaos import READERS, Written, check, write
from tests.cluster_faults.site import FaultSite

_START_S_MAX = 90.0


class PatroniNode:
    """A PostgreSQL and the Patroni that leads it."""

    def __init__(self, program: str, name: str, folder: Path, etcd: list[str]) -> None:
        self.name = name
        self._program = program
        self._rest = f"127.0.0.1:{free_port()}"
        self.port = free_port()
        self._folder = folder / name
        self._folder.mkdir()
        self._data = self._folder / "data"
        programs = binaries()
        assert programs is not None, "PostgreSQL is not installed"
        trust = ["local all all trust", "host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"]
        settings = {
            "scope": "pequod",
            "name": name,
            "restapi": {"listen": self._rest, "connect_address": self._rest},
            "etcd3": {"hosts": etcd},
            "bootstrap": {
                "dcs": {
                    "ttl": 20,
                    "loop_wait": 2,
                    "retry_timeout": 5,
                    # A write is answered once the standby has it.
                    "synchronous_mode": True,
                    "postgresql": {"parameters": {"wal_level": "logical", "max_replication_slots": 10}},
                },
                "initdb": ["no-sync", {"encoding": "UTF8"}, {"locale": "C.UTF-8"}],
            },
            "postgresql": {
                "listen": f"127.0.0.1:{self.port}",
                "connect_address": f"127.0.0.1:{self.port}",
                "data_dir": str(self._data),
                "bin_dir": str(programs),
                "pgpass": str(self._folder / "pgpass"),
                "authentication": {"superuser": {"username": "postgres"}, "replication": {"username": "replicator"}},
                "pg_hba": trust,
                "parameters": {"unix_socket_directories": str(self._folder), "fsync": "off"},
            },
        }
        self._settings = self._folder / "patroni.yml"
        # JSON is YAML.
        self._settings.write_text(json.dumps(settings))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start Patroni, as another user if we are root: PostgreSQL does not run as root."""
        as_user: list[str] = []
        if os.getuid() == 0:
            as_user = ["setpriv", "--reuid=nobody", "--clear-groups", "--"]
            for path in (self._folder, *self._folder.iterdir()):
                shutil.chown(path, "nobody")
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*as_user, self._program, str(self._settings)],
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env={**os.environ, "HOME": str(self._folder)},
            )

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def said(self) -> str:
        return (self._folder / "log").read_text(errors="replace")

    def is_healthy_as(self, role: str) -> bool:
        """Return whether it is the primary, or a synchronous standby."""
        with suppress(URLError, OSError), urlopen(f"http://{self._rest}/{role}", timeout=2) as reply:
            return bool(reply.status == 200)
        return False

    def kill(self) -> None:
        """End Patroni and PostgreSQL as a machine that loses its power does."""
        assert self._process is not None
        postmaster = self._data / "postmaster.pid"
        found = [self._process.pid]
        if postmaster.exists():
            with suppress(psutil.Error):
                main = psutil.Process(int(postmaster.read_text().split("\n", 1)[0]))
                found += [main.pid, *(one.pid for one in main.children(recursive=True))]
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(20)


@contextmanager
def started_nodes(program: str, folder: Path) -> Iterator[tuple[PatroniNode, PatroniNode]]:
    """Run a primary and its synchronous standby."""
    (folder / "etcd").mkdir()
    with started_etcd(folder / "etcd", 3) as etcd:
        nodes = PatroniNode(program, "n1", folder, etcd), PatroniNode(program, "n2", folder, etcd)
        try:
            for node, role in zip(nodes, ("primary", "synchronous"), strict=True):
                node.start()
                wait_until(node, role)
            yield nodes
        finally:
            for node in nodes:
                with suppress(AssertionError, subprocess.SubprocessError):
                    node.kill()


def wait_until(node: PatroniNode, role: str) -> None:
    deadline = time.monotonic() + _START_S_MAX
    while not node.is_healthy_as(role):
        assert node.is_running, f"{node.name} ended:\n{node.said}"
        assert time.monotonic() < deadline, f"{node.name} is no {role}:\n{node.said}"
        time.sleep(0.2)


async def run(program: str, folder: Path, seconds: float) -> None:
    """Kill the primary under load, and compare."""
    with started_nodes(program, folder) as (primary, standby):
        hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
        dsn = f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"
        async with FaultSite(folder, dsn=dsn) as site, site.client(timeout_s=20) as client:
            posters = ["bob", "dan", "zoe", "kim"]
            await client.multi_put({f"s|{reader}|{poster}": "1" for reader in READERS for poster in posters})
            found = {poster: Written() for poster in posters}
            until_s = time.monotonic() + seconds
            writing = [
                asyncio.create_task(write(client.session(), poster, random.Random(poster), one, until_s))
                for poster, one in found.items()
            ]
            await asyncio.sleep(seconds / 6)
            before = sum(one.answered for one in found.values())
            primary.kill()
            begun = time.monotonic()
            await asyncio.to_thread(wait_until, standby, "primary")
            print(f"{standby.name} is the primary after {time.monotonic() - begun:.1f} s; {before} calls were answered")
            await asyncio.gather(*writing)
            whole = Written()
            for one in found.values():
                whole.certain |= one.certain
                whole.unknown |= one.unknown
                whole.answered += one.answered
                whole.away += one.away
            assert whole.answered > before, "no call was answered after the failover"
            await check(site, whole)
            print(
                f"{whole.answered} calls answered, {whole.away} not, {len(whole.unknown)} writes unknown; "
                f"none of {len(whole.certain)} certain writes is lost, and all timelines are exact"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patroni", default=shutil.which("patroni"), help="the program")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the writers go on")
    arguments = parser.parse_args()
    if not arguments.patroni:
        sys.exit("no patroni on PATH; install it with: pip install 'patroni[etcd3]' 'psycopg[binary]'")
    with tempfile.TemporaryDirectory(prefix="pequod-patroni-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        asyncio.run(run(str(Path(arguments.patroni).absolute()), Path(folder), arguments.seconds))


if __name__ == "__main__":
    main()
