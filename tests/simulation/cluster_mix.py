"""What clients of a simulated cluster write and read, which ranges move, and what happens how often."""

from __future__ import annotations

from typing import Final

NAMES: Final = (b"bob", b"dan", b"moe", b"zoe")
KEYS: Final = (b"s|ann|%s", b"s|liz|%s", b"p|%s|0100", b"p|%s|0200", b"q|%s|ann", b"q|%s|liz")
#: Where ranges that move begin and end, in one table each. What is below and above stays, so that each group keeps some
#: keys: tokens of a database that is behind no group are lost.
CUTS: Final = ((b"p|c", b"p|m", b"p|n"), (b"q|", b"q}"), (b"s|", b"s}"))
RANGES: Final = (
    (b"t|ann|", b"t|ann}"),
    (b"t|", b"t}"),
    (b"p|", b"p}"),
    (b"p|dan|", b"p|moe}"),
    (b"p|zoe|", b"p|zoe}"),
    (b"karma|", b"karma}"),
    (b"feed|ann|", b"feed|ann}"),
    (b"feed|ann|0100|", b"feed|ann|0200|dan"),
    (b"feed|", b"feed}"),
    (b"unread|", b"unread}"),
    (b"old|", b"old}"),
    (b"top|", b"top}"),
    (b"top|2|", b"top|3|"),
    (b"loud|", b"loud}"),
    (b"s|", b"s}"),
)
#: By name of the method, how often a step is drawn on average.
STEPS: Final = {
    "put": 12,
    "remove": 4,
    "decide": 6,
    "again": 6,
    "read": 24,
    "evict": 4,
    "hand_on": 2,
    "move": 4,
    "clean": 2,
    "place": 1,
    "fault": 4,
    "replace": 4,
}
FAULTS: Final = (
    "cut",
    "heal",
    "heal",
    "reset",
    "half open",
    "stall",
    "lose feed",
    "restart",
    "restart",
    "cut off map",
)
