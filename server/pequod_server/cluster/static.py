"""The coordinator `static`: a file with the map and the servers, which the operator copies to every server.

    cluster.toml  --read at the start, again when it has changed, and on SIGHUP-->  state

Nothing runs beside the servers. Who lives is not known: all servers of the file count as there, and clients find out
which of them answer. Only an operator changes the map, in the file.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from pequod.cluster.document import read, written
from pequod.cluster.map import ClusterMap, ClusterState
from pequod.cluster.servers import ServerEntry, ServerState
from pequod.errors import ClusterMapError, MapFixedError
from pequod.machine import stamp_of
from pequod_server.cluster.coordinator import Remains

log = logging.getLogger("pequod.server")

#: How often the file is looked at.
_LOOK_S: Final = 1.0


class StaticCoordinator:
    """The map and the servers of one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_hurried = asyncio.Event()

    @property
    def place(self) -> str:
        """The file."""
        return str(self._path)

    async def read(self) -> ClusterState:
        """Return what the file says.

        Raises:
            ClusterMapError: It cannot be read, or is not right.
        """
        return read_file(self._path)

    async def follow(self) -> AsyncIterator[ClusterState]:
        """Yield what the file says, now and after each change; a file that is wrong is logged, and changes nothing."""
        stamp, known = None, None
        while True:
            self._is_hurried.clear()
            if (found := stamp_of(self._path)) != stamp:
                stamp = found
                try:
                    state = read_file(self._path)
                except ClusterMapError as error:
                    log.error("%s; the map read before stays in use", error)  # noqa: TRY400 - no defect of ours
                else:
                    if state != known:
                        known = state
                        yield state
            try:
                await asyncio.wait_for(self._is_hurried.wait(), _LOOK_S)
            except TimeoutError:
                continue
            stamp = None

    async def put_map(self, changed: ClusterMap) -> None:
        """Refuse the map: other servers have files of their own.

        Raises:
            MapFixedError: Always.
        """
        raise MapFixedError(self.place, changed.version)

    async def remains(self) -> Remains:
        """Return what the file says.

        Raises:
            ClusterMapError: It cannot be read, or is not right.
        """
        state = read_file(self._path)
        return Remains(state.map, state.servers)

    async def restore_map(self, kept: ClusterMap) -> None:
        """Refuse the map: see `put_map`.

        Raises:
            MapFixedError: Always.
        """
        raise MapFixedError(self.place, kept.version)

    async def register(self, entry: ServerEntry) -> None:
        """See that the file has the server.

        Raises:
            ClusterMapError: It does not.
        """
        known = {server.id for server in read_file(self._path).servers}
        if entry.id not in known:
            names = ", ".join(sorted(known)) or "no server"
            raise ClusterMapError(f"{self._path}, servers", f"{entry.id!r} is none of them; there is {names}")

    async def ask_state(self, server_id: str, state: ServerState) -> None:  # noqa: ARG002 - the protocol's
        """Refuse it: see `put_map`.

        Raises:
            MapFixedError: Always.
        """
        raise MapFixedError(self.place, read_file(self._path).map.version + 1)

    async def ask_weight(self, server_id: str, weight: float) -> None:  # noqa: ARG002 - the protocol's
        """Refuse it: see `put_map`.

        Raises:
            MapFixedError: Always.
        """
        raise MapFixedError(self.place, read_file(self._path).map.version + 1)

    def reload(self) -> None:
        """Read the file at once."""
        self._is_hurried.set()

    async def unregister(self) -> None:
        """Do nothing: the file stays as it is."""

    async def close(self) -> None:
        """Do nothing: the file is not kept open."""


def read_file(path: Path) -> ClusterState:
    """Return the state of a file.

    Raises:
        ClusterMapError: It cannot be read, or is not right; the place begins with the file.
    """
    try:
        state = read(path.read_text("utf-8"))
        state.check_groups()
        state.check_addresses()
    except OSError as error:
        raise ClusterMapError(
            str(path), f"it cannot be read: {error.strerror}; `pequod cluster init` writes one"
        ) from error
    except UnicodeDecodeError as error:
        raise ClusterMapError(str(path), f"it is not UTF-8: {error}") from error
    except ClusterMapError as error:
        raise ClusterMapError(f"{path}: {error.place}", error.reason) from None
    return state


def write_file(path: Path, state: ClusterState) -> None:
    """Replace the state in a file at once: no reader sees half of it.

    What the operator wrote beside the state stays: comments, order, blanks.

    Raises:
        ClusterMapError: It cannot be written.
    """
    _write(path, _text_of(path, state))


def write_anew(path: Path, state: ClusterState) -> None:
    """Have a file say a state, and nothing else, at once.

    Raises:
        ClusterMapError: It cannot be written.
    """
    _write(path, written(state))


def _write(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.new")
    try:
        with beside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            # After a cut of power there is the one text or the other.
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        raise ClusterMapError(str(path), f"it cannot be written: {error.strerror}") from error


def _text_of(path: Path, state: ClusterState) -> str:
    from pequod_server.cluster.edited import edited  # noqa: PLC0415 - no server edits its map

    try:
        before = path.read_text("utf-8")
    except FileNotFoundError:
        return written(state)
    return edited(before, state)
