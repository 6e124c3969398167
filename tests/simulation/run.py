"""One simulation: a loop, a network, a database, servers and a schedule, all of one seed."""

from __future__ import annotations

from random import Random

from tests.simulation.database import DATABASE, Database
from tests.simulation.framing import Report, fault_of, in_loop
from tests.simulation.links import Network
from tests.simulation.loop import SimulatedLoop
from tests.simulation.machine import Machine
from tests.simulation.mix import Mix, draw_mix
from tests.simulation.oracle import Oracle
from tests.simulation.peers import Compute, Home, RelayMachine
from tests.simulation.schedule import Schedule


def simulate(seed: int, *, steps: int = 200, machines: int = 2, computes: int = 0, relays: int = 0) -> Report:
    """Carry out one schedule.

    Args:
        machines: Servers beside the database.
        computes: Servers whose database are those servers, the homes.
        relays: Servers between them: the computes are behind these, and now and then behind a home.
    """
    return in_loop(seed, steps, lambda loop: _simulated(loop, seed, Random(seed), steps, machines, (computes, relays)))


def _servers(network: Network, mix: Mix, count: int, behind: tuple[int, int], drawn: Random) -> list[Machine]:
    computes, relays = behind
    names = [f"server {number}" for number in range(count)]
    if not computes:
        return [Machine(network, name) for name in names]
    others = [f"compute {number}" for number in range(computes)]
    # A short ring is overrun, and what is behind reads again.
    keep_bytes = drawn.choice([3000, 30_000, 1 << 26])
    between = [f"relay {number}" for number in range(relays)]
    homes = [Home(network, name, [*between, *others], keep_bytes, mix.feed_window) for name in names]
    if not relays:
        return [*homes, *(Compute(network, name, drawn.sample(names, len(names))) for name in others)]

    def above(name: str) -> list[str]:
        """Draw what a server has its base data from: relays may come to be behind each other, or try to."""
        first = [one for one in between if one != name]
        first = drawn.sample(first, drawn.randint(0 if name in between else 1, len(first)))
        some = [*first, *drawn.sample(names, drawn.randint(0, len(names)))]
        return some if set(some) & {*names} or name not in between else [*some, drawn.choice(names)]

    return [
        *homes,
        *(RelayMachine(network, one, above(one), [*between, *others], keep_bytes, mix.feed_window) for one in between),
        *(Compute(network, name, above(name)) for name in others),
    ]


async def _simulated(
    loop: SimulatedLoop, seed: int, drawn: Random, steps: int, count: int, behind: tuple[int, int]
) -> Report:
    mix = draw_mix(Random(drawn.random()))
    network = Network(Random(drawn.random()), slowest_s=mix.slowest_s)
    database = Database(network, Random(drawn.random()), load_s=mix.load_s, trickle_s=mix.trickle_s)
    servers = _servers(network, mix, count, behind, drawn)
    oracle = Oracle(database)
    schedule = Schedule(loop, Random(drawn.random()), mix, network, database, servers, oracle)

    async def carry_out() -> None:
        await schedule.carry_out(steps)
        for server in servers:
            await server.stop()

    wrong = await fault_of(loop, carry_out())
    counters = [server.loader.counters for server in servers]
    return Report(
        seed=seed,
        steps=schedule.told.steps,
        checked=oracle.checked,
        unchecked=oracle.unchecked,
        refused=dict(schedule.refused),
        virtual_s=loop.time(),
        trace=f"{loop.time():.6f} {DATABASE} {database.timeline}/{database.position} {schedule.told} {counters}",
        wrong=wrong,
    )
