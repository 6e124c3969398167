"""A progress bar where a person watches, a line a minute elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

#: Told how many steps more are done.
Advance = Callable[[int], None]

#: Drawing takes about 2 ms of the client's time; four a second cost less than 1 % of a run.
_REFRESHES_PER_S: Final = 4
_LINES_EVERY_S: Final = 60.0


class _Lines:
    """Says now and then how many steps are done, for a run in the background."""

    def __init__(self, console: Console, title: str, step_count: int) -> None:
        self._console, self._title, self._step_count = console, title, step_count
        self._done = 0
        self._begun_s = self._shown_s = time.monotonic()

    def __call__(self, steps: int) -> None:
        self._done += steps
        now_s = time.monotonic()
        if now_s >= self._shown_s + _LINES_EVERY_S:
            self._shown_s = now_s
            minutes = (now_s - self._begun_s) / 60
            self._console.print(f"{self._title}: {self._done:,} of {self._step_count:,} in {minutes:.0f} minutes")


class ProgressBars:
    """Bars on standard error, if ``console`` is a terminal; else lines, of what takes more than a minute.

    Example:
        with bars.bar("loading", 100) as advance:
            advance(1)
    """

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def bar(self, title: str, step_count: int) -> Iterator[Advance]:
        """Show a bar of ``step_count`` steps; yield what moves it."""
        if not self._console.is_terminal:
            yield _Lines(self._console, title, step_count)
            return
        columns = (TextColumn("{task.description:<10}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self._console, refresh_per_second=_REFRESHES_PER_S) as progress:
            task = progress.add_task(title, total=step_count)
            yield lambda steps: progress.advance(task, steps)

    def working(self, title: str) -> AbstractContextManager[object]:
        """Show that something is done that has no steps to count."""
        return self._console.status(title) if self._console.is_terminal else nullcontext()


QUIET: Final = ProgressBars(Console(quiet=True, force_terminal=False))
