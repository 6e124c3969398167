"""One simulation: a loop, a network, a database, servers and a schedule, all of one seed."""

from __future__ import annotations

import logging
import random
import traceback
from dataclasses import dataclass, field
from random import Random

from tests.simulation.database import DATABASE, Database
from tests.simulation.links import Network
from tests.simulation.loop import SimulatedLoop, StuckError, clocks
from tests.simulation.machine import Machine
from tests.simulation.mix import Mix, draw_mix
from tests.simulation.oracle import Oracle
from tests.simulation.peers import Compute, Home
from tests.simulation.schedule import Schedule


@dataclass(frozen=True)
class Report:
    """What came of a simulation."""

    seed: int
    #: Steps that were taken.
    steps: int
    virtual_s: float
    #: Answers that were compared; those over snapshot joins that could not be; and refused calls by their errors.
    checked: int = 0
    unchecked: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    #: The counts of steps, commits and loads: two runs of a seed have the same.
    trace: str = ""
    #: What was wrong; empty if nothing was.
    wrong: str = ""


def simulate(seed: int, *, steps: int = 200, machines: int = 2, computes: int = 0) -> Report:
    """Carry out one schedule.

    Args:
        machines: Servers beside the database.
        computes: Servers whose database are those servers, the homes.
    """
    loop, drawn = SimulatedLoop(seed), Random(seed)
    # Pauses before new attempts are drawn from the process's own random numbers.
    state, level = random.getstate(), logging.root.manager.disable
    random.seed(seed)
    logging.disable(logging.CRITICAL)
    try:
        with clocks(loop, seed):
            return loop.run(_simulated(loop, seed, drawn, steps, machines, computes))
    except StuckError as error:
        return Report(seed=seed, steps=steps, virtual_s=loop.time(), wrong=f"StuckError: {error}")
    finally:
        random.setstate(state)
        logging.disable(level)
        loop.close()


def _servers(network: Network, mix: Mix, count: int, computes: int, drawn: Random) -> list[Machine]:
    names = [f"server {number}" for number in range(count)]
    if not computes:
        return [Machine(network, name) for name in names]
    others = [f"compute {number}" for number in range(computes)]
    # A short ring is overrun, and what is behind reads again.
    keep_bytes = drawn.choice([3000, 30_000, 1 << 26])
    homes = [Home(network, name, others, keep_bytes, mix.feed_window) for name in names]
    return [*homes, *(Compute(network, name, drawn.sample(names, len(names))) for name in others)]


async def _simulated(loop: SimulatedLoop, seed: int, drawn: Random, steps: int, count: int, computes: int) -> Report:
    mix = draw_mix(Random(drawn.random()))
    network = Network(Random(drawn.random()), slowest_s=mix.slowest_s)
    database = Database(network, Random(drawn.random()), load_s=mix.load_s, trickle_s=mix.trickle_s)
    servers = _servers(network, mix, count, computes, drawn)
    oracle = Oracle(database)
    schedule = Schedule(loop, Random(drawn.random()), mix, network, database, servers, oracle)
    wrong = ""
    try:
        await schedule.carry_out(steps)
        for server in servers:
            await server.stop()
    except AssertionError as error:
        wrong = f"{type(error).__name__}: {error}"
    except Exception:
        wrong = traceback.format_exc(limit=-4)
    if loop.errors and not wrong:
        wrong = f"not handled: {loop.errors[0]}"
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
