"""Forms of use that are measured: operations in turns, and the CPU of this process and of a server for each.

The forms take turns, so that a noisy machine disturbs all alike; of the samples the medians are what counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

import psutil
from rich.console import Console

from pequod_bench.report.printed import Printed, print_rows
from pequod_bench.report.progress import ProgressBars
from pequod_bench.settings import FormsSettings
from pequod_bench.systems.server import Stopwatch, usage


@dataclass(frozen=True, slots=True)
class Form:
    """One way to use a server: carries out a number of operations, a multiple of those that wait together."""

    name: str
    at_once: int
    work: Callable[[int], None]
    #: The process whose CPU is told, with its workers; None: it is on another machine.
    pid: int | None

    def sample(self, operations: int) -> tuple[int, float, float, float]:
        """Return operations, seconds, and CPU seconds of client and server (0 if that is on another machine)."""
        wanted = operations // 20 if self.at_once == 1 else operations
        done = max(1, wanted // self.at_once) * self.at_once
        server_s, watch = self._server_s(), Stopwatch()
        self.work(done)
        return done, watch.seconds(), watch.cpu_seconds(), self._server_s() - server_s

    def _server_s(self) -> float:
        if self.pid is None:
            return 0.0
        return sum(usage(pid).cpu_s for pid in (self.pid, *(one.pid for one in psutil.Process(self.pid).children())))


def in_loop(runner: asyncio.Runner, work: Callable[[int], Awaitable[None]]) -> Callable[[int], None]:
    """Return the work of a form that is a coroutine function."""

    async def run(operations: int) -> None:
        await work(operations)

    return lambda operations: runner.run(run(operations))


@dataclass(frozen=True, slots=True)
class FormFigures:
    """The figures of one form: medians of its samples, and for an operation."""

    name: str
    at_once: int
    operations_per_s: float
    client_cpu_us: float
    #: Of all samples together, since the system counts in steps of 10 ms; None if the server is on another machine.
    server_cpu_us: float | None


def measure(forms: Sequence[Form], settings: FormsSettings, bars: ProgressBars) -> list[FormFigures]:
    """Take samples of the forms whose names hold what the settings say."""
    forms = [form for form in forms if settings.only in form.name]
    samples: list[list[tuple[int, float, float, float]]] = [[] for _ in forms]
    with bars.bar("running", settings.samples * len(forms)) as advance:
        for _ in range(settings.samples):
            for form, taken in zip(forms, samples, strict=True):
                taken.append(form.sample(settings.operations))
                advance(1)
    figures = []
    for form, taken in zip(forms, samples, strict=True):
        rate = median(operations / seconds for operations, seconds, _, _ in taken)
        client_us = median(client_s / operations * 1e6 for operations, _, client_s, _ in taken)
        operations, server_s = (sum(one[at] for one in taken) for at in (0, 3))
        server_us = None if form.pid is None else server_s / operations * 1e6
        figures.append(FormFigures(form.name, form.at_once, rate, client_us, server_us))
    return figures


@dataclass(frozen=True, slots=True)
class FormsReport(Printed):
    """The figures of all forms, and those that could not be measured, with the reason."""

    forms: list[FormFigures]
    missing: list[str] = field(default_factory=list)

    def print_table(self, console: Console) -> None:
        columns = {"form": "{0.name}", "operations/s": "{0.operations_per_s:,.0f}"}
        columns |= {"client CPU an operation": "{0.client_cpu_us:.2f} µs", "server CPU": "{0.server_cpu_us:.1f} µs"}
        print_rows(console, self.forms, columns)
        for reason in self.missing:
            console.print(f"not measured: {reason}", soft_wrap=True)
