"""Hot calls that another worker answers, in the native core: both ends of the way, without I/O, and who computes what.

HotCalls -> RelayLink -> bytes for the socket            bytes of the socket -> RelayEnd -> HotCalls of the other
streams  <- RelayLink <- bytes of the socket             bytes for the socket <-
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Literal, Protocol

from pequod.native import core
from pequod.native.http2 import HotTurn, NativeHotCalls, Ranges, SlowCall


class Lack(IntEnum):
    """What `NativeRelayEnd.run` lacks; see pequod/native/http2/relay_end.cpp."""

    NOTHING = 0
    #: Whether the state `token` is reached.
    REACHED = 1
    #: What `role` may read.
    RIGHTS = 2


class NativeOwners(Protocol):
    """Which of some servers compute a key: the twin of `Grouping.group_of`, `owners` and `reader`."""

    def group_of(self, key: bytes, /) -> bytes:
        """Return the group of a key."""

    def owner_of(self, key: bytes, /) -> int:
        """Return the place of the key's owner among the servers; -1: its group is longer than 128 bytes."""

    def reader_of(self, key: bytes, own: int, /) -> int:
        """Return the place of the server that answers reads of a key which come to that at ``own``; -1: as above."""


class NativeRelayLink(Protocol):
    """The way to one worker, and the calls that are on it."""

    #: Whether calls may go that way; whether the other worker has kept silent for so long that none do.
    is_up: bool
    is_silent: bool

    def open(self, buffer: memoryview, write: Callable[[bytes], None], soon: Callable[[], None], /) -> None:
        """Stand from now on.

        Args:
            buffer: What `buffer` returns.
            write: Sends bytes.
            soon: Has `flush` called in this turn of the event loop.
        """

    def close(self) -> None:
        """Do not stand any more; the calls that are on it are Python's, as any others."""

    def buffer(self, size: int, /) -> memoryview:
        """Return where the bytes of the next read go."""

    def updated(self, size: int, /) -> list[SlowCall] | None:
        """Take as many bytes of the buffer, and send the replies in them to their clients; return slow calls."""

    def flush(self) -> None:
        """Send what there is."""

    def look(self, margin_s: float, silence_s: float, /) -> int:
        """Leave to Python what waits too long, and return how many calls are left.

        Args:
            margin_s: Calls are left to Python so long before their clients wait no longer.
            silence_s: If nothing has come for so long, all calls are.
        """


class NativeRelayEnd(Protocol):
    """The other end of a `NativeRelayLink`."""

    #: The state that replies have to show, and the header `authorization` of the next call.
    token: bytes
    role: bytes

    def receive(self, data: bytes | memoryview, /) -> None:
        """Take bytes of the socket."""

    def run(self, turn: HotTurn | None, /) -> int:
        """Answer what has come, and return a `Lack`. None: nothing may be answered.

        Raises:
            ConnectionError: What has come is of no link.
        """

    def reach(self, is_reached: bool, /) -> None:  # noqa: FBT001 - native
        """Say whether the state `token` is reached."""

    def admit(self, readable: Ranges | Literal[False], /) -> None:
        """Say what the role `role` may read; False: there is no such role."""

    def forget(self) -> None:
        """Ask for rights anew."""

    def output(self) -> bytes:
        """Return bytes for the socket."""

    def take_slow(self) -> list[SlowCall] | None:
        """Return the calls that took long, since the last time."""


def new_owners(servers: list[tuple[str, float]], placements: list[tuple[bytes, int, int]]) -> NativeOwners:
    """Return who computes what.

    Args:
        servers: Their ids and weights.
        placements: Prefixes, levels, and the number of servers that share the reads of a group; the longest prefix
            first.

    Raises:
        ValueError: There is no server, or an id is longer than 64 bytes.
    """
    ids = tuple((name.encode(), float(weight)) for name, weight in servers)
    levels = tuple((prefix, level) for prefix, level, _ in placements)
    spreads = tuple((prefix, spread) for prefix, _, spread in placements)
    made: NativeOwners = _core().Owners(ids, levels, spreads)
    return made


def new_relay_link(calls: NativeHotCalls) -> NativeRelayLink:
    """Return a way that does not stand yet."""
    made: NativeRelayLink = _core().RelayLink(calls)
    return made


def new_relay_end(calls: NativeHotCalls) -> NativeRelayEnd:
    """Return the end of a way that has just begun to stand."""
    made: NativeRelayEnd = _core().RelayEnd(calls)
    return made


def relay_by(
    calls: NativeHotCalls,
    owners: NativeOwners,
    tables: tuple[list[bytes], list[bytes | None]],
    links: list[NativeRelayLink | None],
    *,
    own: int,
    home: int,
    count_max: int,
    has_guard: bool,
) -> None:
    """Have reads that are not quick here go to other workers.

    Args:
        tables: The keys that all workers have; those of the others are the home's.
        links: To each of the servers of ``owners``; None: to none.
        own, home: The places of this server and of the home.
        count_max: How many calls may be on their way.
        has_guard: Whether rights are looked at.
    """
    native: Any = calls
    native.relay_by(owners, tables, links, own, home, count_max, has_guard)


def relay_by_none(calls: NativeHotCalls) -> None:
    """Have no calls go to other workers any more."""
    native: Any = calls
    native.relay_by()


def _core() -> Any:
    assert core is not None, "hot calls are native"
    return core
