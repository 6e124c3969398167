"""`pequod serve`, which tells on standard output what it holds when it gets SIGUSR1: a line of JSON."""

import asyncio
import gc
import json
import signal
import threading
from collections import Counter
from typing import Any

from pequod.cli import main


def _awaited(coroutine: Any) -> str:
    """Return what a coroutine waits for, from the outside to the inside."""
    names = []
    while hasattr(coroutine, "__qualname__"):
        names.append(coroutine.__qualname__)
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "ag_await", None)
    return " > ".join(names)


def tell(*_: object) -> None:
    """Print what is alive in this process."""
    gc.collect()
    objects = gc.get_objects()
    kinds = Counter(type(thing).__name__ for thing in objects)
    tasks = Counter(_awaited(task.get_coro()) for task in asyncio.all_tasks())
    held = {
        "tasks": dict(tasks),
        "feeds": kinds["Feed"],
        "watches": kinds["Watch"],
        "threads": threading.active_count(),
        "objects": len(objects),
        "most": dict(kinds.most_common(12)),
    }
    print(json.dumps(held), flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, tell)
    main()
