"""What a plain call takes: the calls of all places, one at a time, 32 at once and on 32 connections.

All servers run at the same time, and their calls take turns: a noisy machine disturbs all alike.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

from pequod_bench.report.progress import ProgressBars
from pequod_bench.settings import WireSettings
from pequod_bench.systems.server import loop_factory
from pequod_bench.wire.callee import Callee, forms, title
from pequod_bench.wire.forms import Form, FormsReport, measure
from pequod_bench.wire.places import PLACES


def run(settings: WireSettings, bars: ProgressBars) -> FormsReport:
    """Measure the calls whose names hold what the settings say, at the places that can be started here."""
    wanted = [place for place in PLACES if any(settings.only in title(place.name, *call) for call in place.calls)]
    lacks = {place.name: place.lack() for place in wanted}
    with ExitStack() as stack:
        with bars.working("starting"):
            started = [(place, place.start(stack)) for place in wanted if not lacks[place.name]]
        runner = stack.enter_context(asyncio.Runner(loop_factory=loop_factory(settings.client_loop)))
        found = list[Form]()
        for place, callee in started:
            stack.callback(_close, runner, callee)
            runner.run(callee.connect())
            found += forms(runner, place.name, callee, place.calls)
        figures = measure(found, settings, bars)
    return FormsReport(figures, [f"{name}: {reason}" for name, reason in lacks.items() if reason])


def _close(runner: asyncio.Runner, callee: Callee) -> None:
    runner.run(callee.close())
