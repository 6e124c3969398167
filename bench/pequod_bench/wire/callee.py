"""What is called: a server with single calls, and these one at a time, 32 at once and on 32 connections.

Every server has the same rows, 1,000 keys with values of 66 bytes: posts of one poster, whom nobody follows. Calls read
them and write them again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Final, Literal, Protocol, TypeAlias

from pequod_workloads import twip as keys

from pequod_bench.forms import Form

#: Methods of a callee.
Call = Literal["get", "put", "multi_put", "scan"]
#: How many callers there are, each of whom waits for its calls; on as many connections, or on one.
Shape: TypeAlias = "tuple[int, bool]"

IN_FLIGHT: Final = 32
ONE: Final[Shape] = (1, False)
MANY: Final[Shape] = (IN_FLIGHT, False)
SPREAD: Final[Shape] = (IN_FLIGHT, True)
GATHERED: Final[Shape] = (1_000, False)
#: The rows of a scan, and the keys of a MultiPut.
ROWS: Final = 10
VALUE: Final = b"v" * 66
#: All keys, and the range that has them.
KEYS: Final = [keys.post_key(2, tick) for tick in range(1_000)]
RANGE: Final = keys.posts_of(2)
#: What calls are named in reports.
TITLES: Final[dict[Call, str]] = {
    "get": "Get",
    "put": "Put",
    "multi_put": f"MultiPut of {ROWS}",
    "scan": f"Scan of {ROWS} rows",
}


class Callee(Protocol):
    """A server and the connections to it, with a coroutine function for each call that is made at it.

    Such a function, named as the call, takes the number of the call and that of the connection.
    """

    pid: int | None

    async def connect(self) -> None:
        """Connect as often as calls may ask for, and write all rows."""

    async def close(self) -> None:
        """Close all connections."""


def title(place: str, call: Call, shape: Shape) -> str:
    """Return the name of a form."""
    at_once, is_spread = shape
    words = "" if at_once == 1 else f", {at_once} connections" if is_spread else f", {at_once:,} at once"
    return f"{place}, {TITLES[call]}{words}"


def forms(runner: asyncio.Runner, place: str, callee: Callee, calls: tuple[tuple[Call, Shape], ...]) -> Iterator[Form]:
    """Yield the forms of a callee that is connected."""
    for call, shape in calls:
        work = partial(_call, getattr(callee, call), shape)
        yield Form(title(place, call, shape), shape[0], _in(runner, work), callee.pid)


def _in(runner: asyncio.Runner, work: Callable[[int], Awaitable[None]]) -> Callable[[int], None]:
    async def run(operations: int) -> None:
        await work(operations)

    return lambda operations: runner.run(run(operations))


async def _call(call: Callable[[int, int], Awaitable[None]], shape: Shape, operations: int) -> None:
    at_once, is_spread = shape

    async def caller(begin: int) -> None:
        for number in range(begin, operations, at_once):
            await call(number, begin if is_spread else 0)

    await asyncio.gather(*map(caller, range(at_once)))
