"""`pequod serve`, which tells on standard output what it holds when it gets SIGUSR1: a line of JSON.

    python -m tests.soak.probed_server [--plant memory|call] serve ...

With a planted fault, it leaks 8 KiB with each call, or each hundredth call never ends: a soak has to find that.
"""

import asyncio
import gc
import json
import signal
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import grpc
from grpc import aio
from pequod_server import app
from pequod_server.wire import serving

from pequod import freshness
from pequod.cli import main

#: What can be planted.
PLANTS = ("memory", "call")


class Probe(aio.ServerInterceptor):
    """Counts the calls that gRPC hands over, and carries out a planted fault.

    Args:
        plant: One of `PLANTS`; None for no fault.
    """

    def __init__(self, plant: str | None) -> None:
        self._plant = plant
        self.calls = 0
        self._leaked: list[bytearray] = []

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Count a call."""
        self.calls += 1
        if self._plant == "memory":
            self._leaked.append(bytearray(b"x" * 8192))
        elif self._plant == "call" and not self.calls % 100:
            return grpc.stream_stream_rpc_method_handler(_never_end)
        return await continuation(handler_call_details)


async def _never_end(_requests: object, _context: object) -> None:
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


def _awaited(coroutine: Any) -> str:
    """Return what a coroutine waits for, from the outside to the inside."""
    names = []
    while hasattr(coroutine, "__qualname__"):
        names.append(coroutine.__qualname__)
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "ag_await", None)
    return " > ".join(names)


def tell(probe: Probe, *_: object) -> None:
    """Print what is alive in this process, but for the tokens that it remembers: how many depends on its clients."""
    freshness._parsed.cache_clear()
    gc.collect()
    objects = gc.get_objects()
    kinds = Counter(type(thing).__name__ for thing in objects)
    tasks = Counter(_awaited(task.get_coro()) for task in asyncio.all_tasks())
    held = {
        "tasks": dict(tasks),
        "feeds": kinds["Feed"],
        "watches": kinds["Watch"],
        "calls": probe.calls,
        "threads": threading.active_count(),
        "objects": len(objects),
        "most": dict(kinds.most_common(12)),
    }
    print(json.dumps(held), flush=True)


def _run() -> None:
    plant = None
    if sys.argv[1] == "--plant":
        plant = sys.argv[2]
        del sys.argv[1:3]
    probe = Probe(plant)
    make_server = serving.make_server

    def probed(config: Any, interceptors: Any, transport: Any, **others: Any) -> Any:
        return make_server(config, [probe, *interceptors], transport, **others)

    # On either transport.
    setattr(app, "make_server", probed)  # noqa: B010 - a function of a module
    signal.signal(signal.SIGUSR1, partial(tell, probe))
    main()


if __name__ == "__main__":
    _run()
