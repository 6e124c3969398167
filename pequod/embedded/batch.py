"""Commands for an engine in the process."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future

from pequod.calls import Data, Result, Results, to_bytes, to_limit, to_range
from pequod.engine import Engine
from pequod.errors import PequodError
from pequod.freshness import Freshness

Command = Callable[[Engine], Result]
#: Gives commands the engine for themselves, and adds the state that they have shown.
Run = Callable[[Callable[[Engine], list[Result]]], Results]

#: Raises if an answer cannot be as fresh as a read asks for.
Meet = Callable[[Freshness | None], None]


class EngineCommands(ABC):
    """Commands in the order in which they will run; one with wrong arguments raises and is not added."""

    __slots__ = ()

    @abstractmethod
    def _add(self, command: Command) -> None: ...

    @abstractmethod
    def _add_read(self, command: Command, freshness: Freshness | None) -> None: ...

    def get(self, key: Data, *, freshness: Freshness | None = None) -> None:
        """Get a value."""
        wanted = to_bytes(key)
        self._add_read(lambda engine: engine.get(wanted, now=time.monotonic()), freshness)

    def put(self, key: Data, value: Data) -> None:
        """Write a base key."""
        new_key, new_value = to_bytes(key), to_bytes(value)
        self._add(lambda engine: engine.put(new_key, new_value))

    def remove(self, key: Data) -> None:
        """Remove a base key."""
        doomed = to_bytes(key)
        self._add(lambda engine: engine.remove(doomed))

    def scan(
        self,
        first: Data = b"",
        last: Data | None = None,
        *,
        prefix: Data = b"",
        limit: int | None = None,
        reverse: bool = False,
        freshness: Freshness | None = None,
    ) -> None:
        """Read the rows of ``[first, last)`` that start with ``prefix``; without ``last`` to the end."""
        start, stop = to_range(first, last, prefix)
        count = to_limit(limit)
        self._add_read(
            lambda engine: engine.scan(start, stop, limit=count, reverse=reverse, now=time.monotonic()), freshness
        )

    def count(
        self,
        first: Data = b"",
        last: Data | None = None,
        *,
        prefix: Data = b"",
        freshness: Freshness | None = None,
    ) -> None:
        """Count the keys of ``[first, last)`` that start with ``prefix``; without ``last`` to the end."""
        start, stop = to_range(first, last, prefix)
        self._add_read(lambda engine: engine.count(start, stop, now=time.monotonic()), freshness)


class _Batch(EngineCommands):
    """Commands that run without other calls in between.

    Args:
        meet: Raises if an answer cannot be as fresh as a read asks for.
    """

    def __init__(self, run: Run, meet: Meet, freshness: Freshness | None = None) -> None:
        self._run_alone = run
        self._meet = meet
        self._freshness = freshness
        self._commands: list[Command] = []

    def __len__(self) -> int:
        return len(self._commands)

    def _add(self, command: Command) -> None:
        self._commands.append(command)

    def _add_read(self, command: Command, freshness: Freshness | None) -> None:
        level = self._freshness if freshness is None else freshness

        def read(engine: Engine) -> Result:
            self._meet(level)
            return command(engine)

        self._commands.append(read)

    def _run(self) -> Results:
        """Run the commands and become empty; the result of a failed one is its error."""
        commands, self._commands = self._commands, []

        def run_all(engine: Engine) -> list[Result]:
            results: list[Result] = []
            for command in commands:
                try:
                    results.append(command(engine))
                except PequodError as error:
                    results.append(error)
            return results

        return self._run_alone(run_all)


class EmbeddedBatch(_Batch):
    """Commands that run without other calls in between; see `SyncBatch`."""

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

    def send(self) -> asyncio.Future[Results]:
        """Run the batch and return a future that is done."""
        future: asyncio.Future[Results] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(self._run())
        except PequodError as error:
            future.set_exception(error)
        return future
