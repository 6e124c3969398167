"""What is materialised of one join: contexts and their status ranges (paper §3.2).

    join   t|<user>|<time:10>|<poster> = ...
    context  prefix t|ann|     rows of ann's timeline, the log of changed subscriptions
      status range  [t|ann|0100, t|ann|0200)  [t|ann|0500, t|ann})     what of it is materialised
    context  prefix t|bob|  ...

A context is a slot set that some read fixed, with everything materialised under it. Reads at different levels make
contexts whose prefixes nest (``t|`` and ``t|ann|``); their status ranges never overlap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING

from pequod.engine.base.rows import Rows, SortedRows, new_tuple
from pequod.engine.joins.aggregates import Aggregate, State
from pequod.engine.memory.eviction import HELD, Rank, Ticket
from pequod.engine.memory.ledger import BYTES

if TYPE_CHECKING:
    from pequod.engine.joins.hits import View
    from pequod.engine.joins.installed import InstalledJoin
    from pequod.engine.joins.plan import Plan
    from pequod.engine.joins.updaters import Updaters


#: (depth, source key) -> its value when the rows were last right about it, None if it was absent.
Log = dict[tuple[int, bytes], bytes | None]


class StatusRange:
    """A range of one join's output that is materialised."""

    __slots__ = ("context", "first", "last")

    def __init__(self, first: bytes, last: bytes, context: Context) -> None:
        self.first = first
        self.last = last
        self.context = context


class Context:
    """A slot set and what is materialised under it; the unit of maintenance.

        made  --Reader.cover-->  fresh  --go_stale-->  stale  --settle-->  fresh
                                 fresh, stale  --die-->  dead

        made    nobody finds it; its rows are being computed or loaded
        fresh   its rows are those of its sources; up to ``expires_s`` they may be given out
        stale   changes are logged here (`note`) or upstream: `Reader.refresh` applies them
        dead    dropped: evicted, invalidated, expired, its log too long, its sources forgotten, its join changed

    Other classes change a context by its methods alone, but for ``last_used``, which reads write, and ``rows``, into
    which `Changes` writes what is eager.

    Rows are kept under *tails*, the part of their keys after the context's prefix: a post's tail is one object in
    all timelines, so that an entry costs two pointers and no allocation.

    Invariants:
        1. Status ranges are disjoint, in order, not empty, never adjacent, and inside the prefix's range.
        2. ``first`` and ``last`` are their hull, ``lower`` and ``upper`` the same as tails; ``is_whole`` says that
           there is only one range.
        3. Every row lies in a status range.
        4. ``is_fresh`` only if the log is empty and every upstream context is fresh.
        5. Rows equal the join's evaluation over the sources as they were before the log's changes.
        6. Aggregate states and rows are of the same output keys wherever an aggregate has a result.
        7. ``ready_until_s`` is ``expires_s`` while it is fresh, -inf while it is stale.
    """

    __slots__ = (
        "aggregate_states",
        "dependants",
        "end",
        "environment",
        "expires_s",
        "first",
        "is_fresh",
        "is_live",
        "is_whole",
        "join",
        "last",
        "last_used",
        "log",
        "log_bytes",
        "lower",
        "plan",
        "prefix",
        "ranges",
        "ready_until_s",
        "row_bytes",
        "rows",
        "stale_since_s",
        "state_bytes",
        "ticket",
        "updaters",
        "updaters_gone",
        "upper",
        "upstreams",
        "view",
    )

    def __init__(self, join: InstalledJoin, plan: Plan, environment: list[bytes], prefix: bytes) -> None:
        self.join = join
        self.plan = plan
        #: Slot values by number; those that the read did not fix are empty. Copy before binding more.
        self.environment = environment
        #: The output key up to the first slot that is not fixed.
        self.prefix = prefix
        #: Above every key of the plan with this prefix.
        self.end = plan.end_of(prefix)
        #: Values by tail.
        self.rows = SortedRows()
        #: Tail -> state; only for push joins whose output keys may have several contributions.
        self.aggregate_states: dict[bytes, State] = {}
        self.ranges: list[StatusRange] = []
        self.first = self.last = b""
        self.lower: bytes = b""
        #: None: up to the end of the prefix's range.
        self.upper: bytes | None = None
        self.is_whole = True
        #: The last moment at which the rows may be given out; none if it is dropped.
        self.expires_s = inf
        #: The same if it is fresh, none while it is stale: see `Reader.answer`.
        self.ready_until_s = inf
        self.log: Log = {}
        self.is_fresh = True
        #: By the engine's time, when it became stale the last time.
        self.stale_since_s = 0.0
        #: Not dead.
        self.is_live = True
        #: Contexts of other joins whose rows were read to compute these, and the reverse.
        self.upstreams: dict[Context, None] = {}
        self.dependants: dict[Context, None] = {}
        #: Updaters that hold this context, for taking it out of them; some may have let go of it since.
        self.updaters: list[Updaters] = []
        self.updaters_gone = 0
        #: The engine's read number at the latest read.
        self.last_used = 0
        #: What the ledger has of this context beside its entries and itself: tails and values that only it holds.
        self.row_bytes = 0
        self.state_bytes = 0
        self.log_bytes = 0
        self.ticket: Ticket | None = None
        #: A view that it is part of, which goes with it; see `Hits`.
        self.view: View | None = None

    def go_stale(self, now_s: float) -> None:
        """Fresh to stale: the rows are not those of the sources; the log has entries, or that of an upstream has."""
        self.is_fresh = False
        self.ready_until_s = -inf
        self.stale_since_s = now_s

    def note(self, depth: int, key: bytes, old: bytes | None, grown_bytes: int) -> int:
        """Log that a source key was ``old`` before it changed, unless it is there; return how long the log is.

        The caller lets it go stale, with all that was computed from it.
        """
        log = self.log
        count = len(log)
        log.setdefault((depth, key), old)
        if len(log) > count:
            self.grow_log(grown_bytes)
        return len(log)

    def settle(self) -> None:
        """Stale to fresh: the log has been applied, and so have those of the upstream contexts."""
        self.join.counters.log_applied += len(self.log)
        self.log.clear()
        self.join.ledger.change_logs(-self.log_bytes)
        self.log_bytes = 0
        self.is_fresh = True
        self.ready_until_s = self.expires_s

    def expire_by(self, moment_s: float) -> None:
        """Let the rows of a fresh context be given out up to a moment at most; later it has to be dropped."""
        self.expires_s = self.ready_until_s = min(self.expires_s, moment_s)

    def has_expired(self, now: float) -> bool:
        """Tell whether the rows may not be given out any more, at a moment or because it is dead."""
        return self.expires_s < now

    def is_ready(self, now: float) -> bool:
        """Tell whether it is fresh and not expired."""
        return now <= self.ready_until_s

    def depend_on(self, upstreams: Iterable[Context], expires_s: float) -> None:
        """Note that rows of other contexts, the first of which expires then, were read to compute rows of this one."""
        for upstream in upstreams:
            self.upstreams[upstream] = None
            upstream.dependants[self] = None
        self.expire_by(expires_s)

    def take_over(self, other: Context) -> None:
        """Take in the rows of a context of the same prefix that nobody has seen, and wait where it did.

        Requires:
            Both are fresh, and their rows are of different ranges.
        """
        rows = other.rows.everything()
        self.rows.merge(list(rows.keys), list(rows.values))
        self.aggregate_states |= other.aggregate_states
        self.row_bytes += other.row_bytes
        self.state_bytes += other.state_bytes
        for updaters in other.updaters:
            updaters.hand_over(other, self)

    def die(self) -> None:
        """Fresh or stale to dead: answer nothing, wait for nothing, hold nothing; hints may know it for a while."""
        self.is_live = self.is_fresh = False
        self.expires_s = self.ready_until_s = -inf
        for updaters in self.updaters:
            updaters.release(self)
        for upstream in self.upstreams:
            upstream.dependants.pop(self, None)
        ledger = self.join.ledger
        ledger.change_rows(-len(self.rows), -self.row_bytes)
        ledger.change_states(-self.state_bytes)
        ledger.change_logs(-self.log_bytes)
        self.rows = SortedRows()
        self.aggregate_states = {}
        self.log = {}
        self.updaters = []

    def rank(self) -> Rank | None:
        """Return the place in the order of going: contexts that would go along are no less used.

        Cost:
            O(contexts that would go along).
        """
        seen = {self: None}
        todo = [self]
        priority, last_used = self.join.priority, self.last_used
        for context in todo:
            if context.ticket is None or context.join.watches.holds(context):
                return HELD
            priority = max(priority, context.join.priority)
            last_used = max(last_used, context.last_used)
            for dependant in context.dependants:
                if dependant not in seen:
                    seen[dependant] = None
                    todo.append(dependant)
        return priority, last_used, 0

    def covers(self, tail: bytes) -> bool:
        """Tell whether the key of ``tail`` lies in a status range.

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
        """Tell whether one status range holds all of ``[first, last)``.

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
        """Return how many rows ``[first, last)`` holds, which lies in the range of the prefix."""
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

    def contribute(
        self, aggregate: Aggregate[State], tail: bytes, source_key: bytes, old: bytes | None, new: bytes | None
    ) -> tuple[bytes | None, bytes | None]:
        """Replace the contribution ``old`` of a source key by ``new`` (None: no contribution).

        Returns:
            The output value before and after, None where there is no output key.
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
        after = aggregate.result(state)
        if after == before:
            return before, before
        if after is None:
            self.rows.remove(tail)
            self.lose_row()
        elif self.rows.put(tail, after) is None:
            self.gain_rows(1, BYTES + len(tail) + aggregate.value_bytes)
        return before, after

    def take_rows(self, tails: list[bytes], values: list[bytes], value_bytes: int = 0) -> None:
        """Take in rows with ascending tails, which is new, and enter them into the ledger; see `SortedRows.merge`.

        Args:
            value_bytes: What a value takes that nobody else holds.
        """
        if tails:
            # The mean of two tails does for all: adding up their lengths is 2 % of a first check.
            size = (len(tails[0]) + len(tails[-1])) // 2
            self.gain_rows(len(tails), (BYTES + value_bytes + size) * len(tails))
            self.rows.merge(tails, values)

    def take_states(self, aggregate: Aggregate[State], states: dict[bytes, State], contribution_count: int) -> None:
        """Take in aggregate states of output keys that had none, with so many contributions, and tell the ledger."""
        self.aggregate_states.update(states)
        self.grow_states(len(states) * aggregate.state_bytes + contribution_count * aggregate.contribution_bytes)

    def gain_rows(self, count: int, own_bytes: int) -> None:
        """Enter rows into the ledger, with the bytes of their tails and values that nobody else holds."""
        self.join.ledger.change_rows(count, own_bytes)
        self.row_bytes += own_bytes

    def lose_row(self) -> None:
        """Take a row that has gone out of the ledger; whether its tail was its own is not known, so the mean counts."""
        own_bytes = self.row_bytes // (len(self.rows) + 1)
        self.join.ledger.change_rows(-1, -own_bytes)
        self.row_bytes -= own_bytes

    def grow_states(self, grown_bytes: int) -> None:
        """Enter into the ledger that aggregate states have grown or shrunk."""
        self.join.ledger.change_states(grown_bytes)
        self.state_bytes += grown_bytes

    def grow_log(self, grown_bytes: int) -> None:
        """Enter into the ledger that the log has grown or shrunk."""
        self.join.ledger.change_logs(grown_bytes)
        self.log_bytes += grown_bytes

    def aim(self, first: bytes, last: bytes) -> None:
        """Let `covers` go by a range that rows are being made for; it is not materialised yet."""
        self.first, self.last = first, last
        self._relate_hull()

    def add_range(self, added: StatusRange) -> None:
        """Note a new status range of this context."""
        at = bisect_right(self.ranges, added.first, key=_range_first)
        self.ranges.insert(at, added)
        self.resize()

    def remove_range(self, removed: StatusRange) -> None:
        """Take out a status range that is made one with another."""
        self.ranges.remove(removed)

    def clear_ranges(self) -> None:
        """Take out all status ranges: without the circle, the garbage collector need not look for the context."""
        self.ranges = []

    def resize(self) -> None:
        """Bring the hull up to date with the status ranges."""
        self.first, self.last = self.ranges[0].first, self.ranges[-1].last
        self.is_whole = len(self.ranges) == 1
        self._relate_hull()

    def _relate_hull(self) -> None:
        if self.last == self.end:
            # One object to compare with instead of two; a read has fewer places to look at.
            self.last = self.end
        length = len(self.prefix)
        self.lower = self.first[length:] if self.first > self.prefix else b""
        self.upper = None if self.last >= self.end else self.last[length:]

    def lose_updaters(self) -> None:
        """Note that some updaters let go of this context; forget them when they are many.

        Cost:
            O(1) amortised.
        """
        self.updaters_gone += 1
        if self.updaters_gone > 16 + len(self.updaters) // 2:
            self.updaters = list(dict.fromkeys(held for held in self.updaters if self in held.contexts))
            self.updaters_gone = 0

    def _check(self) -> None:
        assert self.is_live
        assert self.ranges, "a context without a status range is dropped"
        for status in self.ranges:
            assert self.prefix <= status.first < status.last <= self.end, "invariant 1"
            assert status.context is self
        for a, b in pairwise(self.ranges):
            assert a.last <= b.first, "invariant 1"
        assert (self.first, self.last) == (self.ranges[0].first, self.ranges[-1].last), "invariant 2"
        assert self.is_whole == (len(self.ranges) == 1), "invariant 2"
        self.rows._check()
        tails = [tail for leaf, _ in self.rows.leaves() for tail in leaf]
        assert all(self.covers(tail) for tail in tails), "invariant 3"
        assert self.ready_until_s == (self.expires_s if self.is_fresh else -inf), "invariant 7"
        if self.is_fresh:
            assert not self.log, "invariant 4"
            assert all(upstream.is_fresh for upstream in self.upstreams), "invariant 4"
        assert all(upstream.is_live and self in upstream.dependants for upstream in self.upstreams)
        assert all(dependant.is_live and self in dependant.upstreams for dependant in self.dependants)
        for updaters in self.updaters:
            assert self in updaters.contexts or self.updaters_gone


def _range_first(status: StatusRange) -> bytes:
    return status.first
