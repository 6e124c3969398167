"""A PostgreSQL of our own, from its binaries, for the whole run."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Literal, TypeAlias, TypeVar

import asyncpg
import pytest

from tests.installed import lacking

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
#: How changes are heard of.
Mode = Literal["slot", "notify"]


def binaries() -> Path | None:
    """Return the folder with the newest initdb."""
    found = shutil.which("initdb")
    candidates = [
        *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True),
        *([Path(found).parent] if found else []),
    ]
    return next((path for path in candidates if (path / "initdb").exists()), None)


Cluster = TypeVar("Cluster", bound="Postgres")


class Postgres:
    """A cluster on a Unix socket in a directory of its own; it runs as another user if we are root."""

    SETTINGS: tuple[str, ...] = (
        "listen_addresses=",
        "fsync=off",
        "wal_level=logical",
        "max_slot_wal_keep_size=64MB",
        "max_wal_size=64MB",
        "min_wal_size=32MB",
        "wal_keep_size=0",
        "max_prepared_transactions=2",
        "shared_buffers=32MB",
    )

    def __init__(self, programs: Path, directory: Path) -> None:
        self._programs = programs
        self.directory = directory
        self._cluster = directory / "cluster"
        self._process: subprocess.Popen[bytes] | None = None
        if os.getuid() == 0:
            shutil.chown(directory, "nobody")
        command = ["initdb", "-D", str(self._cluster), "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8"]
        self._run(*command, "--locale=C.UTF-8")

    def _command(self, program: str, *arguments: str) -> list[str]:
        as_user = ["setpriv", "--reuid=nobody", "--clear-groups", "--"] if os.getuid() == 0 else []
        return [*as_user, str(self._programs / program), *arguments]

    def _run(self, *command: str) -> None:
        subprocess.run(self._command(*command), check=True, capture_output=True, timeout=60, cwd=self.directory)

    def start(self) -> None:
        settings = [word for setting in self.SETTINGS for word in ("-c", setting)]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command("postgres", "-D", str(self._cluster), "-k", str(self.directory), *settings),
                stdout=log,
                stderr=log,
                cwd=self.directory,
            )
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        for _ in range(600):
            done = subprocess.run(
                self._command("pg_isready", "-q", "-h", str(self.directory)),
                check=False,
                timeout=10,
                cwd=self.directory,
            )
            if done.returncode == 0:
                return
            assert self._process is not None
            try:
                self._process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
            raise AssertionError((self.directory / "log").read_text())
        raise AssertionError("PostgreSQL did not start")

    @property
    def is_running(self) -> bool:
        """Whether its main process is."""
        return self._process is not None and self._process.poll() is None

    def stop(self, *, kill: bool = False) -> None:
        """End it at once, as a crash would if ``kill``: every process of the cluster goes."""
        self._run("pg_ctl", "stop", "-D", str(self._cluster), "-m", "immediate" if kill else "fast")
        assert self._process is not None
        self._process.wait(30)

    def dsn(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self.directory}"


@contextmanager
def started(kind: type[Cluster]) -> Iterator[Cluster]:
    """Run a cluster of a kind in a folder of its own; where PostgreSQL is not installed, tests of it are skipped."""
    programs = binaries()
    if programs is None:
        lacking("no initdb in /usr/lib/postgresql/*/bin or on PATH; `apt install postgresql`")
    # A socket's path must be short.
    with tempfile.TemporaryDirectory(prefix="pequod-pg-", ignore_cleanup_errors=True) as directory:
        cluster = kind(programs, Path(directory))
        cluster.start()
        yield cluster
        if cluster.is_running:
            cluster.stop(kill=True)


_SHARED: Final = pytest.StashKey[Postgres]()


@pytest.fixture(scope="session")
def postgres(pytestconfig: pytest.Config) -> Postgres:
    """The cluster of this process: pytest would start one for each folder and file that imports this fixture."""
    if _SHARED not in pytestconfig.stash:
        stack = ExitStack()
        pytestconfig.stash[_SHARED] = stack.enter_context(started(Postgres))
        pytestconfig.add_cleanup(stack.close)
    return pytestconfig.stash[_SHARED]


@pytest.fixture
async def dsn(postgres: Postgres) -> AsyncIterator[str]:
    """A database without tables; making a new one for each test would take a second."""
    dsn = postgres.dsn("postgres")
    await clear(dsn)
    yield dsn
    await clear(dsn)


async def clear(dsn: str) -> None:
    """Take out tables, slots, publications and sessions of earlier tests."""
    admin = await asyncpg.connect(dsn)
    await admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'pequod%'")
    async with asyncio.timeout(30):
        while True:
            await admin.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots")
            try:
                await admin.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
                break
            except asyncpg.ObjectInUseError:
                await asyncio.sleep(0.01)
    await admin.execute("SET client_min_messages = error")
    await admin.execute("DROP SCHEMA IF EXISTS pequod CASCADE")
    for (name,) in await admin.fetch("SELECT pubname FROM pg_publication"):
        await admin.execute(f'DROP PUBLICATION "{name}"')
    await admin.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    await admin.close()


@pytest.fixture(params=["slot", "notify"])
def mode(request: pytest.FixtureRequest) -> Mode:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
async def database(dsn: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(dsn)
    await connection.execute("""
        CREATE TABLE posts (
            id int GENERATED BY DEFAULT AS IDENTITY (START 1000) PRIMARY KEY,
            poster text NOT NULL, at bigint NOT NULL, body text, hidden boolean DEFAULT false,
            UNIQUE (poster, at)
        );
        CREATE TABLE subscriptions (
            "user" text, poster text COLLATE "C", since timestamptz, score numeric, ok boolean,
            PRIMARY KEY ("user", poster)
        );
    """)
    yield connection
    await connection.close()
