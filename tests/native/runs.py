"""Runs of hot calls with names for what is asked and what was done."""

from typing import NamedTuple

from pequod.native import NativeBatch
from pequod.native.http2 import Ranges, SlowBatch, SlowCall


class Turn(NamedTuple):
    """A `HotTurn`."""

    now_s: float = 0.0
    token: bytes = b"T"
    is_token_own: bool = True
    age_ms: int | None = 0
    may_read: bool = True
    homes: Ranges = None
    room: int = 1 << 20


class Ran(NamedTuple):
    """A `HotRan`."""

    answered: int
    slow: list[SlowCall] | None
    streams: list[int] | None
    slow_batches: list[SlowBatch] | None
    begun: tuple[int, NativeBatch] | None
