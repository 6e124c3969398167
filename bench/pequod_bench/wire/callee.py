"""What is called: a server with single calls, and these one at a time, 32 at once and on 32 connections.

Every server has the same rows, 1,000 keys with values of 66 bytes: posts of one poster, whom nobody follows. Calls read
them and write them again.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Final, Literal, TypeAlias

from pequod_workloads import twip as keys

from pequod_bench.report.printed import WrongAnswerError
from pequod_bench.wire.forms import Form, in_loop

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
#: The option of a channel of gRPC with a connection of its own: channels to one address share one otherwise.
OWN_CONNECTION: Final = [("grpc.use_local_subchannel_pool", 1)]
#: The last key from which a call of several rows begins.
_LAST: Final = len(KEYS) - ROWS
#: What calls are named in reports.
TITLES: Final[dict[Call, str]] = {
    "get": "Get",
    "put": "Put",
    "multi_put": f"MultiPut of {ROWS}",
    "scan": f"Scan of {ROWS} rows",
}


class Callee(ABC):
    """A server and the connections to it: makes the calls, each by its number on one of the connections, and judges.

    A kind of server says how it is asked; calls that no place makes of it need no such way.
    """

    __slots__ = ()
    pid: int | None

    @abstractmethod
    async def connect(self) -> None:
        """Connect as often as calls may ask for, and write all rows."""

    @abstractmethod
    async def close(self) -> None:
        """Close all connections."""

    async def get(self, number: int, connection: int) -> None:
        """Get a row."""
        found = await self.read(KEYS[number % len(KEYS)], connection)
        if found != VALUE:
            raise WrongAnswerError(f"Get returned {found!r:.200}")

    async def put(self, number: int, connection: int) -> None:
        """Put a row."""
        await self.write(KEYS[number % len(KEYS)], connection)

    async def multi_put(self, number: int, connection: int) -> None:
        """Put ten rows by one call."""
        start = number % _LAST
        await self.write_all(KEYS[start : start + ROWS], connection)

    async def scan(self, number: int, connection: int) -> None:
        """Read ten rows."""
        start = number % _LAST
        found = await self.keys(KEYS[start], KEYS[start + ROWS], connection)
        if found != KEYS[start : start + ROWS]:
            raise WrongAnswerError(f"Scan returned {found!r:.200}")

    async def read(self, key: bytes, connection: int) -> bytes | None:
        """Return the value of a key."""
        raise NotImplementedError

    async def write(self, key: bytes, connection: int) -> None:
        """Write the value of a key."""
        raise NotImplementedError

    async def write_all(self, keys: Sequence[bytes], connection: int) -> None:
        """Write the values of keys."""
        raise NotImplementedError

    async def keys(self, first: bytes, last: bytes, connection: int) -> list[bytes]:
        """Read the rows of a range, and return their keys."""
        raise NotImplementedError


def title(place: str, call: Call, shape: Shape) -> str:
    """Return the name of a form."""
    at_once, is_spread = shape
    words = "" if at_once == 1 else f", {at_once} connections" if is_spread else f", {at_once:,} at once"
    return f"{place}, {TITLES[call]}{words}"


def forms(runner: asyncio.Runner, place: str, callee: Callee, calls: tuple[tuple[Call, Shape], ...]) -> Iterator[Form]:
    """Yield the forms of a callee that is connected."""
    for call, shape in calls:
        work = partial(_call, getattr(callee, call), shape)
        yield Form(title(place, call, shape), shape[0], in_loop(runner, work), callee.pid)


async def _call(call: Callable[[int, int], Awaitable[None]], shape: Shape, operations: int) -> None:
    at_once, is_spread = shape

    async def caller(begin: int) -> None:
        for number in range(begin, operations, at_once):
            await call(number, begin if is_spread else 0)

    await asyncio.gather(*map(caller, range(at_once)))
