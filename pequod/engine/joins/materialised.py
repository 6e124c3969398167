"""The materialised rows under one prefix, and the ranges that they fill (paper §3.2).

    prefix  t|ann|
    ranges  [t|ann|0100, t|ann|0200)  [t|ann|0500, t|ann})     the materialised ranges
    rows    0100|bob -> Hi   0120|liz -> again                 by tail: the key without the prefix

Rows are kept under *tails*, so that a post's tail is one object in all timelines, and an entry costs two pointers and
no allocation. Every change here is entered into the ledger.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sized
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING

from pequod.answers.rows import Rows
from pequod.engine.base.range_map import Stretch
from pequod.engine.base.rows import SortedRows, new_tuple
from pequod.engine.joins.aggregates import Aggregate, State
from pequod.engine.memory.ledger import BYTES, Ledger
from pequod.native import core


@dataclass(slots=True)
class JoinCounters:
    """The events of a join since it was installed."""

    #: Reads that found everything materialised and fresh.
    hits: int = 0
    #: Gaps computed, and their rows.
    computed_ranges: int = 0
    rows_computed: int = 0
    #: Log entries applied.
    log_applied: int = 0
    #: Contexts dropped because a context that they were computed from was.
    invalidations: int = 0


if not TYPE_CHECKING and core is not None:
    JoinCounters = core.Counters


class Hot:
    """What reads of a context look at, and writes into it, and the changes of its state; see `Context`."""

    __slots__ = (
        "aggregate_states",
        "counters",
        "dependants",
        "end",
        "expires_s",
        "first",
        "hits",
        "is_capped",
        "is_fresh",
        "is_whole",
        "kernel",
        "last",
        "last_used",
        "ledger",
        "log",
        "log_bytes",
        "lower",
        "prefix",
        "ready_until_s",
        "room",
        "room_over",
        "row_bytes",
        "rows",
        "stale_since_s",
        "updaters",
        "upper",
        "upstreams",
    )

    #: Reads that found everything there and fresh.
    hits: int
    log: dict[tuple[int, bytes], bytes | None]
    ledger: Ledger
    counters: JoinCounters
    is_fresh: bool
    expires_s: float
    ready_until_s: float
    stale_since_s: float
    log_bytes: int
    row_bytes: int
    rows: SortedRows
    #: Whether it keeps some rows of each group alone; then ``room`` is how many more rows fan-outs may append before
    #: some are dropped: with fewer than ``room_over``, there are more rows than reads may see, and it is stale.
    is_capped: bool
    room: int
    room_over: int
    #: At how many native frames it waits.
    held_count = 0

    def __init__(self) -> None:
        # Natively an empty one of these takes no memory until it is asked for; `has_dependants` and its like do not.
        self.aggregate_states: Sized = {}
        self.log = {}
        self.upstreams: Sized = {}
        self.dependants: Sized = {}
        self.updaters: Sized = []

    @property
    def has_dependants(self) -> bool:
        """Return whether other contexts were computed from this one."""
        return bool(self.dependants)

    @property
    def has_upstreams(self) -> bool:
        """Return whether this one was computed from other contexts."""
        return bool(self.upstreams)

    @property
    def has_updaters(self) -> bool:
        """Return whether it waits, or waited, at frames that are not native."""
        return bool(self.updaters)

    def note(self, depth: int, key: bytes, old: bytes | None, grown_bytes: int) -> int:
        """Log that a source key was ``old`` before it changed, unless the key is in the log; return the log's length.

        The caller makes it stale, with all that was computed from it.
        """
        log = self.log
        count = len(log)
        log.setdefault((depth, key), old)
        if len(log) > count:
            self.ledger.change_logs(grown_bytes)
            self.log_bytes += grown_bytes
        return len(log)

    def go_stale(self, now_s: float) -> None:
        """Fresh to stale: the rows are not those of the sources; its log or that of an upstream has entries."""
        if self.is_fresh:
            self.is_fresh = False
            self.ready_until_s = -inf
            self.stale_since_s = now_s

    def settle(self) -> None:
        """Stale to fresh: the log has been applied, and so have those of the upstream contexts."""
        self.counters.log_applied += len(self.log)
        self.log = {}
        self.ledger.change_logs(-self.log_bytes)
        self.log_bytes = 0
        self.is_fresh = True
        self.ready_until_s = self.expires_s

    def gain_rows(self, count: int, own_bytes: int) -> None:
        """Enter rows into the ledger, with the bytes of their tails and values that only they hold."""
        self.ledger.change_rows(count, own_bytes)
        self.row_bytes += own_bytes

    def lose_row(self) -> None:
        """Remove a row from the ledger; it is unknown whether its tail was its own, so the mean counts."""
        self.gain_rows(-1, -(self.row_bytes // (len(self.rows) + 1)))

    def let_go(self) -> int:
        """Release all native frames; return by how many bytes that changes what the ledger has of them."""
        return 0

    def hand_over(self, _other: Hot) -> int:
        """Let another context wait at the native frames where this one does; return the same."""
        return 0

    def frames_held(self) -> list[object]:
        """Return the native frames at which it waits."""
        return []


if not TYPE_CHECKING and core is not None:
    Hot = core.Hot


class Materialised(Hot):
    """The rows under one prefix, and its materialised ranges.

    Invariants:
        1. ``ranges`` are disjoint, in order, not empty, never adjacent, and inside the prefix's range.
        2. ``first`` and ``last`` are their hull, ``lower`` and ``upper`` the same as tails; ``is_whole`` says that
           there is only one range.
        3. Every row lies in one of them.
    """

    __slots__ = ("ranges", "state_bytes")

    #: Tail -> state; only where output keys may have several contributions.
    aggregate_states: dict[bytes, State]

    def __init__(self, ledger: Ledger, prefix: bytes, end: bytes) -> None:
        super().__init__()
        self.ledger = ledger
        #: The output key up to the first slot that is not fixed.
        self.prefix = prefix
        #: The end of the prefix's range.
        self.end = end
        #: Values by tail.
        self.rows = SortedRows()
        self.ranges: tuple[Stretch, ...] = ()
        self.first = self.last = b""
        self.lower: bytes = b""
        #: None: up to the end of the prefix's range.
        self.upper: bytes | None = None
        self.is_whole = True
        #: The bytes in the ledger beside the entries: tails, values and states that only this object holds.
        self.row_bytes = 0
        self.state_bytes = 0

    def covers(self, tail: bytes) -> bool:
        """Return whether the key of ``tail`` lies in a status range.

        Cost:
            O(1) for one range, else O(log ranges).
        """
        upper = self.upper
        if tail < self.lower or (upper is not None and tail >= upper):
            return False
        if self.is_whole:
            return True
        key = self.prefix + tail
        at = bisect_right(self.ranges, key, key=_range_first) - 1
        return key < self.ranges[at].last

    def holds(self, first: bytes, last: bytes) -> bool:
        """Return whether one status range holds all of ``[first, last)``.

        Cost:
            O(1) for one range, else O(log ranges).
        """
        if not (self.first <= first and last <= self.last):
            return False
        if self.is_whole:
            return True
        return last <= self.ranges[bisect_right(self.ranges, first, key=_range_first) - 1].last

    def get(self, key: bytes) -> bytes | None:
        """Return the value of an output key, None if there is no such row."""
        return self.rows.get(key[len(self.prefix) :])

    def slice(self, first: bytes, last: bytes, limit: int | None = None, *, reverse: bool = False) -> Rows:
        """Return the rows of ``[first, last)``, which lies in the range of the prefix; see `SortedRows.slice`."""
        prefix = self.prefix
        length = len(prefix)
        lower = first[length:] if first > prefix else b""
        upper = None if last >= self.end else last[length:]
        tails, values = self.rows.slice(lower, upper, limit, reverse=reverse)
        return new_tuple(Rows, ([prefix + tail for tail in tails], values))

    def count(self, first: bytes, last: bytes) -> int:
        """Return the number of rows in ``[first, last)``, which lies in the range of the prefix."""
        length = len(self.prefix)
        lower = first[length:] if first > self.prefix else b""
        return self.rows.count(lower, None if last >= self.end else last[length:])

    def sample(self, first: bytes, last: bytes, step: int) -> Iterator[tuple[bytes, int]]:
        """Yield about every ``step``-th key of ``[first, last)``; see `SortedRows.sample`."""
        prefix = self.prefix
        lower = first[len(prefix) :] if first > prefix else b""
        upper = None if last >= self.end else last[len(prefix) :]
        for tail, count in self.rows.sample(lower, upper, step):
            yield prefix + tail, count

    def change_state(
        self, aggregate: Aggregate[State], tail: bytes, source_key: bytes, old: bytes | None, new: bytes | None
    ) -> tuple[bytes | None, bytes | None]:
        """Replace the contribution ``old`` of a source key by ``new`` (None: no contribution); the row stays as it is.

        Returns:
            The output value before and after, None if there is no output key.
        """
        state = self.aggregate_states.get(tail)
        had_state = state is not None
        before = aggregate.result(state)
        if old is not None:
            state = aggregate.remove(state, source_key, old)
        if new is not None:
            state = aggregate.add(state, source_key, new)
        if state is None:
            self.aggregate_states.pop(tail, None)
        else:
            self.aggregate_states[tail] = state
        count = ((new is not None) - (old is not None)) * aggregate.contribution_bytes
        self.grow_states(count + ((state is not None) - had_state) * aggregate.state_bytes)
        return before, aggregate.result(state)

    def take_rows(self, tails: list[bytes], values: list[bytes], value_bytes: int = 0) -> None:
        """Add new rows with ascending tails, and enter them into the ledger; see `SortedRows.merge`.

        Args:
            value_bytes: The bytes of a value that only this object holds.
        """
        if tails:
            # The mean of two tails stands for all: adding up their lengths is 2 % of a first check.
            size = (len(tails[0]) + len(tails[-1])) // 2
            self.gain_rows(len(tails), (BYTES + value_bytes + size) * len(tails))
            self.rows.merge(tails, values)

    def take_shared_rows(self, tails: list[bytes], values: list[bytes]) -> None:
        """Do the same with tails that rows of other contexts have, too."""
        self.gain_rows(len(tails), 0)
        self.rows.merge(tails, values)

    def take_states(self, aggregate: Aggregate[State], states: dict[bytes, State], contribution_count: int) -> None:
        """Add aggregate states for output keys that had none, and enter them into the ledger."""
        self.aggregate_states.update(states)
        self.grow_states(len(states) * aggregate.state_bytes + contribution_count * aggregate.contribution_bytes)

    def grow_states(self, grown_bytes: int) -> None:
        """Enter into the ledger that aggregate states have grown or shrunk."""
        self.ledger.change_states(grown_bytes)
        self.state_bytes += grown_bytes

    def clear_rows(self) -> None:
        """Remove all rows and aggregate states."""
        self.gain_rows(-len(self.rows), -self.row_bytes)
        self.rows = SortedRows()
        if self.state_bytes:
            self.ledger.change_states(-self.state_bytes)
            self.state_bytes = 0
            self.aggregate_states = {}

    def aim(self, first: bytes, last: bytes) -> None:
        """Set the hull to a range whose rows are being made, for `covers`; it is not materialised yet."""
        self.first, self.last = first, last
        self._relate_hull()

    def add_range(self, added: Stretch) -> None:
        """Note a new status range of this context."""
        at = bisect_right(self.ranges, added.first, key=_range_first)
        self.ranges = (*self.ranges[:at], added, *self.ranges[at:])
        self.resize()

    def remove_range(self, removed: Stretch) -> None:
        """Remove a status range that is merged with another."""
        self.ranges = tuple([one for one in self.ranges if one is not removed])

    def clear_ranges(self) -> None:
        """Remove all status ranges: without the reference cycle, a context needs no garbage collector."""
        self.ranges = ()

    def resize(self) -> None:
        """Bring the hull up to date with the status ranges."""
        self.first, self.last = self.ranges[0].first, self.ranges[-1].last
        self.is_whole = len(self.ranges) == 1
        self._relate_hull()

    def _relate_hull(self) -> None:
        if self.last == self.end:
            # One object to compare with instead of two; a read has fewer attributes to look at.
            self.last = self.end
        length = len(self.prefix)
        self.lower = self.first[length:] if self.first > self.prefix else b""
        self.upper = None if self.last >= self.end else self.last[length:]

    def _check(self) -> None:
        assert self.ranges, "nothing is left of it without a range"
        for one in self.ranges:
            assert self.prefix <= one.first < one.last <= self.end, "invariant 1"
        assert all(a.last < b.first for a, b in pairwise(self.ranges)), "invariant 1"
        assert (self.first, self.last) == (self.ranges[0].first, self.ranges[-1].last), "invariant 2"
        assert self.is_whole == (len(self.ranges) == 1), "invariant 2"
        self.rows._check()
        tails = [tail for leaf, _ in self.rows.leaves() for tail in leaf]
        assert all(self.covers(tail) for tail in tails), "invariant 3"


def _range_first(one: Stretch) -> bytes:
    return one.first
