"""Registers: texts that a store compares and sets, for stores whose replicas know nothing of each other.

    replica     register -> promised, accepted, value
    a swap      prepare(ballot) at a majority          the newest accepted value is what the register has
                accept(ballot, value) at a majority    the new value, or the old one again if it is not what is expected

Two swaps at once: the one with the larger ballot wins, and the other one is tried again. A swap whose replicas do not
answer may be made later, by the process that uses the register next.

>>> Vote(True, "", None) > Vote(False, "", None)
True

Source:
    Rystsov: CASPaxos, replicated state machines without logs (2018).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

#: Ballots are compared as texts.
_BALLOT_DIGITS: Final = 16
_PAUSE_S: Final = 0.002
_PAUSE_S_MAX: Final = 0.2


class Vote(NamedTuple):
    """What a replica says of a ballot."""

    is_given: bool
    #: The ballot of its value; if the promise is not given the one that it was given to.
    ballot: str
    value: str | None


@dataclass(frozen=True, slots=True)
class Prepare:
    """Have replicas promise that they accept no smaller ballot; each answers with a `Vote`."""

    register: str
    ballot: str


@dataclass(frozen=True, slots=True)
class Accept:
    """Have replicas take a value, unless they promised a larger ballot; each answers with a `Vote`."""

    register: str
    ballot: str
    value: str | None


BallotRequest: TypeAlias = Prepare | Accept


class Ballots:
    """The ballots of one process.

    Args:
        process: A text that no other process has.
    """

    def __init__(self, process: str) -> None:
        self._process = process
        self._last = 0

    def next(self) -> str:
        """Return a ballot that is larger than all before it."""
        self._last += 1
        return f"{self._last:0{_BALLOT_DIGITS}} {self._process}"

    def pass_by(self, ballot: str) -> None:
        """Have the next ballot be larger than another one."""
        if ballot:
            self._last = max(self._last, int(ballot.split(" ", 1)[0]))


class SwapRefusedError(Exception):
    """Another process has a larger ballot; to be tried again after a pause of random length."""


def swap_register(
    register: str, old: str | None, new: str | None, ballots: Ballots
) -> Generator[BallotRequest, Any, str | None]:
    """Set a register to a value if it has another one, and return what it has; one try.

    Requires:
        Each request is answered by a majority of the replicas.

    Raises:
        SwapRefusedError: See there.
    """
    ballot = ballots.next()
    promises: list[Vote] = yield Prepare(register, ballot)
    _check_given(promises, ballots)
    _, _, now = max(promises, key=lambda promise: promise.ballot)
    value = new if now == old else now
    accepted: list[Vote] = yield Accept(register, ballot, value)
    _check_given(accepted, ballots)
    return value


def _check_given(promises: list[Vote], ballots: Ballots) -> None:
    for promise in promises:
        ballots.pass_by(promise.ballot)
    if not all(promise.is_given for promise in promises):
        raise SwapRefusedError


async def swap_at_replicas(
    ask: Callable[[BallotRequest], Awaitable[list[Vote]]],
    register: str,
    old: str | None,
    new: str | None,
    ballots: Ballots,
) -> str | None:
    """Set a register to a value if it has another one, and return what it has.

    Args:
        ask: Returns what a majority of the replicas answer, or raises.
    """
    pause_s = _PAUSE_S
    while True:
        steps = swap_register(register, old, new, ballots)
        try:
            promises = await ask(next(steps))
            promises = await ask(steps.send(promises))
            steps.send(promises)
        except StopIteration as stop:
            value: str | None = stop.value
            return value
        except SwapRefusedError:
            await asyncio.sleep(random.uniform(0, pause_s))  # noqa: S311
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)
