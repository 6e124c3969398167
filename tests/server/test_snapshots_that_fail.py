"""Snapshots that cannot be written: the start says so, a stop that loses data fails, killed saves leave nothing."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pequod_server import PequodServer, ServerConfig
from pequod_server.snapshots.files import read_snapshot, try_place, write_snapshot

from pequod import Client
from pequod.client import AsyncClient
from pequod.engine import Rows
from pequod.errors import PequodError, SnapshotError
from tests.forked import ForkedServer

ROWS = Rows([b"a"], [b"1"])

#: Writes a snapshot, and stands still in the middle of it.
STANDS_STILL = """
import sys, time
from pathlib import Path
from pequod.engine import Rows
from pequod_server.snapshots import files as snapshot_file
def stand_still(slices, backed, origin, *, has_deadlines):
    print("writing", flush=True)
    time.sleep(60)
    yield from ()
snapshot_file._blocks = stand_still
snapshot_file.write_snapshot(Path(sys.argv[1]), Rows([b"a"], [b"1"]), ())
"""


async def test_a_server_does_not_start_where_it_could_not_save(tmp_path: Path) -> None:
    config = ServerConfig(listen="127.0.0.1:0", snapshot_file=tmp_path / "no" / "folder")
    with pytest.raises(SnapshotError, match="no snapshot could be written there: No such file or directory"):
        await PequodServer(config).start()


def test_a_stop_that_saves_nothing_fails_and_says_why(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with ForkedServer("--listen", "127.0.0.1:0", "--snapshot-file", str(file)) as server:
        with Client(server.target) as client:
            client.multi_put({f"p|{number:06}": os.urandom(20) for number in range(1000)})
        # As a disk that is full: no file may grow beyond this.
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (4096, 4096))
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 3
        assert f"pequod: snapshot {file}: it cannot be written: File too large" in server.said.read()
    assert list(tmp_path.iterdir()) == []


async def test_a_save_that_fails_keeps_the_file_and_is_counted(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "file"
    file.parent.mkdir()
    server = PequodServer(ServerConfig(listen="127.0.0.1:0", snapshot_file=file))
    port = await server.start()
    async with AsyncClient(f"127.0.0.1:{port}") as client:
        await client.save_snapshot()
        saved_s = server.snapshots.saved_s
        file.rename(tmp_path / "file")
        file.parent.rmdir()
        with pytest.raises(PequodError, match="cannot be written: No such file or directory"):
            await client.save_snapshot()
        assert server.snapshots.failure_count == 1
        assert server.snapshots.saved_s == saved_s
    with pytest.raises(SnapshotError, match="cannot be written"):
        await server.stop()


def test_what_a_killed_save_leaves_is_gone_after_the_next_start(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_snapshot(file, ROWS, ())
    command = [sys.executable, "-c", STANDS_STILL, str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        for write in (lambda: try_place(file), lambda: write_snapshot(file, ROWS, ())):
            with pytest.raises(SnapshotError, match="another process writes it"):
                write()
        process.kill()
    assert len(list(tmp_path.iterdir())) == 2
    try_place(file)
    assert list(tmp_path.iterdir()) == [file]
    assert read_snapshot(file).rows == ROWS
