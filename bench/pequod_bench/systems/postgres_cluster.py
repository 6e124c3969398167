"""A PostgreSQL cluster of a run's own: finding the programs, making it, starting it."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pequod_bench.systems.server import ServerStartError, find_program, free_port, running
from pequod_bench.systems.system import Found, Missing, Presence, Server

#: A database as it is installed, but for what a replication slot needs.
BACKING_SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_slot_wal_keep_size": "1GB",
    "shared_buffers": "256MB",
}
_INSTALL: Final = "install it with: apt-get install postgresql"
#: PostgreSQL refuses to run as root; the first of these that exists runs it then.
_USERS: Final = ("postgres", "nobody")


class PostgresServer(Server):
    """A PostgreSQL that runs."""

    @property
    def dsn(self) -> str:
        """Where clients reach it."""
        return f"postgresql://bench@127.0.0.1:{self.port}/postgres?sslmode=disable"


def find_postgres() -> Presence:
    """Look for postgres and initdb, and for a user to run them if this is root."""
    found = _find("postgres")
    if isinstance(found, Found) and isinstance(missing := _find("initdb"), Missing):
        return missing
    if os.geteuid() == 0 and _user() is None:
        return Missing(f"PostgreSQL does not run as root, and there is no user {' or '.join(_USERS)} to run it")
    return found


@contextmanager
def started_cluster(directory: Path, settings: Mapping[str, str]) -> Iterator[PostgresServer]:
    """Make a cluster in ``directory`` and start it on the loopback; its superuser is `bench`."""
    postgres, initdb = _find("postgres"), _find("initdb")
    if isinstance(postgres, Missing) or isinstance(initdb, Missing):
        raise ServerStartError(f"no PostgreSQL on this machine; {_INSTALL}")
    user = _user() if os.geteuid() == 0 else None
    if user is not None:
        shutil.chown(directory, user)
    data = directory / "data"
    options = ["-U", "bench", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"]
    made = subprocess.run(
        [initdb.path, "-D", data, *options], capture_output=True, text=True, check=False, user=user, cwd=directory
    )
    if made.returncode:
        raise ServerStartError(f"initdb failed:\n{made.stdout}{made.stderr}")
    port = free_port()
    flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    command = [str(postgres.path), "-D", str(data), "-p", str(port), *flags]
    # SIGINT is its fast shutdown, which does not wait for clients.
    with running(command, port, ready="ready to accept connections", user=user, stop=signal.SIGINT) as server:
        yield PostgresServer(server.port, server.pid)


def _find(program: str) -> Presence:
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return find_program(program, _INSTALL, folders=folders)


def _user() -> str | None:
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next((user for user in _USERS if user in names), None)
