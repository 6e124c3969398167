"""A simulated cluster of two home groups: clients write and read anywhere while ranges move and parts fail.

step     a write or a read of a client at some server, a change of the map, a move, an eviction, or a fault
rest     all links work and moves are done; then every compute must answer what clients have written
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any, Final

from pequod_grammar import parse
from pequod_proto import pequod_pb2 as pb
from pequod_server.backing import RowChange
from pequod_server.cluster.joins import under_way

from pequod.cluster.edits import moves_within
from pequod.cluster.map import ClusterMap, HomeRange
from pequod.errors import (
    BackingUnavailableError,
    ClusterMapError,
    CoordinatorUnavailableError,
    JoinError,
    MapChangedError,
    NotHomeError,
    NotReplaceableError,
    StaleError,
    UnassignedKeyError,
    UnknownJoinError,
)
from pequod.freshness import NO_TOKEN, Token
from tests.simulation.cluster_mix import CUTS, FAULTS, KEYS, NAMES, RANGES, STEPS
from tests.simulation.database import Database
from tests.simulation.decided import Add, Decided, WriteIf, draw_decided, outcome_of
from tests.simulation.framing import Report, fault_of, in_loop, still_running
from tests.simulation.joins import draw_joins, draw_replacing
from tests.simulation.links import Network
from tests.simulation.loop import SimulatedLoop
from tests.simulation.machine import NO_CONTEXT
from tests.simulation.members import Server
from tests.simulation.mix import draw_mix, drawn_weights
from tests.simulation.operating import Operator
from tests.simulation.registry import Registry, SimulatedCoordinator
from tests.simulation.resent import SentWrites
from tests.simulation.truth import Bounds, Session, Truth

_GROUPS: Final = ("a", "b")
#: What a healthy server may refuse a call with while parts fail and ranges move.
_REFUSALS: Final = (BackingUnavailableError, StaleError, NotHomeError, UnassignedKeyError)
#: What a compute may refuse a replacement with: there is another one, or the map cannot be changed now.
_UNREPLACED: Final = (
    JoinError,
    NotReplaceableError,
    UnknownJoinError,
    ClusterMapError,
    CoordinatorUnavailableError,
    MapChangedError,
)
_REST_S: Final = 240.0


class ClusterSchedule:
    """The steps of one simulation of a cluster.

    Args:
        follow: Whether computes hear of the map from homes, and not from the coordinator.
    """

    def __init__(self, draw: Random, *, follow: bool = False) -> None:
        self._random = draw
        mix = draw_mix(Random(draw.random()))
        self._pauses_s = mix.pauses_s
        self._weights = drawn_weights(draw, STEPS)
        self._network = Network(Random(draw.random()), slowest_s=mix.slowest_s)
        self._databases = {
            group: Database(
                self._network,
                Random(draw.random()),
                name=f"database {group}",
                load_s=mix.load_s,
                trickle_s=mix.trickle_s,
            )
            for group in _GROUPS
        }
        homes = (HomeRange(b"p|", b"p|m", "a"), HomeRange(b"p|m", b"p}", "b"), HomeRange(b"q|", b"q}", "b"))
        joins = draw_joins(Random(draw.random()))
        first = ClusterMap("twip", 1, joins, home_ranges=(*homes, HomeRange(b"s|", b"s}", "a")))
        self._registry = Registry(first)
        outputs = {spec.output.literal_prefix for spec in parse(joins)}
        self._ranges = [one for one in RANGES if one[0].startswith((*outputs, b"p|", b"s|"))]
        names = [("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b"), ("c1", ""), ("c2", "")]
        followed = draw.sample(["a1:7744", "a2:7744", "b1:7744", "b2:7744"], 2) if follow else ()
        self._servers = [
            Server(
                self._network,
                self._registry,
                Random(draw.random()),
                name,
                group,
                mix.feed_window,
                () if group else followed,
            )
            for name, group in names
        ]
        self._computes = [server for server in self._servers if not server.group]
        self._operator = Operator(
            SimulatedCoordinator(self._registry, Random(draw.random()), "operator"),
            Random(draw.random()),
            self._network,
            {server.address: server for server in self._servers},
        )
        self.truth = Truth(self._databases, self._operator.removed, self._registry)
        self._sessions = [Session() for _ in range(3)]
        self._sent = SentWrites(self.truth)
        self._calls: list[asyncio.Task[None]] = []
        self._restarts: list[asyncio.Task[None]] = []
        self._moving: asyncio.Task[None] | None = None
        self._cleaning: asyncio.Task[None] | None = None
        self._value = 0
        self.steps = 0
        self.refused: Counter[str] = Counter()

    async def carry_out(self, steps: int) -> None:
        """Take steps, come to rest, and compare all computes with what clients wrote."""
        async with self.running():
            for _ in range(steps):
                (name,) = self._random.choices(list(self._weights), list(self._weights.values()))
                self.steps += 1
                getattr(self, "_" + name)()
                await asyncio.sleep(self._random.choice(self._pauses_s) * self._random.uniform(0.5, 1.5))
                self._raise_failures()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Have all servers start for steps, and come to rest and be compared after them."""
        with self._operator.commands():
            await asyncio.gather(*(server.start() for server in self._servers))
            yield
            await self._rest()
        for server in self._servers:
            await server.stop()

    @property
    def replacements(self) -> int:
        """How many joins have taken the places of others."""
        known = [one.map.replacement for one in self._registry.states]
        return len({one.version for one in known if one is not None and one.is_in_place})

    @property
    def moves(self) -> int:
        """How many ranges have moved."""
        return self._operator.moves

    @property
    def cleanings(self) -> int:
        """How often rows that moves had left were removed."""
        return self._operator.cleanings

    # Clients.

    def _key(self) -> bytes:
        name = self._random.choice(NAMES)
        return self._random.choice(KEYS) % name

    def _put(self) -> None:
        self._value += 1
        self._write(RowChange(self._key(), b"%d" % self._value))

    def _remove(self) -> None:
        self._write(RowChange(self._key(), None))

    def _decide(self) -> None:
        self._value += 1
        key = self._key()
        value = None if self._random.random() < 0.2 else b"%d" % self._value
        command = draw_decided(self._random, key, self.truth.versions.get(key, [None])[-1], value)
        if isinstance(command, Add):
            # No sum is one that was there before: what a move copies is no version.
            command = replace(command, delta=b"%d" % self._random.getrandbits(50))
        command = replace(command, request_id=self._random.randbytes(16))
        self._sent.begin(command)
        self._write(command)

    def _again(self) -> None:
        """Have a client send a write again: it has not heard of it, or does not believe what it has heard."""
        if (command := self._sent.drawn(self._random)) is not None:
            self._write(command)

    def _write(self, change: RowChange | Decided) -> None:
        session = self._random.choice(self._sessions)
        if up := [server for server in self._servers if server.is_up]:
            # The map of this client is anything: it tries one server after another.
            self._begin(self._random.choice(up), self._written(session, change, self._random.sample(up, len(up))))

    async def _written(self, session: Session, change: RowChange | Decided, servers: list[Server]) -> None:
        since = self._sent.since(change) if isinstance(change, Decided) else self.truth.count_of(change.key)
        for server in servers:
            if not server.is_up:
                continue
            try:
                reply: pb.RemoveReply | pb.PutReply | pb.WriteIfReply | pb.AddReply
                if isinstance(change, Add):
                    reply = await server.service.Add(change.request, NO_CONTEXT)
                elif isinstance(change, WriteIf):
                    reply = await server.service.WriteIf(change.request, NO_CONTEXT)
                elif change.value is None:
                    reply = await server.service.Remove(pb.RemoveRequest(key=change.key), NO_CONTEXT)
                else:
                    put = pb.PutRequest(key=change.key, value=change.value)
                    reply = await server.service.Put(put, NO_CONTEXT)
            except NotHomeError:
                continue
            except _REFUSALS as error:
                self.refused[type(error).__name__] += 1
                # Whether it was written is not known.
                return
            if isinstance(reply, pb.WriteIfReply | pb.AddReply):
                assert isinstance(change, Decided)
                written = {change.key: self._sent.heard(change, outcome_of(reply))}
            else:
                assert isinstance(change, RowChange)
                written = {change.key: self.truth.version_of(change, since)}
            session.take_over(Session(Token.parse(reply.header.token), written))
            return
        self.refused[NotHomeError.__name__] += 1

    def _read(self) -> None:
        up = [server for server in self._computes if server.is_up]
        session = self._random.choice([None, *self._sessions])
        if up:
            server = self._random.choice(up)
            self._begin(server, self._answered(server, session, self._random.choice(self._ranges)))

    async def _answered(self, server: Server, session: Session | None, bounds: Bounds) -> None:
        wait_ms = self._random.choice([None, 0, 200, 5000])
        before = NO_TOKEN if session is None else session.token
        fresh = pb.Freshness(after=bytes(before), wait_ms=wait_ms) if before.positions else None
        request = pb.ScanRequest(first=bounds[0], last=bounds[1], freshness=fresh)
        known = None if session is None else Session(before, dict(session.seen))
        async with aclosing(server.service.Scan(request, NO_CONTEXT)) as replies:  # type: ignore[type-var]
            try:
                reply = await anext(replies)
            except _REFUSALS as error:
                self.refused[type(error).__name__] += 1
                return
        found = list(zip(reply.keys, reply.values, strict=True))
        self.truth.judge(server, known, bounds, found, Token.parse(reply.header.token), before)
        if session is not None and known is not None:
            # Other calls of the session may have ended meanwhile.
            session.take_over(known)

    def _hand_on(self) -> None:
        """Have one session take the token of another."""
        taker, giver = self._random.sample(self._sessions, 2)
        taker.take_over(giver)

    # What happens at servers, and to the map.

    def _evict(self) -> None:
        self._random.choice(self._servers).engine.evict(self._random.choice([1, 3, 100]))

    def _move(self) -> None:
        if self._moving is None or self._moving.done():
            cuts = self._random.choice(CUTS)
            first, last = sorted(self._random.sample(cuts, 2))
            group = self._random.choice(_GROUPS)
            self._moving = self._task(self._operator.move(first, last, group), "operator")

    def _clean(self) -> None:
        if self._cleaning is None or self._cleaning.done():
            first, last = sorted(self._random.sample(self._random.choice(CUTS), 2))
            self._cleaning = self._task(self._operator.clean(first, last), "operator")

    def _place(self) -> None:
        self._task(self._operator.place(), "operator")

    def _replace(self) -> None:
        if up := [server for server in self._computes if server.is_up]:
            server = self._random.choice(up)
            self._begin(server, self._replaced(server, *draw_replacing(self._random), self._random.random()))

    async def _replaced(self, server: Server, name: str, text: str, kind: float) -> None:
        """Begin to have a join take the place of another, of what it was before; or cancel that."""
        try:
            if kind < 0.2:
                await server.service.EndReplacement(pb.EndReplacementRequest(name=name), NO_CONTEXT)
            else:
                request = pb.ReplaceJoinRequest(name=name, text=text, undo=kind < 0.3)
                await server.service.ReplaceJoin(request, NO_CONTEXT)
        except _UNREPLACED as error:
            self.refused[type(error).__name__] += 1

    # Faults.

    def _fault(self) -> None:
        draw, network = self._random, self._network
        server = draw.choice(self._servers)
        there = draw.choice(server.upstreams or (self._servers[0].address,))
        match draw.choice(FAULTS):
            case "cut":
                network.cut(server.address, there)
            case "heal":
                network.heal()
                self._registry.cut_off.clear()
            case "reset":
                network.reset(server.address, there)
            case "half open":
                network.half_open(*draw.sample([server.address, there], 2))
            case "stall":
                self._databases[draw.choice(_GROUPS)].stall(draw.random() * 3)
            case "lose feed":
                group = draw.choice(_GROUPS)
                self._databases[group].lose_feed()
                for one in self._servers:
                    network.reset(one.address, f"database {group}")
            case "restart" if server.is_up:
                self._restarts.append(self._task(server.restart(draw.choice([0.1, 0.5, 3.0])), "restart"))
            case "cut off map":
                self._registry.cut_off.add(server.name)

    # Rest.

    async def _rest(self) -> None:
        self._network.heal()
        self._registry.cut_off.clear()
        async with asyncio.timeout(_REST_S):
            await asyncio.gather(*self._restarts, *self._calls, return_exceptions=True)
            await asyncio.gather(*(one for one in (self._moving, self._cleaning) if one is not None))
            while moves_within(self._registry.state.map, b"", None):
                await self._operator.undo(b"", b"\xff")
                await asyncio.sleep(0.1)
            while any(  # noqa: ASYNC110 - virtual time costs nothing
                server.member.entry.map_version < self._registry.state.map.version for server in self._servers
            ) or under_way(self._registry.state.map):
                await asyncio.sleep(0.1)
            # Feeds that broke are back by then, and have told everything.
            await asyncio.sleep(20.0)
            self._raise_failures()
            self._sent.judge()
            for server in self._computes:
                server.engine._check()
                server.databases._check()
                for bounds in self._ranges:
                    request = pb.ScanRequest(
                        first=bounds[0], last=bounds[1], freshness=pb.Freshness(latest=True, wait_ms=30_000)
                    )
                    reply = await anext(server.service.Scan(request, NO_CONTEXT))
                    self.truth.judge_rest(server, bounds, list(zip(reply.keys, reply.values, strict=True)))

    # Pieces.

    def _begin(self, server: Server, call: Any) -> None:
        self._calls.append(server.begin(call))

    def _task(self, work: Any, name: str) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work, name=name)
        self._calls.append(task)
        return task

    def _raise_failures(self) -> None:
        """Raise what a call failed with."""
        self._calls = still_running(self._calls)


def simulate_cluster(seed: int, *, steps: int = 200, follow: bool = False) -> Report:
    """Carry out one schedule of a cluster.

    Args:
        follow: See `ClusterSchedule`.
    """
    return in_loop(seed, steps, lambda loop: _simulated(loop, seed, steps, follow=follow))


async def _simulated(loop: SimulatedLoop, seed: int, steps: int, *, follow: bool) -> Report:
    schedule = ClusterSchedule(Random(seed), follow=follow)
    wrong = await fault_of(loop, schedule.carry_out(steps))
    return Report(
        seed=seed,
        steps=schedule.steps,
        checked=schedule.truth.checked,
        refused=dict(schedule.refused),
        virtual_s=loop.time(),
        trace=f"{loop.time():.6f} {schedule.moves} moves {schedule.cleanings} cleanings {dict(schedule.refused)}",
        wrong=wrong,
    )
