"""The entry of this server in etcd, which lives as long as the lease of its process: 6 s after its last sign of life.

grant a lease -> put the entry -> renew every 2 s, put again what has changed -> the lease has ended: from the start
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final

from pequod.cluster.servers import ServerEntry
from pequod.errors import ClusterMapError, CoordinatorUnavailableError
from pequod_server.backing import Backoff
from pequod_server.cluster.coordinator import LEASE_S
from pequod_server.cluster.etcd_calls import EtcdCalls, LeaseEndedError
from pequod_server.cluster.keys import EtcdKeys, server_key, written

log = logging.getLogger("pequod.server")

#: How often the lease is renewed.
_KEEP_S: Final = LEASE_S / 3
#: How long a server waits for the lease of another one with its id to end.
_TAKEN_S: Final = 2 * LEASE_S
_AWAY: Final = "the server was away for longer than its lease; it registers again"
#: Between tries at an etcd that does not answer.
PAUSES: Final = Backoff(first_s=0.1, most_s=2.0)


class OwnEntry:
    """Keeps the entry of this server in etcd.

    Args:
        root: What the keys of the cluster start with.
        place: Where they are, for people.
    """

    def __init__(self, calls: EtcdCalls, root: bytes, place: str) -> None:
        self._calls = calls
        self._root = root
        self._place = place
        #: The entry for the others; None: it has none.
        self._wanted: ServerEntry | None = None
        self._is_changed = asyncio.Event()
        #: Whether they can see it.
        self._is_shown = asyncio.Event()
        self._lease = 0
        #: The revision in which this process has put the entry; 0: it has not, or others have changed it.
        self._shown_at = 0
        self._keeper: asyncio.Task[None] | None = None

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
                say_failure(error, failures, self._place)
                await asyncio.sleep(PAUSES.wait_s(failures))

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
            if self._shown_at and await self._put_entry(entry, self._shown_at):
                break
            found = (await self._calls.read(server_key(self._root, entry.id))).kvs
            other = EtcdKeys(self._root, self._place, found).server(entry.id)
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
        reply = await self._calls.put_at(server_key(self._root, entry.id), written(entry), seen, self._lease)
        self._shown_at = reply.header.revision if reply.succeeded else 0
        return bool(reply.succeeded)

    def show_if_lost(self, keys: EtcdKeys) -> None:
        """Put this server's entry anew if it is an earlier one: an older backup of etcd has its lease, too."""
        wanted, is_shown = self._wanted, self._is_shown.is_set()
        shown = None if wanted is None else keys.server(wanted.id)
        if wanted is not None and shown is not None and is_shown and shown.map_version < wanted.map_version:
            self._is_changed.set()

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


def say_failure(error: CoordinatorUnavailableError, failures: int, place: str) -> None:
    """Log the first failure of a row, and the tenth.

    Args:
        place: Where the coordinator is.
    """
    if failures in (1, 10):
        what = "the coordinator refuses" if error.is_refusal else "the coordinator does not answer"
        log.warning(what, extra={"at": place, "reason": error.reason})
