"""Which event loop a process of a benchmark runs on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Literal

Loop = Literal["uvloop", "asyncio"]


def loop_factory(loop: Loop = "uvloop") -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the loop, None for asyncio's own; that it is too where uvloop is not installed."""
    if loop == "asyncio" or find_spec("uvloop") is None:
        return None
    make: Callable[[], asyncio.AbstractEventLoop] = import_module("uvloop").new_event_loop
    return make


def server_arguments(loop: Loop) -> tuple[str, ...]:
    """Return what makes `pequod serve` run on this loop."""
    return ("--no-uvloop",) if loop == "asyncio" else ()
