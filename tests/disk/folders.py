"""Folders of data as tests make them: written through an engine's disk, killed by a copy, and damaged."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pequod_server import PequodServer, ServerConfig
from pequod_server.data.folder import Folder
from pequod_server.data.note import PositionNote
from pequod_server.data.opening import open_rows

from pequod.client import AsyncClient

Base = dict[bytes, bytes]


@asynccontextmanager
async def served(folder: Path, **settings: Any) -> AsyncIterator[tuple[PequodServer, AsyncClient]]:
    """Run a server on a folder, with a client; stop it in order."""
    server = PequodServer(ServerConfig(listen="127.0.0.1:0", data=folder, **settings))
    port = await server.start()
    try:
        async with AsyncClient(f"127.0.0.1:{port}") as client:
            yield server, client
    finally:
        await server.stop()
        server.engine._check()


def killed(folder: Path, to: Path) -> Path:
    """Copy a folder that a server has open: what a kill at this moment would leave."""
    shutil.copytree(folder, to, ignore=shutil.ignore_patterns("LOCK", "lock"))
    return to


def contents(path: Path) -> Base:
    """Open a folder as a start does, and return its rows.

    Raises:
        FolderError, RowsError: It cannot be used.
    """
    with Folder(path, make=False) as folder, open_rows(folder) as rows:
        return {key: value for keys, values in rows.chunks(100) for key, value in zip(keys, values, strict=True)}


def lose_machine(path: Path) -> None:
    """Have a folder be of another run of the machine, which was not stopped in order."""
    with PositionNote(path / "note") as note:
        note._map[8:44] = b"another run of the machine".ljust(36)
        note._map[44] = 0


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    while not is_so():  # noqa: ASYNC110 - the disk's own task makes it so
        await asyncio.sleep(0.05)


def deadlines(path: Path) -> dict[bytes, int]:
    """Return the deadlines that a folder has."""
    with Folder(path, make=False) as folder, open_rows(folder) as rows:
        return dict(rows.deadlines())
