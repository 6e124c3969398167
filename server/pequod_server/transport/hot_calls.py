"""Hot calls, as connections see them: asked once for what one read of a socket brings.

read of a socket -> calls kept back -> HotCalls.turn -> run_hot -> replies, by one write
                    messages                                    -> HotCalls.go_on: a batch that is not quick
                                       None          -> hand_over -> exchanges, as any call
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pequod.errors import PequodError
from pequod.native import NativeBatch
from pequod.native.http2 import HotTurn, NativeHotCalls, NativeSession, SlowBatch, SlowCall


class HotClient(Protocol):
    """A connection, as far as the rights of its calls depend on it."""

    session: NativeSession
    peer: str
    #: The rules by which rights were given to it; None: none were.
    rules: object
    #: When they have to be given anew, in seconds of the wall clock.
    rights_end_s: float
    #: The meters of those of its callers whose roles have quotas.
    meters: list[Any]

    def auth_context(self) -> Mapping[str, list[bytes]]:
        """Return what is known of the client."""


class HotCalls(Protocol):
    """Decides when calls may be hot."""

    native: NativeHotCalls
    #: Whether callers have rights that are looked at.
    has_guard: bool
    #: Whether replies may have to wait for a disk.
    has_disk: bool

    def turn(self, client: HotClient) -> HotTurn | None:
        """Return what holds for the calls that a connection keeps back; None: they are calls as any others."""

    def settled(self, then: Callable[[PequodError | None], None]) -> bool:
        """Return whether the replies may leave; if not, ``then`` is called when they may.

        Or it is called with why they may not: what the calls have changed is undone.
        """

    def were_slow(self, calls: Sequence[SlowCall], batches: Sequence[SlowBatch]) -> None:
        """Take note of calls and batches that took long."""

    def answered(self, streams: Sequence[asyncio.Task[Any]]) -> None:
        """Take note of calls whose batches have run."""

    def go_on(self, stream: asyncio.Task[Any], batch: NativeBatch) -> object:
        """Go on with a batch of a call that waits for one; return what its handler gets in its place."""
