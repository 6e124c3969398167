"""A deterministic event loop: virtual time, and an order of ready callbacks that follows from a seed.

    ready     [a b c]  -> one turn: all of them in a drawn order; what they make ready is for the next turn
    timers    [d e f]  -> with nothing ready, the time jumps to the next one
    neither            -> StuckError: it lists the tasks, and where each of them waits

Nothing here reads a clock, a socket or a thread, so that a run depends on its seed alone. `clocks` has the rest of the
process read the loop's time.
"""

from __future__ import annotations

import asyncio
import heapq
import sys
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from random import Random
from typing import Any, Final, TypeVar
from unittest.mock import patch

T = TypeVar("T")
#: Turns without time going on; a schedule needs some hundreds.
_TURNS_MAX: Final = 100_000
#: The clock of the wall at the start of each simulation, in seconds since 1970.
_BEGUN_S: Final = 1_700_000_000.0


#: Typed so that what a simulation does without (sockets, signals, processes) need not be written down: asyncio refuses
#: such calls with NotImplementedError.
_Loop: Any = asyncio.AbstractEventLoop


class StuckError(AssertionError):
    """Nothing will ever happen again, or the same happens for ever."""


class SimulatedLoop(_Loop):  # type: ignore[misc]
    """An event loop without the world.

    Invariants:
        1. The time never goes back, and goes on only when nothing is ready.
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._now_s = 0.0
        self._clock_ahead_s = 0.0
        self._ready: list[asyncio.Handle] = []
        #: By time, then by a drawn number: timers of one moment have no order of their own.
        self._timers: list[tuple[float, float, int, asyncio.TimerHandle]] = []
        self._timer_count = 0
        self._task_count = 0
        self._is_running = False
        self._is_closed = False
        #: What the exception handler was told; a simulation fails if there is anything.
        self.errors: list[dict[str, Any]] = []

    # Running.

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, and cancel the tasks that it leaves.

        Raises:
            StuckError: It waits for what will not come.
        """
        before = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(finalizer=self._close_generator)
        asyncio.events._set_running_loop(self)
        self._is_running = True
        try:
            task = self.create_task(main)
            try:
                self._turn_until(task)
                return task.result()
            finally:
                self._cancel_all()
        finally:
            self._is_running = False
            asyncio.events._set_running_loop(None)
            sys.set_asyncgen_hooks(*before)

    def _turn_until(self, future: asyncio.Future[Any]) -> None:
        turns = 0
        while not future.done():
            turns += 1
            if not self._ready:
                turns = 0
                self._jump()
            if turns > _TURNS_MAX:
                raise StuckError(f"{_TURNS_MAX} turns of the loop, and no time goes by:\n{self._tasks_shown()}")
            self._turn()

    def _turn(self) -> None:
        handles, self._ready = self._ready, []
        self._random.shuffle(handles)
        for handle in handles:
            if not handle.cancelled():
                handle._run()

    def _jump(self) -> None:
        while self._timers and self._timers[0][3].cancelled():
            heapq.heappop(self._timers)
        if not self._timers:
            raise StuckError(f"nothing is ready and nothing is timed:\n{self._tasks_shown()}")
        self._now_s = max(self._now_s, self._timers[0][0])
        while self._timers and self._timers[0][0] <= self._now_s:
            handle = heapq.heappop(self._timers)[3]
            if not handle.cancelled():
                self._ready.append(handle)

    def _tasks(self) -> list[asyncio.Task[Any]]:
        return sorted(asyncio.all_tasks(self), key=lambda task: task.get_name())

    def _tasks_shown(self) -> str:
        lines = []
        for task in self._tasks():
            places = [f"{frame.f_code.co_filename}:{frame.f_lineno}" for frame in task.get_stack()]
            lines.append(f"  {task.get_name()} waits at {places[-1] if places else 'its start'}")
        return "\n".join(lines)

    def _cancel_all(self) -> None:
        left = self._tasks()
        for task in left:
            task.cancel()
        if left:
            self._turn_until(asyncio.gather(*left, return_exceptions=True))

    def _close_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        self.create_task(generator.aclose())

    # What asyncio asks of a loop.

    def time(self) -> float:
        """Return the virtual time, in seconds since the start."""
        return self._now_s

    def clock(self) -> float:
        """Return what the clocks on the wall say, in seconds since 1970."""
        return _BEGUN_S + self._now_s + self._clock_ahead_s

    def step_clock(self, seconds: float) -> None:
        """Set the clocks on the wall forward, or back."""
        self._clock_ahead_s += seconds

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:
        """Call in the next turn."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call after some virtual time."""
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call at a moment of virtual time."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._timer_count += 1
        heapq.heappush(self._timers, (when, self._random.random(), self._timer_count, handle))
        return handle

    def _timer_handle_cancelled(self, _handle: asyncio.TimerHandle) -> None:
        """Do nothing: `_jump` leaves cancelled timers out."""

    def call_soon_threadsafe(self, *_args: Any, **_kwargs: Any) -> asyncio.Handle:
        """Refuse: there are no threads in a simulation."""
        raise NotImplementedError("a simulation has one thread; who calls from another one?")

    def run_in_executor(self, _executor: object, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Call a function in a later turn of the loop's own order, as if a thread had done it."""

        async def work() -> T:
            await asyncio.sleep(self._random.uniform(0.0, 0.01))
            return func(*args)

        return self.create_task(work())

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        """Start a task; the name of one without a name has a number of this loop, not of the process."""
        self._task_count += 1
        return asyncio.Task(coro, loop=self, name=name or f"task {self._task_count}", context=context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep what nobody handled."""
        self.errors.append(context)

    def get_debug(self) -> bool:
        """Return that asyncio's own checks are off."""
        return False

    def is_running(self) -> bool:
        """Return whether `run` is under way."""
        return self._is_running

    def is_closed(self) -> bool:
        """Return whether the loop is closed."""
        return self._is_closed

    def close(self) -> None:
        """Forget what was ready and timed."""
        self._is_closed = True
        self._ready.clear()
        self._timers.clear()


@contextmanager
def clocks(loop: SimulatedLoop, seed: int) -> Iterator[None]:
    """Have `time.time`, `time.monotonic` and `time.perf_counter` read the loop's time while the block lasts.

    This is the one place where clocks are replaced: the server asks the module `time` at each use. Virtual time stands
    still while code runs, so long work would never be cut in slices. Therefore some looks at `perf_counter`, by which
    slices are measured, cost 4 ms, which is more than a slice; on some machines most of them do.
    """
    random, work_s, looks = Random(seed), 0.0, 0
    slow_share = random.choice([0.1, 0.1, 0.7])

    def perf_counter() -> float:
        nonlocal work_s
        work_s += 0.004 if random.random() < slow_share else 0.0
        return loop.time() + work_s

    def monotonic() -> float:
        """Return another time at each look, as real clocks do: what happens first has the earlier time."""
        nonlocal looks
        looks += 1
        return loop.time() + looks * 1e-10

    with (
        patch.object(time, "time", loop.clock),
        patch.object(time, "monotonic", monotonic),
        patch.object(time, "perf_counter", perf_counter),
    ):
        yield
