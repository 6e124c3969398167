"""What a system under test is: a server that can be started, and a session that runs Twip on it.

system.find()                     Found the program, or Missing and how to install it
system.started(directory)         a real server on a free port of the loopback, until the block ends
system.session(server, workload)  a connection: load(), run(), timelines(); check(), post(); clear()
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol

from pequod.engine import PequodError, Rows
from pequod_bench.workloads.stream import TwipStream

#: Operations whose commands share a message, and messages under way at once, the same for all systems. More would save
#: clients that keep timelines a little CPU, and make their timelines lag further behind the posts.
BATCH: Final = 256
WINDOW: Final = 2


class PeerError(PequodError):
    """A server under test refused something, or went away."""


@dataclass(frozen=True, slots=True)
class Found:
    """The server's program is there."""

    #: The program, and what it says of its version.
    path: Path
    version: str


@dataclass(frozen=True, slots=True)
class Missing:
    """The server cannot be started on this machine."""

    #: What is not there, and how to install it.
    reason: str


Presence = Found | Missing


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs."""

    port: int
    #: Its process; others that it started are its children.
    pid: int


Delivery = Literal["followers", "active"]


@dataclass(frozen=True, slots=True)
class SystemWorkload:
    """The operations that every system gets, and the size of a post."""

    stream: TwipStream
    tweet_bytes: int
    #: Where no join keeps timelines, who gets posts: every follower, as in the paper, or those who ever check.
    delivery: Delivery = "followers"

    @property
    def receivers(self) -> frozenset[int]:
        """Users whose timelines are kept where a client or a trigger keeps them."""
        if self.delivery == "active":
            return frozenset(self.stream.active.tolist())
        return frozenset(range(self.stream.graph.user_count))


@dataclass(frozen=True, slots=True)
class Work:
    """What a client sent and got during the timed part."""

    #: Rows that the checks returned.
    row_count: int
    #: Single commands or statements, which is what the paper counts as RPCs.
    command_count: int
    #: Messages that carried them.
    message_count: int


def at_once() -> Awaitable[None]:
    """Return what ended already."""
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    ended.set_result(None)
    return ended


class SystemClient(Protocol):
    """A connected client that has work to do."""

    async def load(self) -> None:
        """Write what is there before the start, and do whatever prepares the store for its best."""

    async def run(self) -> Work:
        """Carry out all operations, as fast as the store takes them; all of them are done at the end."""


class SystemSession(SystemClient, Protocol):
    """A client that runs Twip."""

    async def timelines(self, users: Sequence[int]) -> list[Rows]:
        """Return whole timelines, in the keys and the order that Pequod gives them."""

    async def check(self, user: int, since: int) -> int:
        """Read one timeline from a tick on, by itself; return how many rows came."""

    async def post(self, poster: int, tick: int, text: bytes) -> Awaitable[None]:
        """Write one post, by itself, until it is acknowledged; what comes back ends when it is in all timelines."""

    async def clear(self) -> None:
        """Remove everything that `load` and operations wrote."""


class System(Protocol):
    """One of the systems that are compared."""

    @property
    def name(self) -> str:
        """Its name on the command line."""

    @property
    def title(self) -> str:
        """Its name in the report."""

    @property
    def tuning(self) -> str:
        """What is done so that it runs well, for the report."""

    @property
    def is_pinnable(self) -> bool:
        """Whether one thread does the server's work, so that one core is enough for it."""

    @property
    def stale_s_max(self) -> float:
        """Seconds after which every timeline shows what was written before."""

    def find(self) -> Presence:
        """Look whether it can be run here."""

    def started(self, directory: Path) -> AbstractContextManager[Server]:
        """Start the server with its files, if it has any, in ``directory``."""

    def session(self, server: Server, workload: SystemWorkload) -> AbstractAsyncContextManager[SystemSession]:
        """Connect a client to it."""
