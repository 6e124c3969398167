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
        away: What a replica raises that does not answer.
    """

    def __init__(self, replicas: Sequence[R], *away: type[Exception]) -> None:
        self.replicas = tuple(replicas)
        self._away = away
        #: Work of replicas that were not waited for.
        self._late: set[asyncio.Future[Any]] = set()

    async def ask(self, work: Callable[[R], Awaitable[T]], quorum: int, down: set[int]) -> list[T]:
        """Have all replicas work that are not down; return what the first of them answer.

        Raises:
            QuorumError: Too few answer.
        """
        up = [replica for number, replica in enumerate(self.replicas) if number not in down]
        working = {asyncio.ensure_future(work(replica)) for replica in up}
        self._late |= working
        for future in working:
            future.add_done_callback(self._end)
        answers: list[T] = []
        while working and len(answers) < quorum:
            done, working = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
            for future in done:
                error = future.exception()
                if error is None:
                    answers.append(future.result())
                elif not isinstance(error, self._away):
                    raise error
        if len(answers) < quorum:
            raise QuorumError(quorum, len(answers))
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
