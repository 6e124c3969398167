"""A MariaDB of a run's own: made, started, with a database in it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pequod_bench.systems.server import ServerStartError, find_program, free_port, running
from pequod_bench.systems.system import Missing, Server

_INSTALL: Final = "install it with: apt-get install mariadb-server"
#: As root it is run by this user, as which it may run.
_USER: Final = "nobody"
_NAME: Final = "bench"


class MariadbServer(Server):
    """A MariaDB that runs."""

    @property
    def address(self) -> str:
        """Where clients reach its database."""
        return f"mariadb://root@127.0.0.1:{self.port}/{_NAME}"


@contextmanager
def started_mariadb(directory: Path) -> Iterator[MariadbServer]:
    """Make a MariaDB in ``directory`` and start it on the loopback, as it is installed but for its users."""
    server, maker = find_program("mariadbd", _INSTALL), find_program("mariadb-install-db", _INSTALL)
    if isinstance(server, Missing):
        raise ServerStartError(f"no MariaDB on this machine: {server.reason}")
    if isinstance(maker, Missing):
        raise ServerStartError(f"no MariaDB on this machine: {maker.reason}")
    user = _USER if os.geteuid() == 0 else None
    if user is not None:
        shutil.chown(directory, user)
    own = ["--no-defaults", f"--datadir={directory}/data"]
    options = ["--auth-root-authentication-method=normal", "--skip-name-resolve", "--skip-test-db"]
    made = subprocess.run(
        [maker.path, *own, *options], capture_output=True, text=True, check=False, user=user, cwd=directory
    )
    if made.returncode:
        raise ServerStartError(f"mariadb-install-db failed:\n{made.stdout}{made.stderr}")
    begin = directory / "begin.sql"
    begin.write_text(f"CREATE DATABASE {_NAME};\n")
    port = free_port()
    command = [str(server.path), *own, f"--port={port}", "--bind-address=127.0.0.1", f"--init-file={begin}"]
    command += ["--skip-name-resolve", f"--socket={directory}/socket"]
    with running(command, port, ready="ready for connections", user=user) as found:
        yield MariadbServer(found.port, found.pid)
