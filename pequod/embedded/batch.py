"""Batches of commands for an engine in the process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future

from pequod.calls import Result, Results
from pequod.commands.kinds import WRITES
from pequod.engine import Engine
from pequod.engine.answer import Answer
from pequod.engine.batch import BatchRun
from pequod.errors import PequodError
from pequod.freshness import Freshness
from pequod.interface import Commands

#: Gives commands the engine for themselves, and adds the state that they have shown.
Run = Callable[[Callable[[Engine], list[Result]]], Results]

#: Raises if an answer cannot be as fresh as a read asks for.
Meet = Callable[[Freshness | None], None]


class _Batch(Commands):
    """Commands that run without other calls in between.

    Args:
        meet: Raises if an answer cannot be as fresh as a read asks for.
    """

    __slots__ = ("_meet", "_run_alone")

    def __init__(self, run: Run, meet: Meet, freshness: Freshness | None = None) -> None:
        super().__init__(freshness)
        self._run_alone = run
        self._meet = meet

    def _run(self) -> Results:
        """Run the commands and become empty; the result of a failed one is its error."""
        kinds, levels, results = bytes(self.kinds), self.overrides, list[Result]()
        run = BatchRun(kinds, self.arguments, self.numbers)
        super().__init__(self.freshness)

        def refusal(position: int) -> PequodError | None:
            if kinds[position] not in WRITES:
                try:
                    self._meet(levels.get(position, self.freshness))
                except PequodError as error:
                    return error
            return None

        def take(outcome: Answer | PequodError) -> bool:
            results.append(outcome)
            run.advance()
            return True

        def run_all(engine: Engine) -> list[Result]:
            waits = run.run(engine, time.monotonic, take)
            assert waits is None, "no database is behind a store in the process"
            return results

        run.refusal = refusal
        return self._run_alone(run_all)


class EmbeddedBatch(_Batch):
    """Commands that run without other calls in between; see `SyncBatch`."""

    __slots__ = ()

    def send(self) -> Results:
        """Run the batch and return a result for each command, an exception object for a failed one."""
        return self._run()

    def send_nowait(self) -> Future[Results]:
        """Run the batch and return a future that is done."""
        future: Future[Results] = Future()
        future.set_result(self._run())
        return future


class AsyncEmbeddedBatch(_Batch):
    """Commands that run without other calls in between; see `AsyncBatch`."""

    __slots__ = ()

    def send(self) -> asyncio.Future[Results]:
        """Run the batch and return a future that is done."""
        future: asyncio.Future[Results] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(self._run())
        except PequodError as error:
            future.set_exception(error)
        return future
