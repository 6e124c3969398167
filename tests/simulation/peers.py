"""Simulated homes and computes: the real relay and the real `PequodStore`, over simulated links.

database ==== home 0 ==== compute 0        a home serves its computes beside its clients
         ==== home 1 ==== compute 1        a compute's feed goes to one home, and on to the other

database ==== home 0 ==== relay 0 ==== compute 0      a relay is a compute, and others are behind it
         ==== home 1 ==== relay 1 ==== compute 1      or behind a home, or a relay behind a relay
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Any, Final, cast

from pequod_proto import pequod_pb2 as pb
from pequod_server.backing import BackingStore, BackingUnavailableError, Event
from pequod_server.backing.health import Backoff
from pequod_server.backing.store import IsWanted, every_key
from pequod_server.calls.service import PequodService
from pequod_server.cluster.coordinator import FOLLOWS
from pequod_server.cluster.through_servers import Hear
from pequod_server.config import ServerConfig
from pequod_server.homes.compute.store import PequodStore
from pequod_server.homes.home.making import make_peer_service
from pequod_server.homes.home.service import PeerService
from pequod_server.memory.admission import Admission
from pequod_server.wire.handlers import CallEnded, Context

from pequod.cluster.map import ClusterState
from pequod.cluster.messages import state_after
from pequod.errors import NotHomeError, NotNumberError, PequodError
from tests.simulation.links import ConnectionLostError, End, Network
from tests.simulation.machine import Machine
from tests.simulation.store import TABLES

#: How long a call may take; the feed itself notices silence sooner.
_CALL_S: Final = 5.0
_SILENCE_S: Final = 2.0
#: How long messages may be under way before their connection is taken for lost.
_UNREAD_S: Final = 10 * _CALL_S
#: How long a server that tells the map may say nothing.
_MAP_SILENCE_S: Final = 2 * _CALL_S


class _Caller:
    """What the home's handlers take for the context of a call."""

    def __init__(self, end: End) -> None:
        self._end = end

    def peer(self) -> str:
        return self._end.there

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ((FOLLOWS, self._end.there),)


class _Serving(Machine):
    """A server whose base data computes load and follow.

    Args:
        computes: The names of the machines that may be connected with it.
        keep_bytes: See the setting `peer_keep_bytes`.
        window: How many messages of a feed are under way at most.
    """

    def __init__(self, network: Network, name: str, computes: Sequence[str], keep_bytes: int, window: int) -> None:
        self._computes = tuple(computes)
        self._keep_bytes = keep_bytes
        self._window = window
        network.listen(name, self._serve)
        super().__init__(network, name)

    def _create(self) -> None:
        super()._create()
        config = ServerConfig(peer_keep_bytes=self._keep_bytes)
        self.peers = make_peer_service(
            config, self.engine, self.databases, TABLES, self.service.server_id, Admission(config)
        )

    async def _end(self) -> None:
        self.peers.stop()
        self._cut_off()
        # Feeds that wait for a window end now.
        await asyncio.sleep(0.001)
        await super()._end()

    def _cut_off(self) -> None:
        super()._cut_off()
        for compute in self._computes:
            self._network.reset(compute, self.name)

    async def _serve(self, end: End) -> None:
        if self.is_up:
            await answer(self.peers, end, self._window)


class Home(_Serving):
    """A server beside the database whose base data computes load and follow."""


async def answer(peers: PeerService, end: End, window: int, service: PequodService | None = None) -> None:
    """Answer the one call of a connection, as gRPC would.

    Args:
        window: How many messages of a feed are under way at most.
        service: What tells servers the map; None: none follows this one.
    """
    kind, data = await end.receive(_CALL_S)
    context = cast("Context", _Caller(end))
    try:
        match kind:
            case "load":
                async for reply in peers.Load(pb.PeerLoadRequest.FromString(data), context):
                    end.send(reply.SerializeToString())
                end.send(None)
            case "position":
                position = await peers.Position(pb.PeerPositionRequest.FromString(data), context)
                end.send(position.SerializeToString())
            case "write":
                written = await peers.Write(pb.PeerWriteRequest.FromString(data), context)
                end.send(written.SerializeToString())
            case "write_if":
                decided = await peers.WriteIf(pb.PeerWriteIfRequest.FromString(data), context)
                end.send(decided.SerializeToString())
            case "transact":
                done = await peers.Transaction(pb.PeerTransactionRequest.FromString(data), context)
                end.send(done.SerializeToString())
            case "add":
                found = await peers.Add(pb.PeerAddRequest.FromString(data), context)
                end.send(found.SerializeToString())
            case "ids":
                page = await peers.Ids(pb.PeerIdsRequest.FromString(data), context)
                end.send(page.SerializeToString())
            case "take_ids":
                taken = await peers.TakeIds(pb.PeerTakeIdsRequest.FromString(data), context)
                end.send(taken.SerializeToString())
            case "map":
                assert service is not None
                request = pb.FollowClusterRequest.FromString(data)
                async with aclosing(service.FollowCluster(request, context)) as replies:  # type: ignore[type-var]
                    async for told in replies:
                        end.send(told.SerializeToString())
                        await end.room(window, _UNREAD_S)
            case "feed":
                await _feed(peers, end, data, context, window)
    except (PequodError, CallEnded) as error:
        with suppress(ConnectionLostError):
            end.send(refusal(end.here, error))


def refusal(home: str, error: Exception) -> PequodError:
    """Return what a compute makes of a refused call."""
    return error if isinstance(error, NotHomeError | NotNumberError) else BackingUnavailableError(home, str(error))


async def _feed(peers: PeerService, end: End, hello: bytes, context: Context, window: int) -> None:
    async def requests() -> AsyncIterator[pb.PeerFeedRequest]:
        yield pb.PeerFeedRequest.FromString(hello)
        while True:
            try:
                yield pb.PeerFeedRequest.FromString(await end.receive(10 * _CALL_S))
            except ConnectionLostError:
                return

    async with aclosing(peers.Feed(requests(), context)) as replies:  # type: ignore[type-var]
        async for reply in replies:
            end.send(reply.SerializeToString())
            await end.room(window, _UNREAD_S)


class SimulatedChannel:
    """A channel of a compute with a home."""

    def __init__(self, network: Network, here: str, there: str) -> None:
        self._network = network
        self._here = here
        self._there = there
        self._ends: list[End] = []

    async def load(self, request: pb.PeerLoadRequest) -> AsyncIterator[pb.PeerLoadReply]:
        """Read ranges."""
        end = self._call("load", request)
        while (data := await self._reply(end, _CALL_S)) is not None:
            yield pb.PeerLoadReply.FromString(data)

    async def feed(self, requests: AsyncIterator[pb.PeerFeedRequest]) -> AsyncIterator[pb.PeerFeedReply]:
        """Follow changes."""
        end = self._call("feed", await anext(requests))
        sending = asyncio.create_task(self._send(end, requests), name=f"{self._here} asks {self._there}")
        try:
            while True:
                yield pb.PeerFeedReply.FromString(await self._reply(end, 10 * _CALL_S))
        finally:
            sending.cancel()

    async def _send(self, end: End, requests: AsyncIterator[pb.PeerFeedRequest]) -> None:
        with suppress(ConnectionLostError):
            async for request in requests:
                end.send(request.SerializeToString())

    async def position(self, request: pb.PeerPositionRequest) -> pb.PeerPositionReply:
        """Ask for a place."""
        return pb.PeerPositionReply.FromString(await self._reply(self._call("position", request), _CALL_S))

    async def write(self, request: pb.PeerWriteRequest) -> pb.PeerWriteReply:
        """Write changes."""
        return pb.PeerWriteReply.FromString(await self._reply(self._call("write", request), _CALL_S))

    async def write_if(self, request: pb.PeerWriteIfRequest) -> pb.PeerWriteIfReply:
        """Write a change if its condition holds."""
        return pb.PeerWriteIfReply.FromString(await self._reply(self._call("write_if", request), _CALL_S))

    async def transact(self, request: pb.PeerTransactionRequest) -> pb.PeerTransactionReply:
        """Run a transaction."""
        return pb.PeerTransactionReply.FromString(await self._reply(self._call("transact", request), _CALL_S))

    async def add(self, request: pb.PeerAddRequest) -> pb.PeerAddReply:
        """Add to a value."""
        return pb.PeerAddReply.FromString(await self._reply(self._call("add", request), _CALL_S))

    async def ids(self, request: pb.PeerIdsRequest) -> pb.PeerIdsReply:
        """Return request ids that the home remembers."""
        return pb.PeerIdsReply.FromString(await self._reply(self._call("ids", request), _CALL_S))

    async def take_ids(self, request: pb.PeerTakeIdsRequest) -> pb.PeerTakeIdsReply:
        """Have the home remember request ids."""
        return pb.PeerTakeIdsReply.FromString(await self._reply(self._call("take_ids", request), _CALL_S))

    async def states(self) -> AsyncGenerator[ClusterState, None]:
        """Hear the map, and who is there."""
        end = self._call("map", pb.FollowClusterRequest(with_joins=True, differences=True))
        state: ClusterState | None = None
        while True:
            told = await self._reply(end, _MAP_SILENCE_S)
            state = state_after(state, pb.FollowClusterReply.FromString(told))
            yield state

    async def close(self) -> None:
        """Cut the calls under way off."""
        for end in self._ends:
            end.close()

    def _call(self, kind: str, request: Any) -> End:
        end = self._network.connect(self._here, self._there)
        self._ends = [one for one in self._ends if not one.is_lost]
        self._ends.append(end)
        end.send((kind, request.SerializeToString()))
        return end

    async def _reply(self, end: End, wait_s: float) -> Any:
        try:
            reply = await end.receive(wait_s)
        except ConnectionLostError as error:
            raise BackingUnavailableError(self._there, str(error)) from error
        if isinstance(reply, PequodError):
            raise reply
        return reply


def hearing(network: Network, here: str) -> Hear:
    """Return how a machine hears the map from others."""

    async def hear(address: str) -> AsyncGenerator[ClusterState, None]:
        channel = SimulatedChannel(network, here, address)
        try:
            async for state in channel.states():
                yield state
        finally:
            await channel.close()

    return hear


class _Store(PequodStore):
    """The real store, which tells the simulation of its events."""

    at_event: Callable[[], None]

    async def changes(self, since: int | None = None, is_wanted: IsWanted = every_key) -> AsyncIterator[Event]:
        """Yield the events of the homes."""
        async for event in super().changes(since, is_wanted):
            self.at_event()
            yield event
            self.at_event()


class _Behind(Machine):
    """A server whose database are homes, or relays; `homes` are their names, in the order in which they are tried."""

    homes: tuple[str, ...]

    def _make_store(self) -> BackingStore:
        store = _Store(
            self.homes,
            TABLES,
            connect=lambda address: SimulatedChannel(self._network, self.name, address),
            silence_s=_SILENCE_S,
            backoff=Backoff(first_s=0.02, most_s=1.0),
            # The simulation replaces the clock.
            clock=lambda: time.monotonic(),  # noqa: PLW0108
        )
        store.at_event = self._at_event
        return store


class Compute(_Behind):
    """A server that computes from others."""

    def __init__(self, network: Network, name: str, homes: Sequence[str]) -> None:
        self.homes = tuple(homes)
        super().__init__(network, name)
        self.upstreams = self.homes


class RelayMachine(_Behind, _Serving):
    """A server that computes from others, and serves computes."""

    def __init__(
        self, network: Network, name: str, homes: Sequence[str], computes: Sequence[str], keep_bytes: int, window: int
    ) -> None:
        self.homes = tuple(homes)
        super().__init__(network, name, computes, keep_bytes, window)
        self.upstreams = self.homes
