"""Micro benchmarks of keys that expire."""

from __future__ import annotations

from itertools import count
from typing import Final

from pequod.engine import Engine
from pequod_bench.micro.frame import RUN, MicroRows, MicroScale, Samples, clock, timed

EXPIRY: Final = MicroRows()
_VALUE: Final = b"x" * 100
_MANY: Final = 200_000
_TTL_MS: Final = 60_000


@EXPIRY.row("put, with a deadline", "a put")
def put_for(scale: MicroScale) -> Samples:
    """Overwrite keys of a large table, each for some time: all of them have deadlines, which move."""
    engine = Engine()
    keys = [b"x|%010d" % number for number in range(scale.of(_MANY))]
    for key in keys:
        engine.put_for(key, b"old", _TTL_MS)
    for start in count(0, RUN):
        # A stride leaves the order that the processor's cache likes.
        chosen = [keys[(start + number) * 104_729 % len(keys)] for number in range(RUN)]
        yield RUN, timed(lambda key, value: engine.put_for(key, value, _TTL_MS), [(key, _VALUE) for key in chosen])


@EXPIRY.row("expire", "a key")
def expire(_: MicroScale) -> Samples:
    """Remove keys that are due, the earliest first, of a table that no join reads."""
    engine = Engine()
    for start_ms in count(1_000, 2 * RUN):
        engine.expire_due(start_ms, 0)
        for number in range(RUN):
            engine.put_for(b"x|%010d" % number, _VALUE, 1 + number * 7_919 % RUN)
        begun = clock()
        removed = engine.expire_due(start_ms + RUN, RUN)
        yield RUN, clock() - begun
        assert removed == RUN, "all were due"
