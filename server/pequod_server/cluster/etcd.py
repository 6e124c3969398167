"""The coordinator etcd: the map and the servers of a cluster as keys.

    /pequod/twip/map             the map, JSON; replaced only by the map that follows it
    /pequod/twip/servers/c1      a server, JSON; with the lease of its process, 6 s

A server asks all nodes for everything when it begins, and after each break; then it watches from the next revision on.
So a node that is restored, compacted or replaced needs no case of its own.

    changes of entries    c1 c2 c3 ... c999      one state for those that come together, after 1 ms a server
    changes of the map    version 6              a state at once; one for those that come in the same 20 ms
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Final

from pequod_proto import etcd_pb2 as etcd

from pequod.cluster.map import ClusterMap, ClusterState
from pequod.cluster.servers import ServerEntry, ServerState
from pequod.errors import ClusterMapError, CoordinatorUnavailableError, MapChangedError
from pequod_server.backing.turns import ended
from pequod_server.cluster.coordinator import Glance, Remains
from pequod_server.cluster.etcd_calls import CompactedError, EtcdAccess, EtcdCalls, LeaseEndedError
from pequod_server.cluster.keys import EtcdKeys, read_server, server_key, written
from pequod_server.cluster.own_entry import PAUSES, OwnEntry, say_failure

log = logging.getLogger("pequod.server")

#: For each server of the cluster: how long changes of entries are put together after a state was told.
_TOGETHER_S: Final = 0.001
#: The most of that for changes of the map.
_MAPS_TOGETHER_S: Final = 0.02
_NO_MAP: Final = (-1, 0)


class EtcdCoordinator:
    """The map and the servers of one cluster in etcd.

    Args:
        cluster: The name of the cluster.
        calls: What makes the calls, if it is not etcd at the endpoints.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        cluster: str,
        access: EtcdAccess | None = None,
        *,
        calls: EtcdCalls | None = None,
    ) -> None:
        self._cluster = cluster
        self._calls = EtcdCalls(endpoints, access) if calls is None else calls
        self._root = f"/pequod/{cluster}/".encode()
        #: 0 comes after the slash.
        self._end = f"/pequod/{cluster}0".encode()
        self._map_key = self._root + b"map"
        self._own = OwnEntry(self._calls, self._root, self.place)
        #: The version of the last map that was put from here, and the revision of that.
        self._map_put = _NO_MAP
        #: The revision of the map that a look has read last, and its version.
        self._map_looked = (0, 0)

    @property
    def place(self) -> str:
        """Where the map is, for people."""
        return f"{self._calls.place}, cluster {self._cluster}"

    async def read(self) -> ClusterState:
        """Return the present state.

        Raises:
            CoordinatorUnavailableError: No node answers, or they are too few to agree.
            ClusterMapError: There is no map, or it is not right.
        """
        return self._keys_of((await self._read_all()).kvs).state()

    async def look(self, *ids: str) -> Glance:
        """Return the version of the map, and the entries of some servers; show this server's anew if it was lost.

        Raises:
            CoordinatorUnavailableError: No node answers, or they are too few to agree.
        """
        names = self._map_key, *(server_key(self._root, one) for one in ids)
        reads = [etcd.Operation(range=etcd.RangeRequest(key=name)) for name in names]
        reply = await self._calls.transact(etcd.TransactionRequest(success=reads))
        pairs = [pair for one in reply.replies for pair in one.range.kvs]
        maps = [pair for pair in pairs if pair.key == self._map_key]
        keys = self._keys_of(pairs)
        # The text of a map is large, and parsed when its version is asked for.
        if maps and maps[0].mod_revision != self._map_looked[0]:
            self._map_looked = maps[0].mod_revision, keys.map_version
        self._own.show_if_lost(keys)
        return Glance(self._map_looked[1] if maps else 0, tuple(map(keys.server, ids)))

    async def follow(self) -> AsyncIterator[ClusterState]:
        """Yield the state as it is now, and again after changes."""
        failures = 0
        while True:
            try:
                async with aclosing(self._followed()) as followed:
                    async for keys in followed:
                        failures = 0
                        try:
                            state = keys.state()
                        except ClusterMapError as error:
                            log.error("the map is not right", extra={"at": self.place, "reason": str(error)})  # noqa: TRY400
                        else:
                            yield state
            except CompactedError:
                continue
            except CoordinatorUnavailableError as error:
                failures += 1
                say_failure(error, failures, self.place)
                await asyncio.sleep(PAUSES.wait_s(failures))

    async def _followed(self) -> AsyncGenerator[EtcdKeys, None]:
        """Yield all keys, as they are and after changes, until a break."""
        found = await self._read_all()
        keys = self._keys_of(found.kvs)
        self._own.show_if_lost(keys)
        yield keys
        news = _News()
        reading = asyncio.create_task(self._take_changes(keys, found.header.revision + 1, news), name="pequod changes")
        try:
            while True:
                heard = asyncio.create_task(news.any.wait())
                await asyncio.wait((heard, reading), return_when=asyncio.FIRST_COMPLETED)
                heard.cancel()
                if reading.done():
                    reading.result()
                news.clear()
                yield keys
                together_s = _TOGETHER_S * len(keys)
                await asyncio.sleep(min(together_s, _MAPS_TOGETHER_S))
                if together_s > _MAPS_TOGETHER_S:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(news.of_map.wait(), together_s - _MAPS_TOGETHER_S)
        finally:
            await ended((reading,))

    async def _take_changes(self, keys: EtcdKeys, revision: int, news: _News) -> None:
        async with aclosing(self._calls.watch(self._root, self._end, revision)) as changes:
            async for reply in changes:
                for event in reply.events:
                    if keys.take(event):
                        news.of_map.set()
                    news.any.set()

    def _keys_of(self, pairs: Iterable[etcd.KeyValue]) -> EtcdKeys:
        return EtcdKeys(self._root, self.place, pairs)

    async def _read_all(self) -> etcd.RangeReply:
        return await self._calls.read(self._root, self._end)

    async def put_map(self, changed: ClusterMap) -> None:
        """Put a map in the place of the one whose version is lower by one; version 1 is the first map.

        Raises:
            MapChangedError: The present map has another version.
            CoordinatorUnavailableError: No node answers, or they are too few to agree. The map may still be put,
                when they answer again: a leader keeps what it was asked for.
        """
        version, seen = self._map_put
        if version == changed.version - 1:
            with suppress(MapChangedError):
                await self._replace(seen, changed)
                return
        found = (await self._calls.read(self._map_key)).kvs
        if (present := self._keys_of(found).version()) != changed.version - 1:
            raise MapChangedError(present)
        await self._replace(found[0].mod_revision if found else 0, changed)

    async def remains(self) -> Remains:
        """Return what there is, also where there is no map, or none that is right.

        Raises:
            CoordinatorUnavailableError: No node answers, or they are too few to agree.
        """
        return self._keys_of((await self._read_all()).kvs).remains()

    async def restore_map(self, kept: ClusterMap) -> None:
        """Put a map in the place of any earlier one, or where there is none, or none that is right.

        Raises:
            MapChangedError: The present map is as late, or later.
            CoordinatorUnavailableError: As `put_map`.
        """
        found = (await self._calls.read(self._map_key)).kvs
        if (present := self._keys_of(found).map_version) >= kept.version:
            raise MapChangedError(present)
        await self._replace(found[0].mod_revision if found else 0, kept)

    async def _replace(self, seen: int, changed: ClusterMap) -> None:
        """Put a map in the place of the one of a revision, if that is there still."""
        self._map_put = _NO_MAP
        value = written(changed)
        try:
            reply = await self._calls.put_at(self._map_key, value, seen)
        except CoordinatorUnavailableError as error:
            if error.is_refusal:
                raise
            reason = f"{error.reason}; whether the map was changed is not known: look at it, and try again"
            raise CoordinatorUnavailableError(error.coordinator, reason) from error
        if reply.succeeded:
            self._map_put = changed.version, reply.header.revision
            return
        present = reply.replies[0].range.kvs
        # The answer to an earlier try of this transaction may have been lost.
        if not (present and present[0].value == value):
            raise MapChangedError(self._keys_of(present).map_version)

    async def register(self, entry: ServerEntry) -> None:
        """Show a server to the others, from now on and until `unregister`; again with what has changed of it.

        Raises:
            ClusterMapError: Another server has its id, and lives.
        """
        await self._own.register(entry)

    async def ask_state(self, server_id: str, state: ServerState) -> None:
        """Have a server be ready, or draining; its lease stays.

        Raises:
            ClusterMapError: There is no such server.
            CoordinatorUnavailableError: No node answers, or they are too few to agree.
        """
        await self._ask(server_id, lambda entry: replace(entry, state=state))

    async def ask_weight(self, server_id: str, weight: float) -> None:
        """Have a compute take another share of the groups; its lease stays.

        Raises:
            ClusterMapError: There is no such server, or the weight is not possible.
            CoordinatorUnavailableError: No node answers, or they are too few to agree.
        """
        await self._ask(server_id, lambda entry: replace(entry, weight=weight))

    async def _ask(self, server_id: str, change: Callable[[ServerEntry], ServerEntry]) -> None:
        key = server_key(self._root, server_id)
        while True:
            found = (await self._calls.read(key)).kvs
            if not found:
                known = ", ".join(server.id for server in (await self.read()).servers) or "none"
                raise ClusterMapError(f"server {server_id}", f"it is not there; there is {known}")
            entry = change(read_server(found[0].value))
            # If its lease ends just now, the next look does not find it.
            with suppress(LeaseEndedError):
                put = await self._calls.put_at(key, written(entry), found[0].mod_revision, found[0].lease)
                if put.succeeded:
                    return

    def reload(self) -> None:
        """Do nothing: etcd tells what is new."""

    async def unregister(self) -> None:
        """Show the server no more; without an answer its lease ends by itself."""
        await self._own.unregister()

    async def close(self) -> None:
        """Close all connections."""
        await self.unregister()
        await self._calls.close()


class _News:
    """Tells of changes that have come since the last state."""

    def __init__(self) -> None:
        self.any = asyncio.Event()
        self.of_map = asyncio.Event()

    def clear(self) -> None:
        self.any.clear()
        self.of_map.clear()
