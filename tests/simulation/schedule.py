"""A schedule: steps that a seed draws, one after another, while what earlier steps began goes on.

step     a commit of an application, a call of a client, an eviction, a join, a watch, or a fault
pause    mostly none or some milliseconds, now and then a second
rest     all links work, the feeds catch up; then every server must answer as the database does
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final

from pequod_proto import pequod_pb2 as pb
from pequod_server.backing import RowChange

from pequod.engine import JoinError, LimitExceededError, NotWatchableError, prefix_end
from pequod.engine.testing import select
from pequod.language.conditions import IF_ABSENT, IF_PRESENT
from tests.engine.draw import VALUES, draw_join, draw_key, draw_range, draw_timeline
from tests.engine.earlier import draw_rows, live_before
from tests.simulation.batches import Command, Put
from tests.simulation.clients import Clients, Reader, Watched
from tests.simulation.database import DATABASE, Database
from tests.simulation.decided import Decided, draw_decided
from tests.simulation.framing import begun, still_running
from tests.simulation.levels import draw_level
from tests.simulation.links import Network
from tests.simulation.loop import SimulatedLoop
from tests.simulation.machine import NO_CONTEXT, Machine
from tests.simulation.mix import FAULTS, Mix
from tests.simulation.oracle import Oracle
from tests.simulation.reads import Chunk, Count, Get
from tests.simulation.sessions import Session
from tests.simulation.store import TABLES

#: Joins of one server; more make the naive model slow and the engine no more interesting.
_JOINS_MAX: Final = 4
#: How long the rest may take: a write waits 30 s for its feed.
_REST_S: Final = 120.0


@dataclass
class Told:
    """What a schedule did."""

    steps: int = 0
    by_step: dict[str, int] = field(default_factory=dict)


class Schedule:
    """The steps of one simulation."""

    def __init__(
        self,
        loop: SimulatedLoop,
        random: Random,
        mix: Mix,
        network: Network,
        database: Database,
        machines: list[Machine],
        oracle: Oracle,
    ) -> None:
        self._loop = loop
        self._random = random
        self._mix = mix
        self._network = network
        self._database = database
        self._machines = machines
        self._oracle = oracle
        self._clients = Clients(database, oracle)
        self._sessions = [Session(f"session {number}") for number in range(3)]
        self._watched: list[Watched] = []
        self._watches: list[asyncio.Task[None]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._restarts: list[asyncio.Task[None]] = []
        self._timeline = draw_timeline(random)
        #: Keys that are drawn again and again.
        self._hot: list[bytes] = []
        self._is_resting = False
        self.told = Told()
        for machine in machines:
            machine.at_event = partial(self._at_event, machine)

    @property
    def refused(self) -> Counter[str]:
        """The calls, and commands of batches, that were refused, by their errors."""
        return self._clients.refused

    async def carry_out(self, steps: int) -> None:
        """Take steps, come to rest, and compare all servers with the database."""
        await asyncio.gather(*(machine.start() for machine in self._machines))
        self._live_before()
        names, weights = list(self._mix.weights), list(self._mix.weights.values())
        for _ in range(steps):
            (name,) = self._random.choices(names, weights)
            self.told.steps += 1
            self.told.by_step[name] = self.told.by_step.get(name, 0) + 1
            if up := [machine for machine in self._machines if machine.is_up]:
                getattr(self, "_" + name)(self._random.choice(up))
            await asyncio.sleep(self._random.choice(self._mix.pauses_s) * self._random.uniform(0.5, 1.5))
            self._raise_failures()
        await self._rest()

    def _live_before(self) -> None:
        """Have joins come and mostly go at each server, and some begin with the timeline that all have at rest."""
        for machine in self._machines:
            live_before(self._random, machine.engine, TABLES)
            if self._random.random() < 0.5:
                machine.engine.add_joins([self._timeline])
        self._commit_timelines()

    def _commit_timelines(self) -> None:
        """Commit rows that the timeline selects."""
        for step in draw_rows(self._random, [self._timeline], self._random.choice([12, 24])):
            (rows,) = step.arguments
            assert isinstance(rows, tuple)
            self._database.commit([RowChange(*row) for row in rows])

    # The steps of applications and clients.

    def _commit(self, _machine: Machine) -> None:
        count = self._random.choice([1, 1, 2, 4] if self._random.random() < 0.9 else [10])
        changes = {self._key(): self._random.choice([*VALUES, None]) for _ in range(count)}
        self._database.commit([RowChange(*row) for row in changes.items()])

    def _burst(self, machine: Machine) -> None:
        """Change one key again and again, with reads and an eviction between."""
        key = self._key()
        for _ in range(self._random.randint(2, 5)):
            self._database.commit([RowChange(key, self._random.choice([*VALUES, None]))])
            if self._random.random() < 0.3:
                self._evict(machine)
            if self._random.random() < 0.5:
                self._begin(machine, self._clients.scan(machine, self._reader(), key, key + b"\0", reverse=False))

    def _get(self, machine: Machine) -> None:
        self._begin(machine, self._clients.get(machine, self._reader(), self._bounds(machine)[0]))

    def _multi_get(self, machine: Machine) -> None:
        keys = tuple(self._bounds(machine)[0] or b"s" for _ in range(self._random.randint(1, 4)))
        self._begin(machine, self._clients.multi_get(machine, self._reader(), keys))

    def _count(self, machine: Machine) -> None:
        self._begin(machine, self._clients.count(machine, self._reader(), *self._bounds(machine)))

    def _scan(self, machine: Machine) -> None:
        self._begin(
            machine,
            self._clients.scan(machine, self._reader(), *self._bounds(machine), reverse=self._random.random() < 0.3),
        )

    def _put(self, machine: Machine) -> None:
        if self._mix.deadline_share and self._random.random() < self._mix.deadline_share:
            within_s = self._random.choice([0.0, 0.001, 0.02, 0.2]) * self._random.uniform(0.5, 1.5)
            condition = self._random.choice([None, None, IF_ABSENT, IF_PRESENT])
            call = self._clients.put_within(machine, self._session(), self._key(), condition, within_s)
            self._begin(machine, call)
            return
        count = self._random.choice([1, 1, 3])
        self._begin(
            machine,
            self._clients.put(
                machine, self._session(), {self._key(): self._random.choice(VALUES) for _ in range(count)}
            ),
        )

    def _remove(self, machine: Machine) -> None:
        self._begin(machine, self._clients.remove(machine, self._session(), self._key()))

    def _decide(self, machine: Machine) -> None:
        self._begin(machine, self._clients.decide(machine, self._session(), self._decided()))

    def _decided(self) -> Decided:
        key = self._key()
        value = self._random.choice([*VALUES, None])
        return draw_decided(self._random, key, self._database.rows.get(key), value)

    def _remove_range(self, machine: Machine) -> None:
        key = self._key()
        self._begin(machine, self._clients.remove_range(machine, self._session(), key, key + b"}"))

    def _execute(self, machine: Machine) -> None:
        commands = [self._command(machine) for _ in range(self._random.choice([1, 2, 2, 5]))]
        fresh = {at: draw_level(self._random) for at in range(len(commands)) if self._random.random() < 0.1}
        self._begin(machine, self._clients.execute(machine, self._reader(), commands, fresh))

    def _command(self, machine: Machine) -> Command:
        first, last = self._bounds(machine)
        # No key is below the empty key, which the wire takes for no bound.
        last = last or None
        match self._random.choice(["get", "count", "scan", "scan", "down", "put", "decided"]):
            case "get":
                return Get(first)
            case "count":
                return Count(first, last)
            case "put":
                return Put(self._key(), self._random.choice([*VALUES, None]))
            case "decided":
                return self._decided()
            case kind:
                return Chunk(first, last, reverse=kind == "down", count=self._random.choice([None, 1, 3]))

    def _hand_on(self, _machine: Machine) -> None:
        """Have one session take the token of another, or a new client one of them."""
        taker, giver = self._random.sample(range(len(self._sessions)), 2)
        if self._random.random() < 0.5:
            self._sessions[taker] = Session(f"session {self.told.steps}")
        self._sessions[taker].take_over(self._sessions[giver])

    # What happens at a server.

    def _evict(self, machine: Machine) -> None:
        machine.engine.evict(self._random.choice([1, 1, 3, 100]))

    def _invalidate(self, machine: Machine) -> None:
        machine.engine.invalidate(*self._bounds(machine))

    def _add_join(self, machine: Machine) -> None:
        if len(machine.engine.joins()) < _JOINS_MAX:
            spec = draw_join(self._random, snapshots=self._mix.has_snapshots)
            with suppress(JoinError):
                machine.engine.add_joins([spec])
                machine.join_changes += 1

    def _drop_join(self, machine: Machine) -> None:
        if joins := machine.engine.joins():
            machine.engine.drop_join(self._random.choice(joins).name)
            machine.join_changes += 1

    def _watch(self, machine: Machine) -> None:
        self._watches.append(
            self._begin(machine, self._clients.watch(machine, self._reader(), *self._bounds(machine), self._watched))
        )

    def _unwatch(self, _machine: Machine) -> None:
        if self._watches:
            self._watches.pop(0).cancel()

    # Faults.

    def _fault(self, machine: Machine) -> None:
        random, network, database = self._random, self._network, self._database
        # One that has no choice draws nothing: so schedules stay what they were.
        there = machine.upstreams[0] if len(machine.upstreams) == 1 else random.choice(machine.upstreams)
        match random.choice(FAULTS):
            case "cut":
                network.cut(machine.name, there)
            case "heal":
                network.heal()
            case "reset":
                network.reset(machine.name, there)
            case "half open":
                network.half_open(*random.sample([machine.name, there], 2))
            case "stall":
                database.stall(random.random() * 3)
            case "lose feed":
                database.lose_feed()
                network.reset(machine.name, DATABASE)
            case "fail over":
                database.fail_over(random.choice([0, 0, 1, 3]), random.random())
                for one in self._machines:
                    network.reset(one.name, DATABASE)
            case "fail over, and cut off":
                database.fail_over(random.choice([0, 1, 3]), random.random(), [machine.name], random.random() * 5)
                for one in self._machines:
                    if one is not machine:
                        network.reset(one.name, DATABASE)
            case "restart":
                self._restart(machine)
            case "clock":
                self._loop.step_clock(random.choice([-3600.0, -1.0, 1.0, 3600.0]))

    def _restart(self, machine: Machine) -> None:
        """Kill a server; its clients hear no more of their calls."""
        for task in self._tasks:
            if task.get_name() == f"client of {machine.name}":
                task.cancel()
        machine.is_up = False
        self._restarts.append(asyncio.create_task(machine.restart(self._random.random()), name="restart"))

    # Rest.

    async def _rest(self) -> None:
        self._is_resting = True
        self._network.heal()
        calls = [task for task in self._tasks if task not in self._watches]
        async with asyncio.timeout(_REST_S):
            await asyncio.gather(*self._restarts)
            await asyncio.gather(*calls, return_exceptions=True)
            self._raise_failures()
            self._clients.judge_unknown()
            self._commit_timelines()
            await self._caught_up()
        self._raise_failures()
        for machine in self._machines:
            with suppress(JoinError):
                machine.engine.add_joins([self._timeline])
            machine.engine._check()
            machine.loader._intake.landing._check()
            # One by one first: what a scan of all has computed would answer these.
            for first, last in self._oracle.stems_at_rest(machine):
                await self._judge_at_rest(machine, first, last)
            rows = await self._judge_at_rest(machine, b"", None)
            for watched in self._watched:
                if watched.machine is machine:
                    found = sorted(watched.rows.items())
                    expected = select(dict(rows), watched.first, watched.last)
                    assert found == expected, f"a watch at {machine.name} leads to {found}, and there is {expected}"

    async def _judge_at_rest(self, machine: Machine, first: bytes, last: bytes | None) -> list[tuple[bytes, bytes]]:
        request = pb.ScanRequest(first=first, last=last)
        reply = [reply async for reply in machine.call("Scan")(request, NO_CONTEXT)]
        rows = [row for one in reply for row in zip(one.keys, one.values, strict=True)]
        self._oracle.judge_at_rest(machine, rows, Chunk(first, last, reverse=False, count=None))
        return rows

    async def _caught_up(self) -> None:
        """Wait until each server follows the present timeline and has all of it."""
        for machine in self._machines:
            while not (  # noqa: ASYNC110 - virtual time costs nothing
                machine.is_up and machine.moment() == self._database.moment
            ):
                await asyncio.sleep(0.1)
        # Watches settle in a turn of their own, and load what they lack.
        await asyncio.sleep(10.0)

    # Pieces.

    def _session(self) -> Session:
        """Draw a session, and how long its next read waits."""
        session = self._random.choice(self._sessions)
        session.wait_s = self._random.choice([None, None, 0.0, 0.2, 5.0])
        return session

    def _reader(self) -> Reader:
        return self._session() if self._random.random() < self._mix.session_share else draw_level(self._random)

    def _at_event(self, machine: Machine) -> None:
        """Read when a server takes in an event: while it does so, or before the next one."""
        if not self._is_resting and self._random.random() < self._mix.read_at_event:
            self._scan(machine)

    def _key(self) -> bytes:
        """Draw a key of the database."""
        if self._hot and self._random.random() < self._mix.hot_share:
            return self._random.choice(self._hot)
        specs = [join.spec for join in self._random.choice(self._machines).engine.joins()]
        while True:
            key = draw_key(self._random, specs)
            if key.partition(b"|")[0] in TABLES and b"|" in key:
                break
        if len(self._hot) == self._mix.hot_count:
            self._hot.pop(self._random.randrange(len(self._hot)))
        self._hot.append(key)
        return key

    def _bounds(self, machine: Machine) -> tuple[bytes, bytes | None]:
        if self._hot and self._random.random() < self._mix.hot_share / 2:
            key = self._random.choice(self._hot)
            stem = key[: key.rfind(b"|") + 1]
            return self._random.choice([(key, key + b"\0"), (stem, prefix_end(stem)), (key[:2], prefix_end(key[:2]))])
        return draw_range(self._random, [join.spec for join in machine.engine.joins()])

    def _begin(self, machine: Machine, call: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = begun(self._called(call), f"client of {machine.name}")
        # That closes the outer one alone.
        task.add_done_callback(lambda _: call.close())
        self._tasks.append(task)
        return task

    async def _called(self, call: Coroutine[Any, Any, None]) -> None:
        with suppress(NotWatchableError, LimitExceededError):
            await call

    def _raise_failures(self) -> None:
        """Raise what a call failed with."""
        self._tasks = still_running(self._tasks)
