"""When calls are hot: answered by the native core from the bytes of a read to those of a write.

A handler and the interceptors before it ask questions about each call. This asks them once for all calls that one read
of a socket brings: whether calls are taken, how fresh reads are, which keys are written here, what callers may do.
Where the answer is not plain, no call is hot, and handlers say what is wrong.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from pequod_proto import pequod_pb2 as pb

from pequod.errors import PequodError, UnauthenticatedError
from pequod.native import NativeBatch
from pequod.native.http2 import (
    HOT_BYTES_MAX,
    HOT_METHODS,
    HotLimits,
    HotTurn,
    NativeHotCalls,
    Ranges,
    SlowBatch,
    SlowCall,
    new_hot_calls,
)
from pequod.wire.metadata import text_of
from pequod_server.access.grants import KeyRanges
from pequod_server.access.guard import AccessGuard, certificate_names
from pequod_server.calls.executing import ExecuteCalls
from pequod_server.calls.served import ServedEngine
from pequod_server.homes.rules import HomeRules
from pequod_server.memory.admission import Admission
from pequod_server.ops.logs import SlowLog
from pequod_server.passing.native_links import NativeLinks
from pequod_server.passing.passing import Passing
from pequod_server.passing.shared import common
from pequod_server.transport.headers import Opening
from pequod_server.transport.hot_calls import HotClient
from pequod_server.wire.connections import Connections
from pequod_server.wire.under_way import CallsUnderWay

if TYPE_CHECKING:
    from pequod_server.data.disk import Disk

log = logging.getLogger("pequod.server")

#: How many callers of one read are looked up: the core remembers no more of one connection.
_CALLERS_MAX: Final = 4


class ServedHotCalls:
    """The hot calls of one server.

    Args:
        batches: Has the streams of batches.
        slow: Told of calls and batches that took long.
        guard: Knows the rights of callers; None: everybody may do everything.
        rules: Which keys the map of the cluster lets this server write; None: it belongs to none.
        disk: Keeps what calls change; None: nothing does.
        passing: Knows what other workers have to do; None: this is the whole server.
    """

    __slots__ = (
        *("_admission", "_batches", "_calls", "_connections", "_disk", "_guard", "_levels", "_passing", "_rules"),
        *("_relay", "_relay_as", "_served", "_slow", "_takes_any_length", "has_disk", "has_guard", "native"),
    )

    def __init__(
        self,
        served: ServedEngine,
        admission: Admission,
        calls: CallsUnderWay,
        connections: Connections,
        batches: ExecuteCalls,
        slow: SlowLog,
        *,
        guard: AccessGuard | None,
        rules: HomeRules | None,
        disk: Disk | None = None,
        passing: Passing | None = None,
    ) -> None:
        config = served.config
        self._served = served
        self._admission = admission
        self._calls = calls
        self._connections = connections
        self._batches = batches
        self._slow = slow
        self._guard = guard
        self._rules = rules
        self._disk = disk
        self._levels = served.executor.levels
        #: Says which keys this worker can answer; None: all.
        self._passing = None if passing is None or passing.is_home else passing
        self.has_guard, self.has_disk = guard is not None or self._passing is not None, disk is not None
        #: Whether no message that is short enough for a hot call is too long for the server. 0: a share of its memory.
        self._takes_any_length = not 0 < config.message_bytes_max < HOT_BYTES_MAX
        limits = HotLimits(config.rows_max, config.batch_commands_max, config.reply_bytes_max, config.chunk_bytes)
        ids = served.executor.ids
        slow_s = config.slow_ms / 1000 if config.slow_ms else float("inf")
        self.native: NativeHotCalls = new_hot_calls(served.engine, served.server_id, limits, slow_s, ids)
        served.levels.counters.hot_reads = lambda: self.native.reads
        self._relay: NativeLinks | None = None
        if passing is not None:
            passing.relay_by(self, config.calls_max, has_guard=guard is not None)
            self._relay = passing.relay
            calls.relayed = lambda: self.native.relayed_count
        #: By which header other workers know a role; None: there are none.
        self._relay_as = None if passing is None else passing.relay_as

    def turn(self, client: HotClient) -> HotTurn | None:
        """Return what holds for the calls that a connection keeps back; None: they are calls as any others."""
        if not self._may_run() or not self._connections.admits(client.peer):
            return None
        if self.has_guard:
            self._admit(client)
            for meter in client.meters:
                meter.lend()
        if self._relay is not None:
            self._relay.refresh()
        return self._present()

    def _may_run(self) -> bool:
        return (
            self._admission.at_once_bytes > 0
            and self._takes_any_length
            and not self._served.engine.is_timed
            and not log.isEnabledFor(logging.DEBUG)
            and self._calls.admits_at_once
        )

    def _present(self) -> HotTurn:
        served, room = self._served, self._admission.at_once_bytes
        homes = None if self._rules is None else self._rules.bounds
        served.databases.expiring.pass_due()
        levels = served.levels
        if not served.databases.all:
            return served.executor.clock(), levels.own_token_head, True, 0, True, homes, room
        return served.executor.clock(), levels.token, False, levels.age_ms, self._levels.passes_reads(), homes, room

    # What the calls of other workers ask; see `RelayHost`.

    def relay_turn(self) -> HotTurn | None:
        """Return what holds for calls that another worker passes on; None: they go back."""
        return self._present() if self._may_run() else None

    def has_come_to(self, token: bytes) -> bool:
        """Return whether a state is reached that a token names."""
        return self._served.levels.has_at_once(pb.Freshness(after=token).SerializeToString())

    def readable_as(self, authorization: bytes) -> Ranges | Literal[False]:
        """Return what a role may read, by the header of a worker; False: there is no such role."""
        guard = self._guard
        if guard is None:
            return None
        try:
            role, _ = guard.tenure_of(text_of(authorization), tuple)
        except UnauthenticatedError:
            return False
        return False if guard.meters.of(role) is not None else _ranges(role.read)

    @property
    def rules(self) -> object:
        """The access rules; another object where they have changed."""
        return None if self._guard is None else self._guard.access.rules()

    def answered(self, streams: Sequence[asyncio.Task[Any]]) -> None:
        """Take note of calls whose batches have run."""
        self._batches.ran(streams)

    def were_slow(self, calls: Sequence[SlowCall], batches: Sequence[SlowBatch]) -> None:
        """Take note of calls and batches that took long."""
        for method, seconds, fields, request in calls:
            name = HOT_METHODS[method]
            kind: Any = getattr(pb, f"{name}Request")
            self._slow.slow_call(name, Opening(fields).metadata, kind.FromString(request), seconds)
        for batch in batches:
            self._slow.slow_batch(*batch)

    def go_on(self, stream: asyncio.Task[Any], batch: NativeBatch) -> object:
        """Go on with a batch of a call that waits for one; return what its handler gets in its place."""
        return self._batches.go_on(stream, batch)

    def settled(self, then: Callable[[PequodError | None], None]) -> bool:
        """Return whether the replies of calls that have run may leave; if not, ``then`` is called when they may.

        Or it is called with why they may not: what the calls have changed is undone.
        """
        return self._disk is None or self._disk.settled(then)

    def _admit(self, client: HotClient) -> None:
        """Tell a connection the rights of its callers; those that are not known are refused by the guard."""
        session, guard = client.session, self._guard
        shared = None if self._passing is None else self._passing.shared
        rules = (None if guard is None else guard.access.rules(), shared)
        if rules != client.rules or (guard is not None and client.rights_end_s <= guard.access.clock()):
            session.forget_rights()
            client.meters.clear()
            client.rules, client.rights_end_s = rules, math.inf
        for _ in range(_CALLERS_MAX):
            authorization = session.stranger()
            if authorization is None:
                return
            if guard is None:
                assert shared is not None, "there is a guard, or there are other workers"
                session.admit(authorization, shared.tables.bounds, shared.bases.bounds)
                continue
            try:
                role, end_s = guard.tenure_of(text_of(authorization), lambda: certificate_names(client))
            except UnauthenticatedError:
                return
            client.rights_end_s = min(client.rights_end_s, end_s)
            readable, writable = _ranges(role.read), _ranges(role.write)
            if shared is not None:
                readable = common(readable, shared.tables.bounds)
                writable = common(writable, shared.bases.bounds)
            if (meter := guard.meters.of(role)) is None:
                relay_as = None if self._relay_as is None else self._relay_as(role.name)
                session.admit(authorization, readable, writable, None, relay_as)
                continue
            if meter not in client.meters:
                client.meters.append(meter)
            session.admit(authorization, readable, writable, meter.lend())


def _ranges(ranges: KeyRanges) -> Ranges:
    return None if ranges.is_everything else ranges.bounds
