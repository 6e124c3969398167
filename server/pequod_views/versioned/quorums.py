"""Requests to replicas that know nothing of each other: nobody waits for the slowest of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

from pequod_views.versioned.records import QuorumError

R = TypeVar("R")
T = TypeVar("T")


class Quorums(Generic[R]):
    """Replicas, each a connection of any kind.

    Args:
        names: Those of the replicas, for messages.
        away: What a replica raises that does not answer.
    """

    def __init__(self, replicas: Sequence[R], names: Sequence[str], *away: type[Exception]) -> None:
        self.replicas = tuple(replicas)
        self._names = tuple(names)
        self._away = away
        #: Work of replicas that were not waited for.
        self._late: set[asyncio.Future[Any]] = set()

    async def ask(self, work: Callable[[R], Awaitable[T]], quorum: int, down: set[int]) -> list[T]:
        """Have all replicas work that are not down; return what the first of them answer.

        Raises:
            QuorumError: Too few answer.
        """
        return await self._ask(work, quorum, quorum, down)

    async def ask_all(self, work: Callable[[R], Awaitable[T]], least: int, down: set[int]) -> list[T]:
        """Have all replicas work that are not down; return what all of them answer that can.

        Raises:
            QuorumError: Fewer than `least` answer.
        """
        return await self._ask(work, len(self.replicas), least, down)

    async def _ask(self, work: Callable[[R], Awaitable[T]], wanted: int, least: int, down: set[int]) -> list[T]:
        names = {
            asyncio.ensure_future(work(replica)): name
            for number, (replica, name) in enumerate(zip(self.replicas, self._names, strict=True))
            if number not in down
        }
        working = set(names)
        self._late |= working
        for future in working:
            future.add_done_callback(self._end)
        answers: list[T] = []
        reasons: list[str] = []
        while working and len(answers) < wanted:
            done, working = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
            for future in done:
                error = future.exception()
                if error is None:
                    answers.append(future.result())
                elif isinstance(error, self._away):
                    reasons.append(f"{names[future]}: {error or type(error).__name__}")
                else:
                    raise error
        if len(answers) < least:
            raise QuorumError(least, len(answers), sorted(reasons))
        return answers

    def _end(self, work: asyncio.Future[Any]) -> None:
        self._late.discard(work)
        if not work.cancelled():
            # Looked at, so that asyncio does not tell of it; a replica that was not waited for may fail.
            work.exception()

    async def settle(self) -> None:
        """Wait for the replicas that were not waited for."""
        while self._late:
            await asyncio.wait(tuple(self._late))
