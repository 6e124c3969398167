"""What all simulations share: a loop of a seed around them, and their reports."""

from __future__ import annotations

import asyncio
import logging
import random
import traceback
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.loop import SimulatedLoop, StuckError, clocks


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


def in_loop(seed: int, steps: int, simulated: Callable[[SimulatedLoop], Coroutine[Any, Any, Report]]) -> Report:
    """Carry out a simulation in a loop of its own, with the clocks and the random numbers of the seed."""
    loop = SimulatedLoop(seed)
    # Pauses before new attempts are drawn from the process's own random numbers.
    state, level = random.getstate(), logging.root.manager.disable
    random.seed(seed)
    logging.disable(logging.CRITICAL)
    try:
        with clocks(loop, seed):
            return loop.run(simulated(loop))
    except StuckError as error:
        return Report(seed=seed, steps=steps, virtual_s=loop.time(), wrong=f"StuckError: {error}")
    finally:
        random.setstate(state)
        logging.disable(level)
        loop.close()


async def fault_of(loop: SimulatedLoop, carrying_out: Coroutine[Any, Any, None]) -> str:
    """Carry a schedule out, and return what was wrong; empty if nothing was."""
    try:
        await carrying_out
    except AssertionError as error:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return traceback.format_exc(limit=-4)
    return f"not handled: {loop.errors[0]}" if loop.errors else ""


def shows_fault(reports: Iterable[Report]) -> bool:
    """Return whether the first report that is wrong says so of an answer, a session or a state."""
    wrong = next((report for report in reports if report.wrong), None)
    return wrong is not None and "WrongError" in wrong.wrong


def begun(call: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Begin a call of a client."""
    task = asyncio.create_task(call, name=name)
    # A task that is cancelled before its first turn leaves its coroutine open.
    task.add_done_callback(lambda _: call.close())
    return task


def still_running(tasks: Iterable[asyncio.Task[None]]) -> list[asyncio.Task[None]]:
    """Return the tasks that are not done; raise what one of the others has failed with."""
    left = []
    for task in tasks:
        if not task.done():
            left.append(task)
        elif not task.cancelled() and (error := task.exception()) is not None:
            raise error
    return left
