"""Passes calls on to the worker that has what they need; it stands before the handlers of each worker.

    Get t|ann|7 at w1 -> t|ann| is computed at w2 -> w2, after the state that w1 has shown -> its reply
                                     w2 is away   -> w1 computes it
    Put x|1 at w1     -> only the home has x|     -> w0 -> its reply
                                     w0 is away   -> w1 asks again, unless w0 may have done it and has no id of it

A call that has come from another worker goes no further: what it asks for is done here. Statuses, levels of freshness,
deadlines and the caller's role are as they were.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

import grpc
from grpc import aio
from pequod_proto import pequod_pb2 as pb

from pequod.cluster.grouping import grouping
from pequod.cluster.map import ClusterMap
from pequod.cluster.rendezvous import owners, reader
from pequod_server.access.access_file import token_as
from pequod_server.cluster.member import Member
from pequod_server.config import ServerConfig
from pequod_server.freshness.demands import level_of
from pequod_server.freshness.levels import Levels
from pequod_server.heat.meter import HeatMeter
from pequod_server.passing.links import HomeWait, Link, Refused
from pequod_server.passing.named_ranges import READS, SPREAD, ranges_of
from pequod_server.passing.native_links import NativeLinks, relay_path
from pequod_server.passing.relay_door import RelayDoor, RelayHost
from pequod_server.passing.shared import SharedTables
from pequod_server.passing.spreading import Spreading
from pequod_server.wire.bounds import Bounds
from pequod_server.wire.handlers import (
    SERVICE_PATH,
    Context,
    Continuation,
    Handler,
    Wrapped,
    method_of,
)
from pequod_server.worker import HOME_ID, Worker

#: Groups whose reader is kept.
_READERS_MAX: Final = 1 << 16
#: Calls that are about the worker that is asked, or that every worker answers alike.
_LOCAL: Final = frozenset(
    ("Execute", "FollowCluster", "ListJoins", "CheckJoin", "AddJoin", "DropJoin", "ReplaceJoin", "EndReplacement")
) | {"ListReplacements", "Stats", "SlowCalls", "Invalidate"}


class Passing(aio.ServerInterceptor):
    """Decides for each call which worker does it.

    Requires:
        `start` is called once the map is there, before the first call.

    Invariants:
        1. ``_readers`` are by the placements and the servers of the map ``_known``.
    """

    def __init__(self, worker: Worker, member: Member, transport: str, spread_max: int = 1) -> None:
        self._worker = worker
        self._member = member
        self._transport = transport
        self._spread_max = spread_max
        self._spreading: Spreading | None = None
        self._levels: Levels | None = None
        self._links: dict[str, Link] = {}
        self._known: ClusterMap | None = None
        self._shared: SharedTables | None = None
        #: The worker that answers reads of a group which come to this one.
        self._readers: dict[bytes, str] = {}
        self._passing = Wrapped(self._around)
        #: The links of reads that the native core passes on, and the door of those of others; None: there are none.
        self.relay: NativeLinks | None = None
        self._door: RelayDoor | None = None
        #: How many calls and batches were passed on, and how many of them were done here since the other was away.
        self.passed = self.returned = 0

    def start(self, levels: Levels, heat: HeatMeter) -> None:
        """Pass calls on from now on, and spread what is hot."""
        self._levels = levels
        self._spreading = Spreading(self._worker, self._member, heat, self._spread_max)
        self._spreading.start()

    def relay_by(self, host: RelayHost, calls_max: int, *, has_guard: bool) -> None:
        """Have the native core pass reads on, and answer those of others."""
        self._door = RelayDoor(host, relay_path(self._worker.door))
        self.relay = NativeLinks(
            self._worker,
            self._member,
            host.native,
            lambda: self.shared,
            calls_max,
            lambda calls: host.were_slow(calls, ()),
            has_guard=has_guard,
        )

    async def open_door(self) -> None:
        """Take reads that other workers pass on.

        Raises:
            OSError: The socket cannot be made.
        """
        if self._door is not None:
            await self._door.open()

    def relay_as(self, role: str) -> bytes:
        """Return by which header other workers know a role."""
        return f"Bearer {token_as(self._worker.token, role)}".encode()

    async def close(self) -> None:
        """Cut off what is under way at other workers."""
        if self._spreading is not None:
            await self._spreading.stop()
        if self._door is not None:
            await self._door.close()
        if self.relay is not None:
            await self.relay.close()
        for link in self._links.values():
            await link.close()

    async def intercept_service(self, continuation: Continuation, details: grpc.HandlerCallDetails) -> Handler | None:
        """Wrap the method of a call that may be another worker's."""
        handler = await continuation(details)
        if handler is None or not details.method.startswith(SERVICE_PATH):
            return handler
        return self._passing.around(details.method, handler)

    @property
    def is_home(self) -> bool:
        """Whether this worker has all base data."""
        return self._worker.id == HOME_ID

    @property
    def shared(self) -> SharedTables:
        """The tables that this worker can answer."""
        known = self._member.map
        if self._shared is None or known is not self._known:
            self._known, self._shared = known, SharedTables(known)
            self._readers.clear()
        return self._shared

    def has_come(self, context: Context) -> bool:
        """Return whether a call has come from another worker."""
        return context.peer().startswith("unix:")

    def _place(self, name: str, ranges: Sequence[Bounds] | None) -> str:
        """Return the id of the worker that does a call."""
        if ranges is None or not self.shared.have(ranges, are_written=name not in READS):
            return HOME_ID
        if name not in SPREAD or not ranges:
            return self._worker.id
        places = {self._reader(first) for first, _ in ranges}
        return places.pop() if len(places) == 1 else self._worker.id

    def _reader(self, key: bytes) -> str:
        groups = grouping(self._member.map.placements)
        group = groups.group_of(key)
        found = self._readers.get(group)
        if found is None:
            if len(self._readers) >= _READERS_MAX:
                self._readers.clear()
            ranked = owners(group, [(server.id, server.weight) for server in self._member.state.servers])
            found = reader(ranked, spread=groups.read_spread_of(group), own=self._worker.id)
            self._readers[group] = found
        return found

    def link(self, name: str) -> Link:
        """Return the way to a worker."""
        if (link := self._links.get(name)) is None:
            (address,) = (server.address for server in self._member.state.servers if server.id == name)
            link = self._links[name] = Link(address, self._transport, self._worker.token)
        return link

    def _around(self, method: str, handler: Handler) -> Handler:
        name = method.removeprefix(SERVICE_PATH)
        if name in _LOCAL:
            return handler
        behaviour, make = method_of(handler)
        is_generator = inspect.isasyncgenfunction(behaviour)
        passed: Any = self._replies(name, behaviour) if is_generator else self._reply(name, behaviour)
        return make(passed, handler.request_deserializer, handler.response_serializer)

    def _reply(self, name: str, behaviour: Callable[[Any, Context], Any]) -> Callable[[Any, Context], Any]:
        async def reply_to(request: Any, context: Context) -> Any:
            ranges = ranges_of(name, request)
            place = self._place(name, ranges)
            if place == self._worker.id or self.has_come(context):
                return await behaviour(request, context)
            link = self.link(place)
            call = getattr(link.stub, name)
            has_asked = self._ask_for_shown(name, request, link, ranges)
            self.passed += 1
            waiting = HomeWait()
            while True:
                try:
                    reply = await call(request, timeout=context.time_remaining(), metadata=link.metadata())
                    break
                except aio.AioRpcError as error:
                    refused = Refused(error)
                if self._takes_back(name, request, ranges, refused, has_asked=has_asked):
                    return await behaviour(request, context)
                may_repeat = refused.is_unapplied or name in READS or bool(getattr(request, "request_id", b""))
                await waiting.pause(refused, may_repeat=may_repeat)
            link.reached = reply.header.token
            if name not in READS and ranges:
                await self.come_to(reply.header.token, ranges)
            return reply

        return reply_to

    def _replies(
        self, name: str, behaviour: Callable[[Any, Context], AsyncIterator[Any]]
    ) -> Callable[[Any, Context], AsyncIterator[Any]]:
        async def replies_to(request: Any, context: Context) -> AsyncIterator[Any]:
            ranges = ranges_of(name, request)
            place = self._place(name, ranges)
            link = None if place == self._worker.id or self.has_come(context) else self.link(place)
            has_begun, has_asked, waiting = False, False, HomeWait()
            if link is not None:
                has_asked = self._ask_for_shown(name, request, link, ranges)
                self.passed += 1
            while link is not None:
                timeout_s = context.time_remaining()
                call = getattr(link.stub, name)(request, timeout=timeout_s, metadata=link.metadata())
                try:
                    async for reply in call:
                        has_begun = True
                        link.reached = reply.header.token
                        yield reply
                        del reply
                    return
                except aio.AioRpcError as error:
                    refused = Refused(error)
                finally:
                    call.cancel()
                if not has_begun and self._takes_back(name, request, ranges, refused, has_asked=has_asked):
                    break
                await waiting.pause(refused, may_repeat=not has_begun)
            async for reply in behaviour(request, context):
                yield reply
                del reply

        return replies_to

    def _can_answer(self, name: str, ranges: Sequence[Bounds] | None) -> bool:
        return name in READS and ranges is not None and self.shared.have(ranges, are_written=False)

    def _takes_back(
        self, name: str, request: Any, ranges: Sequence[Bounds] | None, refused: Refused, *, has_asked: bool
    ) -> bool:
        """Return whether this worker does a call after all, that another one does not do."""
        if not self._can_answer(name, ranges) or not (refused.is_away or (has_asked and refused.is_late)):
            return False
        if has_asked:
            request.ClearField("freshness")
        self.returned += 1
        return True

    def _ask_for_shown(self, name: str, request: Any, link: Link, ranges: Sequence[Bounds] | None) -> bool:
        """Have a read show at least what this worker shows: its client may have seen that, or written it.

        Returns:
            Whether a level was set that the client has not asked for.
        """
        assert self._levels is not None, "`start` comes before the first call"
        if name not in SPREAD or not self._can_answer(name, ranges) or level_of(request) is not None:
            return False
        token = self._levels.token
        if not token or token == link.reached:
            return False
        request.freshness.after = token
        return True

    async def come_to(self, token: bytes, ranges: Sequence[Bounds]) -> None:
        """Wait until this worker shows what the home has written of tables that it reads itself."""
        assert self._levels is not None, "`start` comes before the first call"
        if token and not self.is_home and self.shared.touch(ranges):
            demand = self._levels.demand(level_of(pb.GetRequest(freshness=pb.Freshness(after=token))))
            await self._levels.read(lambda: None, ranges, demand)


def make_passing(config: ServerConfig, worker: Worker | None, member: Member | None) -> Passing | None:
    """Return what passes calls on to other workers, if there are some."""
    if worker is None:
        return None
    assert member is not None, "workers go by a map"
    return Passing(worker, member, config.transport, config.worker_spread)
