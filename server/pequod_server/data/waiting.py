"""Answers that wait until what they show is safe."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from pequod.errors import DiskFullError

#: Told that an answer may leave, or why it never will.
Told = Callable[[DiskFullError | None], None]


class Waiting:
    """Answers, by the positions that they show, which ascend."""

    __slots__ = ("_answers",)

    def __init__(self) -> None:
        self._answers: deque[tuple[int, Told]] = deque()

    def __bool__(self) -> bool:
        return bool(self._answers)

    def add(self, position: int, then: Told) -> None:
        """Have an answer be told once its position is released, or refused."""
        self._answers.append((position, then))

    async def until(self, loop: asyncio.AbstractEventLoop, wait: Callable[[Told], None]) -> None:
        """Have ``wait`` add an answer, and return once it may leave.

        Raises:
            DiskFullError: It never may.
        """
        future: asyncio.Future[None] = loop.create_future()
        wait(partial(_let_go, future))
        await future

    def release(self, position: int) -> None:
        """Let answers leave that show no more than a position."""
        answers = self._answers
        while answers and answers[0][0] <= position:
            answers.popleft()[1](None)

    def refuse_behind(self, position: int, error: Callable[[], DiskFullError]) -> None:
        """Refuse answers that show more than a position."""
        answers = self._answers
        while answers and answers[-1][0] > position:
            answers.pop()[1](error())


def _let_go(waiter: asyncio.Future[None], error: DiskFullError | None) -> None:
    # The call that waits may have been cancelled meanwhile.
    if waiter.done():
        return
    if error is None:
        waiter.set_result(None)
    else:
        waiter.set_exception(error)
