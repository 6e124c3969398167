"""The cyclic garbage collector, kept off the hot path."""

from __future__ import annotations

import gc


def tame_collector() -> None:
    """Keep the cyclic garbage collector off the hot path.

    The engine holds millions of lists and dictionaries and makes no cycles of garbage (a dropped context is freed by
    counting references), so full collections only cost: 0.3 s for each million containers. What exists at the start is
    frozen, and the survivors of 10 million new containers are looked at again at the earliest. To collect before that
    would take 20 ms, and free a thousand containers, which the parser of joins leaves.

    A young collection looks at 250 containers, and at every row in them: while 1,000 timelines of 10,000 rows were
    filled, the longest took 13 ms; it was 90 at 2,000 containers, and all of them together took twice as long, since
    lists that are just made are still in the processor's cache. To freeze what survives one would not shorten it, and
    would keep for good whatever call was under way and becomes a cycle later.
    """
    gc.freeze()
    gc.set_threshold(250, 40_000, 1_000)
