"""Micro benchmarks of backfills: loads while the sources go on changing."""

from __future__ import annotations

from itertools import count
from typing import Final

from pequod.engine import Piece
from pequod_bench.micro.engine import TWEET, timeline, twip_engine
from pequod_bench.micro.frame import RUN, MicroRow, MicroScale, Samples, timed
from pequod_bench.workloads import keys

#: Enough for every round.
_RECORD_BYTES_MAX: Final = 1 << 30


def load_changed(scale: MicroScale) -> Samples:
    """Load timelines whose 100 posts have all been put since the backfill began."""
    user_count, post_count = scale.of(RUN), scale.of(100)
    engine = twip_engine(user_count, 1)
    pieces = [Piece(*timeline(user), (), ()) for user in range(user_count)]
    for number in count():
        engine.invalidate(b"t|", b"t}")
        backfill = engine.backfills.begin(
            "t", b"t|", b"t}", engine.revision, level=None, record_bytes_max=_RECORD_BYTES_MAX
        )
        for tick in range(post_count):
            engine.put(keys.post_key(1, tick), TWEET + b"%d" % number)
        loads = [(backfill, [piece]) for piece in pieces]
        yield user_count * post_count, timed(engine.backfills.load, loads)
        engine.backfills.end(backfill, "the sample ends")


BACKFILLS: Final = (MicroRow("backfill, changed posts", "a row of a timeline of 100", load_changed),)
