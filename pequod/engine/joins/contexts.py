"""Contexts: the materialised rows of one join for one slot set, and their states (paper §3.2).

    join   t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:10>
    context  prefix t|ann|     rows of ann's timeline, the log of changed subscriptions
      status ranges  [t|ann|0100, t|ann|0200)  [t|ann|0500, t|ann})
      waits at       s|ann|  of the first source,  p|bob|  p|liz|  of the second
    context  prefix t|liz|  ...

A context is a slot set that a read fixed, with everything materialised under it. Reads at different levels make
contexts whose prefixes nest (``t|`` and ``t|ann|``); their status ranges never overlap.

The ranges of one context are disjoint, so a change needs no interval tree to find them: the output key does. Where
contexts wait for changes is in `frames`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from pequod.engine.base.range_map import Stretch
from pequod.engine.joins.aggregates import Aggregate, State
from pequod.engine.joins.capped import Kept, RowChange
from pequod.engine.joins.compiled import CompiledJoin
from pequod.engine.joins.frames import Awaiting, Frames
from pequod.engine.joins.plan import Plan
from pequod.engine.memory.eviction import HELD, Rank, Ticket
from pequod.engine.memory.ledger import BYTES
from pequod.language.ranges import Range
from pequod.native import NativeKernel

#: (depth, source key) -> its value when the rows were last right for it, None if it was absent.
Log = dict[tuple[int, bytes], bytes | None]


class StatusRange(Stretch):
    """A materialised range of one join's output."""

    __slots__ = ("context",)

    def __init__(self, first: bytes, last: bytes, context: Context) -> None:
        super().__init__(first, last)
        self.context = context


class Context(Awaiting):
    """A slot set and the rows under it; the unit of maintenance.

        made  --Reader.cover-->  fresh  --go_stale-->  stale  --settle-->  fresh
                                 fresh, stale  --die-->  dead

        made    no read finds it; its rows are being computed or loaded
        fresh   its rows are those of its sources; up to ``expires_s`` reads may return them
        stale   changes are logged here (`note`) or upstream: `Reader.refresh` applies them
        dead    dropped: evicted, invalidated, expired, its log too long, its sources forgotten, its join changed;
                or it was made for a load that failed

    Other classes change a context by its methods alone, except ``last_used`` and ``hits``, which reads write,
    ``view_last``, which is for `Hits`, and ``rows``, into which `Writer` writes. `note`, `go_stale` and `settle` are
    methods of `Hot`.

    Invariants, beside those of `Materialised`:
        4. ``is_fresh`` only if the log is empty, no group is short, and every upstream context is fresh.
        5. Rows equal the join's evaluation over the sources as they were before the log's changes.
        6. Aggregate states and rows have the same output keys wherever an aggregate has a result.
        7. ``ready_until_s`` is ``expires_s`` while it is fresh, -inf while it is stale.
    """

    __slots__ = (
        "environment",
        "frames",
        "join",
        "kept",
        "plan",
        "ticket",
        "view_last",
    )

    #: Changes of sources that are not applied yet.
    log: Log
    #: Contexts of other joins whose rows were read to compute these rows, and the reverse.
    upstreams: dict[Context, None]
    dependants: dict[Context, None]

    def __init__(
        self,
        join: CompiledJoin,
        plan: Plan,
        frames: Sequence[Frames[Context]],
        kernel: NativeKernel | None,
        environment: list[bytes],
        prefix: bytes,
    ) -> None:
        super().__init__(join.ledger, prefix, plan.end_of(prefix))
        self.join = join
        #: The same object as the join's, which native reads find here.
        self.counters = join.counters
        self.plan = plan
        #: What it knows of its groups beside its rows, if `keep` leaves some rows alone and it is kept up to date.
        self.kept = None if plan.cap is None or not frames else Kept(plan.cap, join.tails)
        #: For each step of the plan, its frames; empty if the join keeps no updaters.
        self.frames = frames
        #: What applies its log natively, None if nothing does.
        self.kernel = kernel
        #: Slot values by number; empty for slots that the read did not fix. Copy before binding more.
        if self.kept is not None:
            self.is_capped = True
            self.room_over = self.kept.cap.room_over
            self.kept.measure(self)
        self.environment = environment
        #: The last moment at which reads may return the rows; none if the context was dropped.
        self.expires_s = inf
        #: The same if it is fresh, none while it is stale: see `Reader.answer`.
        self.ready_until_s = inf
        #: The bytes of the log in the ledger.
        self.log_bytes = 0
        self.is_fresh = True
        #: By the engine's time, when it became stale the last time.
        self.stale_since_s = 0.0
        #: The number of the latest read that used it.
        self.last_used = 0
        self.hits = 0
        self.ticket: Ticket | None = None
        #: The end of a view with this context, which is forgotten with it; see `Hits`.
        self.view_last: bytes | None = None

    @property
    def is_short(self) -> bool:
        """Whether rows of a group are to be computed again, since more were removed than it had spare ones for."""
        return self.kept is not None and bool(self.kept.short)

    @property
    def is_end(self) -> bool:
        """Whether it has the end of a group alone, of which some rows are kept."""
        return self.kept is not None and self.kept.cap.is_single and bool(self.lower)

    def short_groups(self) -> list[tuple[bytes, Range]]:
        """Return these groups: what the tails of each begin with, and the range of its keys."""
        return [] if self.kept is None else [(group, self.kept.range_of(self, group)) for group in self.kept.short]

    @property
    def row_count(self) -> int:
        """How many rows it holds, with those that no read sees."""
        return len(self.rows) + (0 if self.kept is None else self.kept.spare_count)

    def expire_by(self, moment_s: float) -> None:
        """Let reads return the rows of a fresh context until a moment; later it has to be dropped."""
        self.expires_s = self.ready_until_s = min(self.expires_s, moment_s)

    def has_expired(self, now: float) -> bool:
        """Return whether reads may not return the rows any more, because of the time or because it is dead."""
        return self.expires_s < now

    def is_ready(self, now: float) -> bool:
        """Return whether it is fresh and not expired."""
        return now <= self.ready_until_s

    def depend_on(self, upstreams: Iterable[Context], expires_s: float) -> None:
        """Note that rows of other contexts, the first of which expires then, were read to compute rows of this one."""
        for upstream in upstreams:
            self.upstreams[upstream] = None
            upstream.dependants[self] = None
        self.expire_by(expires_s)

    def take_over(self, other: Context) -> None:
        """Take in the rows of a context of the same prefix that no read has found, and wait at its frames.

        Requires:
            Both are fresh, and their rows are of different ranges.
        """
        rows = other.rows.everything()
        self.rows.merge(list(rows.keys), list(rows.values))
        if self.kept is not None and other.kept is not None:
            self.kept.take_over(other.kept)
        if other.state_bytes:
            self.aggregate_states |= other.aggregate_states
        self.row_bytes += other.row_bytes
        self.state_bytes += other.state_bytes
        for updaters in other.updaters if other.has_updaters else ():
            updaters.hand_over(other, self)
        self.ledger.change_updaters(other.hand_over(self))

    def die(self) -> None:
        """Fresh or stale to dead: answer nothing, wait for nothing, hold nothing; views may know it for a while."""
        self.is_live = self.is_fresh = False
        self.expires_s = self.ready_until_s = -inf
        self.release_updaters()
        if self.has_upstreams:
            for upstream in self.upstreams:
                upstream.dependants.pop(self, None)
        self.clear_rows()
        if self.log_bytes:
            self.ledger.change_logs(-self.log_bytes)
            self.log = {}

    def clear_rows(self) -> None:
        """Remove all rows and aggregate states, and what it knows of its groups."""
        if self.kept is not None:
            self.gain_rows(-self.kept.spare_count, 0)
            self.kept.release_all(self)
            self.kept = Kept(self.kept.cap, self.join.tails)
        super().clear_rows()

    def is_beyond(self, tail: bytes) -> bool:
        """Return whether a row of this tail changes nothing, since only rows before it are kept: the core asks."""
        return self.kept is not None and self.kept.cap.is_single and not self.kept.knows(tail)

    def place(self, tail: bytes, new: bytes | None, own_bytes: int) -> Sequence[RowChange]:
        """Set a row that it covers, or (None) remove it; return the changes of rows that reads see.

        Args:
            tail: The row's.
            new: Its value.
            own_bytes: What it takes in the ledger, if it is new.
        """
        if self.kept is not None:
            return self.kept.place(self, tail, new, own_bytes)
        if new is None:
            old = self.rows.remove(tail)
            if old is not None:
                self.lose_row()
        else:
            old = self.rows.put(tail, new)
            if old is None:
                self.gain_rows(1, own_bytes)
        return ((tail, old, new),)

    def append(self, tail: bytes, value: bytes, now_s: float) -> int:
        """Put a row that all contexts have under this tail, if nobody follows them; return whether it is a new one.

        It is the twin of what the core does (pequod/native/timeline.cpp): a row behind all others is appended, and
        rows that are too many are left to the next read, or dropped together.
        """
        last = self.rows.slice(b"", None, 1, reverse=True).keys
        if self.room and self.is_whole and self.upper is None and last and last[0] < tail:
            self.rows.put(tail, value)
            self.room -= 1
            if self.room < self.room_over:
                self.go_stale(now_s)
            if not self.room:
                self.cut()
            return 1
        if self.covers(tail):
            self.place(tail, value, 0)
        return 0

    def cut(self) -> None:
        """Leave the rows that reads may see."""
        if self.kept is not None:
            self.kept.cut(self)

    def contribute(
        self, aggregate: Aggregate[State], tail: bytes, source_key: bytes, old: bytes | None, new: bytes | None
    ) -> Sequence[RowChange]:
        """Replace the contribution ``old`` of a source key by ``new`` (None: no contribution).

        Returns:
            The changes of rows that reads see.
        """
        before, after = self.change_state(aggregate, tail, source_key, old, new)
        if before == after:
            return ()
        return self.place(tail, after, BYTES + len(tail) + aggregate.value_bytes)

    def rank(self) -> Rank | None:
        """Return the place in the order of eviction: its dependants were used no later than it.

        Cost:
            O(dependants).
        """
        seen = {self: None}
        todo = [self]
        priority, last_used = self.join.priority, self.last_used
        for context in todo:
            if context.ticket is None or context.join.watched.are_over(context.first, context.last):
                return HELD
            priority = max(priority, context.join.priority)
            last_used = max(last_used, context.last_used)
            for dependant in context.dependants if context.has_dependants else ():
                if dependant not in seen:
                    seen[dependant] = None
                    todo.append(dependant)
        return priority, last_used, 0

    def _check(self) -> None:
        super()._check()
        if self.kept is not None:
            self.kept._check(self)
            assert not (self.kept.short and self.is_fresh), "invariant 4"
        assert self.ready_until_s == (self.expires_s if self.is_fresh else -inf), "invariant 7"
        if self.is_fresh:
            assert not self.log, "invariant 4"
            assert all(upstream.is_fresh for upstream in self.upstreams), "invariant 4"
        assert all(upstream.is_live and self in upstream.dependants for upstream in self.upstreams)
        assert all(dependant.is_live and self in dependant.upstreams for dependant in self.dependants)
