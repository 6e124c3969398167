"""The cyclic garbage collector: kept as the server keeps it, at rest, and how long it holds everything up."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal

from pequod_server.memory.collecting import tame_collector

Collector = Literal["tamed", "default"]
#: What CPython starts with.
_DEFAULT_THRESHOLDS: Final = (700, 10, 10)


class Pauses:
    """Every pause that the collector made while `watching`, in CPU time: others on the machine do not lengthen it."""

    def __init__(self) -> None:
        self.count = 0
        self.longest_ms = 0.0
        self.total_ms = 0.0
        self._begun = 0

    def note(self, phase: str, _facts: object) -> None:
        if phase == "start":
            self._begun = time.thread_time_ns()
            return
        pause_ms = (time.thread_time_ns() - self._begun) / 1e6
        self.count += 1
        self.total_ms += pause_ms
        self.longest_ms = max(self.longest_ms, pause_ms)

    @contextmanager
    def watching(self) -> Iterator[None]:
        gc.callbacks.append(self.note)
        try:
            yield
        finally:
            gc.callbacks.remove(self.note)


@contextmanager
def kept(collector: Collector) -> Iterator[None]:
    """Keep the collector as the server does, or as CPython starts; afterwards it is as it was."""
    thresholds = gc.get_threshold()
    gc.collect()
    if collector == "tamed":
        tame_collector()
    else:
        gc.unfreeze()
        gc.set_threshold(*_DEFAULT_THRESHOLDS)
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)


@contextmanager
def resting_collector() -> Iterator[None]:
    """Hold the collector: a run keeps every reply, and it would walk over them again and again."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
