"""What a system under test is: a server that can be started, and a session that runs Twip on it.

system.find()                     Found the program, or Missing and how to install it
system.started(directory)         a real server on a free port of the loopback, until the block ends
system.session(server, workload)  a connection: load(), run(), timelines(); check(), post(); clear()
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from pequod.engine import PequodError, Rows
from pequod_bench.settings import Delivery
from pequod_bench.workloads.stream import TwipStream

#: Operations whose commands share a message, and messages under way at once, the same for all systems. More would save
#: clients that keep timelines a little CPU, and make their timelines lag further behind the posts.
BATCH: Final = 256
WINDOW: Final = 2


class PeerError(PequodError):
    """A server under test refused something, or went away."""


@dataclass(frozen=True, slots=True)
class Found:
    """The server's program is there, with what it says of its version."""

    path: Path
    version: str


@dataclass(frozen=True, slots=True)
class Missing:
    """The server cannot be started on this machine: what is not there, and how to install it."""

    reason: str


Presence = Found | Missing


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs; other processes that it started are the children of its own."""

    port: int
    pid: int


@dataclass(frozen=True, slots=True)
class SystemWorkload:
    """The operations that every system gets, and the size of a post."""

    stream: TwipStream
    tweet_bytes: int = 140
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


class Message(Protocol):
    """Commands that go out together, carried out in their order."""

    def __len__(self) -> int:
        """Return the number of commands so far."""

    def send(self) -> Awaitable[Any]:
        """Send it at once; the answers come later."""


M = TypeVar("M", bound=Message)
Asked = TypeVar("Asked")


async def in_messages(
    new: Callable[[], M],
    fill: Callable[[M, int, int], Asked],
    settle: Callable[[M, Any, Asked], int],
    operation_count: int,
    batch: int = BATCH,
) -> Work:
    """Carry out operations, ``batch`` of them a message, `WINDOW` messages under way.

    Args:
        new: Returns an empty message.
        fill: Puts the operations from one number to another into a message; returns what `settle` has to know of them.
        settle: Puts what the answers to an earlier message ask for into a message; returns the rows that they brought.
        operation_count: The number of all operations.
        batch: Operations of a message.
    """
    under_way: deque[tuple[Awaitable[Any], Asked]] = deque()
    row_count = command_count = message_count = start = 0
    while start < operation_count or under_way:
        message = new()
        if under_way and (len(under_way) == WINDOW or start >= operation_count):
            coming, asked = under_way.popleft()
            row_count += settle(message, await coming, asked)
        stop = min(start + batch, operation_count)
        asked, start = fill(message, start, stop), stop
        if len(message):
            command_count += len(message)
            message_count += 1
            under_way.append((message.send(), asked))
    return Work(row_count, command_count, message_count)


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

    async def post(self, poster: int, tick: int, text: bytes) -> Awaitable[None] | None:
        """Write one post, by itself, until it is acknowledged; what comes back ends when it is in all timelines.

        None comes back if it is there at once, or the store delivers it.
        """

    async def clear(self) -> None:
        """Remove everything that `load` and operations wrote."""


class System(Protocol):
    """One of the systems that are compared."""

    #: On the command line, and in the report.
    name: str
    title: str
    #: What is done so that it runs well, for the report.
    tuning: str

    def find(self) -> Presence:
        """Look whether it can be run here."""

    def started(self, directory: Path) -> AbstractContextManager[Server]:
        """Start the server with its files, if it has any, in ``directory``."""

    def session(self, server: Server, workload: SystemWorkload) -> AbstractAsyncContextManager[SystemSession]:
        """Connect a client to it."""
