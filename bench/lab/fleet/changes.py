"""What changes of a large cluster take one of its servers, and a client that follows it.

    change of the map     version 2; each server goes by it, and puts its entry
    rolling restart       a forty-eighth of the servers at once: drains, goes, comes back, is ready

The server's coordinator and member are the real ones, and so is what the client does with what it is told.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from pequod_bench.micro.members import MAP
from pequod_proto import pequod_pb2 as pb
from pequod_server.cluster.etcd import EtcdCoordinator
from pequod_server.cluster.member import Member
from pequod_server.homes.rules import HomeRules

from lab.fleet.played import ENDPOINT, PlayedEtcd, run_played
from pequod.cluster.map import ClusterState
from pequod.cluster.messages import message_of_difference, message_of_state, state_after, state_of
from pequod.cluster.owners import Owners, Rankings
from pequod.cluster.servers import ServerEntry, ServerRole, ServerState

#: Groups that a client reads between two changes.
_GROUPS: Final = 100
#: One home in this number of servers.
_HOMES: Final = 12
#: Servers that are restarted at once, as a part of all; and how long each takes for what.
_RESTARTED_PART: Final = 48
_DRAIN_S: Final = 0.2
_AWAY_S: Final = 2.0
_JOIN_S: Final = 1.0
_WAVE_S: Final = 5.0
#: How soon servers go by a map, at the least; and the time that etcd takes for each entry that they put.
_TAKE_IN_S: Final = 0.05
_PUT_S: Final = 0.0005
_MAP: Final = replace(MAP, version=1)


@dataclass(frozen=True, slots=True)
class Spent:
    """What changes of a cluster have taken."""

    #: By the clock of the cluster.
    seconds: float
    #: Entries and maps that etcd told each server.
    heard: int
    #: What the server told each client that follows it.
    told: int
    told_bytes: int
    server_cpu_s: float
    #: Of that, for each client.
    follower_cpu_s: float
    client_cpu_s: float
    #: Of a server that follows this one in place of etcd, without its looks at etcd.
    behind_cpu_s: float


#: Changes a cluster of these servers.
Changes = Callable[[PlayedEtcd, list[ServerEntry]], Awaitable[None]]


def servers_of(count: int) -> list[ServerEntry]:
    """Return the servers of a cluster, homes among them."""
    return [
        ServerEntry(
            f"s{number:04}",
            f"10.0.{number // 250}.{number % 250}:7744",
            frozenset({ServerRole.COMPUTE if number % _HOMES else ServerRole.HOME}),
            "" if number % _HOMES else "a",
            map_version=1,
        )
        for number in range(count)
    ]


def state_of_servers(count: int) -> ClusterState:
    """Return the state of such a cluster."""
    return ClusterState.of(_MAP, servers_of(count))


async def change_map(played: PlayedEtcd, others: list[ServerEntry]) -> None:
    """Change the map; each server goes by it a moment later, in no order."""
    random = Random(len(others))
    played.put_map(replace(_MAP, version=2))
    await asyncio.sleep(_TAKE_IN_S)
    for entry in random.sample(others, len(others)):
        played.put_server(replace(entry, map_version=2))
        await asyncio.sleep(_PUT_S)


async def restart_all(played: PlayedEtcd, others: list[ServerEntry]) -> None:
    """Restart all servers, some at once."""
    at_once = max(1, len(others) // _RESTARTED_PART)
    for start in range(0, len(others), at_once):
        wave = others[start : start + at_once]
        await asyncio.gather(*(_restart(played, entry, at * _PUT_S) for at, entry in enumerate(wave)))
        await asyncio.sleep(_WAVE_S - _DRAIN_S - _AWAY_S - _JOIN_S)


async def _restart(played: PlayedEtcd, entry: ServerEntry, late_s: float) -> None:
    await asyncio.sleep(late_s)
    played.put_server(replace(entry, state=ServerState.DRAINING))
    await asyncio.sleep(_DRAIN_S)
    played.remove_server(entry)
    await asyncio.sleep(_AWAY_S)
    if ServerRole.HOME in entry.roles:
        # A home is seen before it is ready.
        played.put_server(replace(entry, state=ServerState.JOINING, map_version=0))
    await asyncio.sleep(_JOIN_S)
    played.put_server(entry)


def spent_by(count: int, changes: Changes) -> Spent:
    """Play changes of a cluster; return what they take one of its computes and a client of it."""
    return run_played(_spent(count, changes))


async def _spent(count: int, changes: Changes) -> Spent:
    played, servers = PlayedEtcd(), servers_of(count)
    played.put_map(_MAP)
    for entry in servers:
        played.put_server(entry)
    mine = next(entry for entry in servers if ServerRole.COMPUTE in entry.roles)
    coordinator = EtcdCoordinator((ENDPOINT,), "twip", calls=played)
    member = Member(coordinator, mine, _take_in, rules=HomeRules(mine))
    await member.start()
    await member.show(7744)
    client = _Client()
    following = asyncio.create_task(client.follow(member))
    # Everything of the start has been told by then.
    await asyncio.sleep(2 + count / 500)
    loop = asyncio.get_running_loop()
    client.begin_anew()
    told_before = len(client.messages)
    heard, begun_s, played_ns, begun_ns = played.change_count, loop.time(), played.spent_ns, time.thread_time_ns()
    await changes(played, [entry for entry in servers if entry.id != mine.id])
    seconds = loop.time() - begun_s
    await asyncio.sleep(2 + count / 500)
    whole_ns = time.thread_time_ns() - begun_ns - (played.spent_ns - played_ns)
    assert client.told, "the server follows"
    assert client.state == member.state, "differences lead to what the server knows"
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await member.stop()
    behind = _Behind(client.messages, told_before, next(one for one in reversed(servers) if one.roles == mine.roles))
    return Spent(
        seconds=seconds,
        heard=played.change_count - heard,
        told=client.told,
        told_bytes=client.told_bytes,
        server_cpu_s=(whole_ns - client.client_ns) / 1e9,
        follower_cpu_s=client.follower_ns / 1e9,
        client_cpu_s=client.client_ns / 1e9,
        behind_cpu_s=await behind.spent_ns() / 1e9,
    )


async def _take_in(_state: ClusterState) -> None:
    """Do what a compute does with a state whose homes and joins are as before: nothing."""


class _Behind(EtcdCoordinator):
    """The coordinator of a server that is told what another one has told.

    Args:
        messages: The first one is a whole state.
        first: The number of the first one that is counted.
        mine: The server.
    """

    def __init__(self, messages: list[bytes], first: int, mine: ServerEntry) -> None:
        super().__init__((ENDPOINT,), "twip", calls=PlayedEtcd())
        self._messages = messages
        self._first = first
        self._mine = mine
        self._begun_ns = 0
        self._is_told = asyncio.Event()

    async def read(self) -> ClusterState:
        return state_of(pb.FollowClusterReply.FromString(self._messages[0]))

    async def follow(self) -> AsyncIterator[ClusterState]:
        state = await self.read()
        for number, message in enumerate(self._messages):
            if number == self._first:
                self._begun_ns = time.thread_time_ns()
            state = state_after(state, pb.FollowClusterReply.FromString(message))
            yield state
            await asyncio.sleep(1)
        self._is_told.set()
        await asyncio.Event().wait()

    async def spent_ns(self) -> int:
        """Return what the server takes to take it in."""
        member = Member(self, self._mine, _take_in, rules=HomeRules(self._mine))
        await member.start()
        await member.show(7744)
        await self._is_told.wait()
        spent_ns = time.thread_time_ns() - self._begun_ns
        assert member.entry.map_version == member.map.version
        await member.stop()
        return spent_ns


class _Client:
    """A client that follows a server, and reads some groups after each change."""

    def __init__(self) -> None:
        self.state: ClusterState | None = None
        self._rankings = Rankings()
        self._keys = [b"t|%08d|" % number for number in range(_GROUPS)]
        #: All that it was told.
        self.messages: list[bytes] = []
        self.begin_anew()

    def begin_anew(self) -> None:
        """Count from now on."""
        self.told = self.told_bytes = self.follower_ns = self.client_ns = 0

    async def follow(self, member: Member) -> None:
        before: ClusterState | None = None
        async for state in member.states():
            made = message_of_state(state) if before is None else message_of_difference(before, state)
            begun = time.thread_time_ns()
            # What the server does for each client: the rest is made once for all.
            reply = pb.FollowClusterReply()
            reply.CopyFrom(made)
            message = reply.SerializeToString()
            made_at = time.thread_time_ns()
            self.messages.append(message)
            self._take(message)
            self.follower_ns += made_at - begun
            self.client_ns += time.thread_time_ns() - made_at
            self.told += 1
            self.told_bytes += len(message)
            before = state

    def _take(self, message: bytes) -> None:
        reply = pb.FollowClusterReply.FromString(message)
        self.state = state_after(self.state, reply)
        owners = Owners(self.state, self._rankings)
        for key in self._keys:
            owners.readers(key)
