"""A MariaDB of our own, from its binaries, for the whole run."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from tests.installed import lacking

#: Small and quick: a killed process loses nothing, and the machine itself does not fail here.
_SETTINGS: Final = (
    "--innodb-buffer-pool-size=32M",
    "--innodb-flush-log-at-trx-commit=2",
    "--innodb-flush-method=nosync",
    "--innodb-print-all-deadlocks=ON",
    "--performance-schema=OFF",
    "--skip-log-bin",
    "--skip-networking",
)


class Mariadb:
    """A server on a Unix socket in a directory of its own; it runs as another user if we are root."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = directory / "socket"
        # Several processes of tests have a server each, and in one folder these delete each other's temporary tables.
        self._temporary = directory / "temporary"
        self._temporary.mkdir()
        self._process: subprocess.Popen[bytes] | None = None
        if os.getuid() == 0:
            for folder in (directory, self._temporary):
                shutil.chown(folder, "nobody")
        subprocess.run(
            self._command(
                "mariadb-install-db",
                "--auth-root-authentication-method=normal",
                "--innodb-log-file-size=8M",
                "--skip-name-resolve",
                "--skip-test-db",
            ),
            check=True,
            capture_output=True,
            timeout=120,
            cwd=directory,
        )

    def _command(self, program: str, *arguments: str) -> list[str]:
        as_user = ["setpriv", "--reuid=nobody", "--clear-groups", "--"] if os.getuid() == 0 else []
        folders = [f"--datadir={self.directory}/data", f"--tmpdir={self._temporary}"]
        return [*as_user, program, "--no-defaults", *folders, *arguments]

    def start(self) -> None:
        self.socket.unlink(missing_ok=True)
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command("mariadbd", f"--socket={self.socket}", "--innodb-log-file-size=8M", *_SETTINGS),
                stdout=log,
                stderr=log,
                cwd=self.directory,
            )
        for _ in range(1200):
            # It listens once it has recovered what a crash has left.
            with socket.socket(socket.AF_UNIX) as one, suppress(OSError):
                one.connect(str(self.socket))
                return
            try:
                self._process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
            raise AssertionError((self.directory / "log").read_text())
        raise AssertionError("MariaDB did not start")

    @property
    def is_running(self) -> bool:
        """Whether its process is."""
        return self._process is not None and self._process.poll() is None

    def stop(self, *, kill: bool = False) -> None:
        """End it: at once, as a crash would, if ``kill``."""
        assert self._process is not None
        if kill:
            self._process.kill()
        else:
            self._process.terminate()
        self._process.wait(60)

    def database(self, name: str) -> str:
        return f"mariadb://root@localhost/{name}?socket={quote(str(self.socket), safe='')}"


@contextmanager
def started_mariadb() -> Iterator[Mariadb]:
    """Run a server in a folder of its own; where MariaDB is not installed, tests of it are skipped."""
    if shutil.which("mariadbd") is None or shutil.which("mariadb-install-db") is None:
        lacking("no mariadbd and mariadb-install-db on PATH; `apt install mariadb-server`")
    # A socket's path must be short.
    with tempfile.TemporaryDirectory(prefix="pequod-maria-", ignore_cleanup_errors=True) as directory:
        server = Mariadb(Path(directory))
        server.start()
        yield server
        if server.is_running:
            server.stop(kill=True)
