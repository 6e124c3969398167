"""The map of a server's own workers: a file of their supervisor's, which all of them change and follow.

    map.toml     the workers, the first map
    map.changed  the present map              w1: put_map --> locked, the next version --> every worker follows
    w1.shown     what w1 goes by              w1 waits until all show it; one that is away takes it in at its start

The folder goes with the supervisor. Joins that are to outlive it are in the home's folder of data, which gives them to
the map at the next start.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from pequod.cluster.map import ClusterMap, ClusterState
from pequod.cluster.servers import ServerEntry, ServerState
from pequod.errors import ClusterMapError, CoordinatorUnavailableError, MapChangedError
from pequod.machine import stamp_of
from pequod_server.cluster.keys import read_map, written
from pequod_server.cluster.static import StaticCoordinator, read_file
from pequod_server.worker import shown_file

#: How often the files are looked at.
_LOOK_S: Final = 0.1
#: How long a worker waits for another one that changes the map.
_LOCK_S: Final = 5.0


class WorkersCoordinator(StaticCoordinator):
    """The map and the workers.

    Args:
        own_id: Which worker this is.
    """

    def __init__(self, path: Path, own_id: str) -> None:
        super().__init__(path)
        self._own_id = own_id

    async def read(self) -> ClusterState:
        """Return the map, and what each worker shows.

        Raises:
            ClusterMapError: The file cannot be read, or is not right.
        """
        state = read_file(self._path)
        return ClusterState.of(self._map(state), [self._shown(entry) for entry in state.servers])

    async def latest_version(self) -> int:
        """Return the version of the present map.

        Raises:
            ClusterMapError: The file cannot be read, or is not right.
        """
        return self._map(read_file(self._path)).version

    async def follow(self) -> AsyncIterator[ClusterState]:
        """Yield the state, now and after each change."""
        known, stamps = None, None
        while True:
            self._is_hurried.clear()
            if known is None or (found := self._stamps(known)) != stamps:
                state = await self.read()
                stamps = found if known is not None else self._stamps(state)
                if state != known:
                    known = state
                    yield state
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_hurried.wait(), _LOOK_S)

    async def put_map(self, changed: ClusterMap) -> None:
        """Give all workers a map.

        Raises:
            MapChangedError: It does not follow the present one.
            CoordinatorUnavailableError: Another worker changes the map, and does not come to an end.
        """
        lock = os.open(self._path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            await self._lock(lock)
            if changed.version != (present := await self.latest_version()) + 1:
                raise MapChangedError(present)
            _replace(self._changed, written(changed))
        finally:
            # It goes with the file, as it does with a process that dies.
            os.close(lock)
        self.reload()

    async def register(self, entry: ServerEntry) -> None:
        """Show what this worker goes by.

        Raises:
            ClusterMapError: That cannot be written.
        """
        shown = {"map_version": entry.map_version, "prepared": entry.prepared, "state": entry.state.value}
        _replace(shown_file(self._path.parent, self._own_id), json.dumps(shown).encode())

    @property
    def _changed(self) -> Path:
        return self._path.with_suffix(".changed")

    def _map(self, state: ClusterState) -> ClusterMap:
        """Return the present map: in TOML it would lack a replacement of a join."""
        try:
            return read_map(self._changed.read_bytes())
        except FileNotFoundError:
            return state.map

    def _shown(self, entry: ServerEntry) -> ServerEntry:
        """Return a worker as it shows itself; one that is away shows no map."""
        try:
            shown = json.loads(shown_file(self._path.parent, entry.id).read_text("ascii"))
        except FileNotFoundError:
            return entry
        state = ServerState(shown["state"])
        return replace(entry, map_version=shown["map_version"], prepared=shown["prepared"], state=state)

    def _stamps(self, state: ClusterState) -> list[object]:
        folder = self._path.parent
        return [stamp_of(self._changed), *(stamp_of(shown_file(folder, server.id)) for server in state.servers)]

    async def _lock(self, lock: int) -> None:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + _LOCK_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if loop.time() > end_s:
                    raise CoordinatorUnavailableError(self.place, "another worker changes the map") from None
                await asyncio.sleep(_LOOK_S)
            else:
                return


def _replace(file: Path, content: bytes) -> None:
    """Give a file a content at once: no reader sees half of it.

    Raises:
        ClusterMapError: It cannot be written.
    """
    beside = file.with_name(f"{file.name}.new")
    try:
        beside.write_bytes(content)
        beside.replace(file)
    except OSError as error:
        raise ClusterMapError(str(file), f"it cannot be written: {error.strerror}") from error
