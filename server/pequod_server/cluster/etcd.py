"""The coordinator etcd: the map and the servers of a cluster as keys.

    /pequod/twip/map             the map, JSON; replaced only by the map that follows it
    /pequod/twip/servers/c1      a server, JSON; with the lease of its process, 6 s

A server asks all nodes for everything when it begins, and after each break; then it watches from the next revision on.
So a node that is restored, compacted or replaced needs no case of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Final

from google.protobuf import json_format
from pequod_proto import etcd_pb2 as etcd
from pequod_proto import pequod_pb2 as pb

from pequod.cluster.lost import check_not_lost, latest_version
from pequod.cluster.map import ClusterMap, ClusterState
from pequod.cluster.messages import map_of, message_of_map, message_of_server, server_of
from pequod.cluster.servers import ServerEntry, ServerState
from pequod.errors import ClusterMapError, CoordinatorUnavailableError, MapChangedError
from pequod_server.backing import Backoff
from pequod_server.cluster.coordinator import LEASE_S
from pequod_server.cluster.etcd_calls import CompactedError, EtcdAccess, EtcdCalls, LeaseEndedError

log = logging.getLogger("pequod.server")

#: How often the lease is renewed.
_KEEP_S: Final = LEASE_S / 3
#: How long a server waits for the lease of another one with its id to end.
_TAKEN_S: Final = 2 * LEASE_S
_AWAY: Final = "the server was away for longer than its lease; it registers again"
_PAUSES: Final = Backoff(first_s=0.1, most_s=2.0)


class EtcdCoordinator:
    """The map and the servers of one cluster in etcd.

    Args:
        cluster: The name of the cluster.
    """

    def __init__(self, endpoints: Sequence[str], cluster: str, access: EtcdAccess | None = None) -> None:
        self._cluster = cluster
        self._calls = EtcdCalls(endpoints, access)
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
        return self._state_of({pair.key: pair.value for pair in (await self._read_all()).kvs})

    async def follow(self) -> AsyncIterator[ClusterState]:
        """Yield the state as it is now, and again after changes."""
        failures = 0
        while True:
            try:
                async with aclosing(self._followed()) as pairs:
                    async for found in pairs:
                        failures = 0
                        try:
                            state = self._state_of(found)
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

    async def _followed(self) -> AsyncGenerator[dict[bytes, bytes], None]:
        """Yield all keys with their values, as they are and after each change, until a break."""
        found = await self._read_all()
        pairs = {pair.key: pair.value for pair in found.kvs}
        self._show_what_was_lost(pairs)
        yield pairs
        changes = self._calls.watch(self._root, self._end, found.header.revision + 1)
        async with aclosing(changes):
            async for reply in changes:
                for event in reply.events:
                    if event.kind == etcd.Event.DELETE:
                        pairs.pop(event.kv.key, None)
                    else:
                        pairs[event.kv.key] = event.kv.value
                if reply.events:
                    yield pairs

    def _show_what_was_lost(self, pairs: dict[bytes, bytes]) -> None:
        """Put this server's entry anew if it is an earlier one: an older backup of etcd has its lease, too."""
        wanted, is_shown = self._wanted, self._is_shown.is_set()
        shown = None if wanted is None else _server_or_none(pairs.get(self._servers_key + wanted.id.encode(), b""))
        if wanted is not None and shown is not None and is_shown and shown.map_version < wanted.map_version:
            self._is_changed.set()

    async def _read_all(self) -> etcd.RangeReply:
        return await self._calls.read(self._root, self._end)

    def _state_of(self, pairs: dict[bytes, bytes]) -> ClusterState:
        servers = self._servers_of(pairs)
        if self._map_key not in pairs:
            check_not_lost(self.place, 0, servers)
            raise ClusterMapError(self.place, "there is no map; `pequod cluster init` makes one")
        return ClusterState.of(self._map_of(pairs[self._map_key]), servers)

    def _servers_of(self, pairs: dict[bytes, bytes]) -> list[ServerEntry]:
        servers = []
        for key, value in pairs.items():
            if key.startswith(self._servers_key):
                try:
                    servers.append(_server(value))
                except ClusterMapError as error:
                    # One that is newer, or broken: the others are there all the same.
                    log.warning(
                        "a server of the cluster is not known", extra={"key": key.decode(), "reason": str(error)}
                    )
        return servers

    def _version_of(self, value: bytes | None) -> int:
        """Return the version of a map; 0 if there is none, or it is not right."""
        try:
            return 0 if value is None else self._map_of(value).version
        except ClusterMapError:
            return 0

    def _map_of(self, value: bytes) -> ClusterMap:
        message = pb.ClusterMap()
        try:
            _parse(value, message)
            return map_of(message)
        except ClusterMapError as error:
            place = f"{self._map_key.decode()} at {self._calls.place}"
            raise ClusterMapError(place, f"{error}; put a right map there, with a greater version") from None

    async def put_map(self, changed: ClusterMap) -> None:
        """Put a map in the place of the one whose version is lower by one; version 1 is the first map.

        Raises:
            MapChangedError: The present map has another version.
            CoordinatorUnavailableError: No node answers, or they are too few to agree.
        """
        found = (await self._calls.read(self._map_key)).kvs
        if (present := self._map_of(found[0].value).version if found else 0) != changed.version - 1:
            raise MapChangedError(present)
        await self._replace(found, changed)

    async def latest_version(self) -> int:
        """Return the version of the present map, or that of a server which goes by a later one; 0 without any.

        Raises:
            CoordinatorUnavailableError: No node answers, or they are too few to agree.
        """
        pairs = {pair.key: pair.value for pair in (await self._read_all()).kvs}
        return latest_version(self._version_of(pairs.get(self._map_key)), self._servers_of(pairs))

    async def restore_map(self, kept: ClusterMap) -> None:
        """Put a map in the place of any earlier one, or where there is none, or none that is right.

        Raises:
            MapChangedError: The present map is as late, or later.
            CoordinatorUnavailableError: As `put_map`.
        """
        found = (await self._calls.read(self._map_key)).kvs
        if found and (present := self._version_of(found[0].value)) >= kept.version:
            raise MapChangedError(present)
        await self._replace(found, kept)

    async def _replace(self, found: Sequence[etcd.KeyValue], changed: ClusterMap) -> None:
        """Put a map in the place of what was found, if that is there still."""
        seen = found[0].mod_revision if found else 0
        unchanged = etcd.Compare(target=etcd.Compare.MOD, key=self._map_key, mod_revision=seen)
        put = etcd.PutRequest(key=self._map_key, value=_written(message_of_map(changed)))
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
            return
        present = reply.replies[0].range.kvs
        # The answer to an earlier try of this transaction may have been lost.
        if not (present and present[0].value == put.value):
            raise MapChangedError(self._version_of(present[0].value) if present else 0)

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
            found = (await self._calls.read(key)).kvs
            other = _server_or_none(found[0].value) if found else None
            if other is not None and other.address != entry.address:
                if loop.time() >= ends_s and not is_patient:
                    raise ClusterMapError(
                        f"server {entry.id}", f"the server at {other.address} has this id, and lives; take another one"
                    )
                log.warning("another server has the id", extra={"id": entry.id, "address": other.address})
                await asyncio.sleep(1.0)
                continue
            unchanged = etcd.Compare(
                target=etcd.Compare.MOD, key=key, mod_revision=found[0].mod_revision if found else 0
            )
            put = etcd.PutRequest(key=key, value=_written(message_of_server(entry)), lease=self._lease)
            request = etcd.TransactionRequest(compare=[unchanged], success=[etcd.Operation(put=put)])
            if (await self._calls.transact(request)).succeeded:
                break
        if not self._is_changed.is_set():
            self._is_shown.set()

    async def ask_state(self, server_id: str, state: ServerState) -> None:
        """Have a server be ready, or draining; its lease stays.

        Raises:
            ClusterMapError: There is no such server.
            CoordinatorUnavailableError: No node answers, or they are too few to agree.
        """
        key = self._servers_key + server_id.encode()
        while True:
            found = (await self._calls.read(key)).kvs
            if not found:
                known = ", ".join(server.id for server in (await self.read()).servers) or "none"
                raise ClusterMapError(f"server {server_id}", f"it is not there; there is {known}")
            entry = replace(_server(found[0].value), state=state)
            unchanged = etcd.Compare(target=etcd.Compare.MOD, key=key, mod_revision=found[0].mod_revision)
            put = etcd.PutRequest(key=key, value=_written(message_of_server(entry)), lease=found[0].lease)
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


def _written(message: pb.ClusterMap | pb.ClusterServer) -> bytes:
    text = json_format.MessageToJson(message, preserving_proto_field_name=True, ensure_ascii=False)
    return text.encode()


def _server(value: bytes) -> ServerEntry:
    message = pb.ClusterServer()
    _parse(value, message)
    return server_of(message)


def _server_or_none(value: bytes) -> ServerEntry | None:
    try:
        return _server(value)
    except ClusterMapError:
        return None


def _parse(value: bytes, message: pb.ClusterMap | pb.ClusterServer) -> None:
    """Read JSON; what is not known here is of a newer version, and left out."""
    try:
        json_format.Parse(value.decode(), message, ignore_unknown_fields=True)
    except (json_format.ParseError, UnicodeDecodeError) as error:
        raise ClusterMapError("its value", f"it is not readable: {error}") from None
