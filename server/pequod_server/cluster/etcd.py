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
from pequod_server.backing import Backoff
from pequod_server.backing.turns import ended
from pequod_server.cluster.coordinator import LEASE_S, Remains
from pequod_server.cluster.etcd_calls import CompactedError, EtcdAccess, EtcdCalls, LeaseEndedError
from pequod_server.cluster.keys import EtcdKeys, read_server, written

log = logging.getLogger("pequod.server")

#: How often the lease is renewed.
_KEEP_S: Final = LEASE_S / 3
#: How long a server waits for the lease of another one with its id to end.
_TAKEN_S: Final = 2 * LEASE_S
#: For each server of the cluster: how long changes of entries are put together after a state was told.
_TOGETHER_S: Final = 0.001
#: The most of that for changes of the map.
_MAPS_TOGETHER_S: Final = 0.02
_NO_MAP: Final = (-1, 0)
_AWAY: Final = "the server was away for longer than its lease; it registers again"
_PAUSES: Final = Backoff(first_s=0.1, most_s=2.0)


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
        self._servers_key = self._root + b"servers/"
        #: The entry of this server for the others; None: it has none.
        self._wanted: ServerEntry | None = None
        self._is_changed = asyncio.Event()
        #: Whether they can see it.
        self._is_shown = asyncio.Event()
        self._lease = 0
        #: The version of the last map that was put from here, and the revision of that.
        self._map_put = _NO_MAP
        #: The revision in which this process has put the entry; 0: it has not, or others have changed it.
        self._shown_at = 0
        self._keeper: asyncio.Task[None] | None = None

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
                self._say(error, failures)
                await asyncio.sleep(_PAUSES.wait_s(failures))

    def _say(self, error: CoordinatorUnavailableError, failures: int) -> None:
        """Log the first failure of a row, and the tenth."""
        if failures in (1, 10):
            what = "the coordinator refuses" if error.is_refusal else "the coordinator does not answer"
            log.warning(what, extra={"at": self.place, "reason": error.reason})

    async def _followed(self) -> AsyncGenerator[EtcdKeys, None]:
        """Yield all keys, as they are and after changes, until a break."""
        found = await self._read_all()
        keys = self._keys_of(found.kvs)
        self._show_what_was_lost(keys)
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

    def _show_what_was_lost(self, keys: EtcdKeys) -> None:
        """Put this server's entry anew if it is an earlier one: an older backup of etcd has its lease, too."""
        wanted, is_shown = self._wanted, self._is_shown.is_set()
        shown = None if wanted is None else keys.server(wanted.id)
        if wanted is not None and shown is not None and is_shown and shown.map_version < wanted.map_version:
            self._is_changed.set()

    def _keys_of(self, pairs: Iterable[etcd.KeyValue]) -> EtcdKeys:
        keys = EtcdKeys(self._root, self.place)
        keys.take_all(pairs)
        return keys

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
        unchanged = etcd.Compare(target=etcd.Compare.MOD, key=self._map_key, mod_revision=seen)
        put = etcd.PutRequest(key=self._map_key, value=written(changed))
        read = etcd.RangeRequest(key=self._map_key)
        request = etcd.TransactionRequest(
            compare=[unchanged], success=[etcd.Operation(put=put)], failure=[etcd.Operation(range=read)]
        )
        try:
            reply = await self._calls.transact(request)
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
        if not (present and present[0].value == put.value):
            raise MapChangedError(self._keys_of(present).map_version)

    async def register(self, entry: ServerEntry) -> None:
        """Show a server to the others, from now on and until `unregister`; again with what has changed of it.

        Raises:
            ClusterMapError: Another server has its id, and lives.
        """
        is_first = self._wanted is None
        self._wanted = entry
        self._is_shown.clear()
        self._is_changed.set()
        if self._keeper is None or self._keeper.done():
            self._keeper = asyncio.create_task(self._keep_shown(is_first=is_first), name="pequod lease")
        shown = asyncio.create_task(self._is_shown.wait())
        try:
            await asyncio.wait((shown, self._keeper), return_when=asyncio.FIRST_COMPLETED)
        finally:
            shown.cancel()
        if self._keeper.done():
            self._keeper.result()

    async def _keep_shown(self, *, is_first: bool) -> None:
        """Keep the entry in etcd while this process lives.

        Raises:
            ClusterMapError: Another server has the id when this one begins.
        """
        failures = 0
        while True:
            try:
                self._lease = await self._calls.grant(LEASE_S)
                await self._show(is_patient=not is_first)
                is_first, failures = False, 0
                while await self._kept():
                    pass
                log.warning(_AWAY)
            except LeaseEndedError:
                log.warning(_AWAY)
            except CoordinatorUnavailableError as error:
                failures += 1
                self._say(error, failures)
                await asyncio.sleep(_PAUSES.wait_s(failures))

    async def _kept(self) -> bool:
        """Wait until the lease has to be renewed or the entry put anew, and do it; return whether the lease stands."""
        try:
            await asyncio.wait_for(self._is_changed.wait(), _KEEP_S)
        except TimeoutError:
            return await self._calls.keep(self._lease)
        await self._show(is_patient=True)
        return True

    async def _show(self, *, is_patient: bool) -> None:
        """Put the entry with the present lease.

        Args:
            is_patient: Whether to wait for another server with this id for as long as it lives.
        """
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + _TAKEN_S
        while True:
            self._is_changed.clear()
            entry = self._wanted
            assert entry is not None
            key = self._servers_key + entry.id.encode()
            if self._shown_at and await self._put_entry(entry, self._shown_at):
                break
            found = (await self._calls.read(key)).kvs
            other = self._keys_of(found).server(entry.id)
            if other is not None and other.address != entry.address:
                if loop.time() >= ends_s and not is_patient:
                    raise ClusterMapError(
                        f"server {entry.id}", f"the server at {other.address} has this id, and lives; take another one"
                    )
                log.warning("another server has the id", extra={"id": entry.id, "address": other.address})
                await asyncio.sleep(1.0)
                continue
            if await self._put_entry(entry, found[0].mod_revision if found else 0):
                break
        if not self._is_changed.is_set():
            self._is_shown.set()

    async def _put_entry(self, entry: ServerEntry, seen: int) -> bool:
        """Put the entry in the place of the one of a revision; return whether that is there still."""
        key = self._servers_key + entry.id.encode()
        unchanged = etcd.Compare(target=etcd.Compare.MOD, key=key, mod_revision=seen)
        put = etcd.PutRequest(key=key, value=written(entry), lease=self._lease)
        request = etcd.TransactionRequest(compare=[unchanged], success=[etcd.Operation(put=put)])
        reply = await self._calls.transact(request)
        self._shown_at = reply.header.revision if reply.succeeded else 0
        return bool(reply.succeeded)

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
        key = self._servers_key + server_id.encode()
        while True:
            found = (await self._calls.read(key)).kvs
            if not found:
                known = ", ".join(server.id for server in (await self.read()).servers) or "none"
                raise ClusterMapError(f"server {server_id}", f"it is not there; there is {known}")
            entry = change(read_server(found[0].value))
            unchanged = etcd.Compare(target=etcd.Compare.MOD, key=key, mod_revision=found[0].mod_revision)
            put = etcd.PutRequest(key=key, value=written(entry), lease=found[0].lease)
            request = etcd.TransactionRequest(compare=[unchanged], success=[etcd.Operation(put=put)])
            # If its lease ends just now, the next look does not find it.
            with suppress(LeaseEndedError):
                if (await self._calls.transact(request)).succeeded:
                    return

    def reload(self) -> None:
        """Do nothing: etcd tells what is new."""

    async def unregister(self) -> None:
        """Show the server no more; without an answer its lease ends by itself."""
        keeper, self._keeper = self._keeper, None
        self._wanted = None
        if keeper is None:
            return
        keeper.cancel()
        with suppress(asyncio.CancelledError, CoordinatorUnavailableError, ClusterMapError, LeaseEndedError):
            await keeper
        with suppress(CoordinatorUnavailableError, LeaseEndedError):
            await self._calls.revoke(self._lease)

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
