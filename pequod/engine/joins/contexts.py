"""Contexts: the materialised rows of one join for one slot set, and where they wait for changes (paper §3.2).

    join   t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:10>
    context  prefix t|ann|     rows of ann's timeline, the log of changed subscriptions
      status ranges  [t|ann|0100, t|ann|0200)  [t|ann|0500, t|ann})
      waits at       s|ann|  of the first source,  p|bob|  p|liz|  of the second
    context  prefix t|liz|  ...

    frames of the second source
      p|bob|  ->  contexts t|ann|, t|liz|, ...      bob's followers whose timelines are materialised
      p|liz|  ->  contexts t|ann|

A context is a slot set that a read fixed, with everything materialised under it. Reads at different levels make
contexts whose prefixes nest (``t|`` and ``t|ann|``); their status ranges never overlap.

A frame is the nested loops stopped at one source: the keys of the earlier sources are chosen, and keys of this source
may appear and disappear. Its frame key is the known part of the source key, usually an exact prefix. All contexts that
wait at one frame key share one `Updaters`, and a context keeps only values that follow neither from the source key nor
from its slot set (``extras``). The ranges of one context are disjoint, so no interval tree is needed: the output key
finds the range.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING

from sortedcontainers import SortedList

from pequod.engine.base.range_map import Stretch
from pequod.engine.joins.compiled import CompiledJoin
from pequod.engine.joins.materialised import Materialised
from pequod.engine.joins.plan import FrameKey, Plan
from pequod.engine.memory.eviction import HELD, Rank, Ticket
from pequod.engine.memory.ledger import EXTRAS, HOLD, NATIVE_HOLD, NATIVE_UPDATERS, UPDATERS, Ledger
from pequod.engine.native import NativeKernel, core

#: (depth, source key) -> its value when the rows were last right for it, None if it was absent.
Log = dict[tuple[int, bytes], bytes | None]
#: Values of the slots that only earlier sources know, one tuple per frame, and the tail of the row that the frame gives
#: if `Site.is_steady` and the row has been looked for; None if there are no such slots.
Extras = dict[tuple[bytes, ...], bytes | None] | None


class StatusRange(Stretch):
    """A materialised range of one join's output."""

    __slots__ = ("context",)

    def __init__(self, first: bytes, last: bytes, context: Context) -> None:
        super().__init__(first, last)
        self.context = context


class Context(Materialised):
    """A slot set and the rows under it; the unit of maintenance.

        made  --Reader.cover-->  fresh  --go_stale-->  stale  --settle-->  fresh
                                 fresh, stale  --die-->  dead

        made    no read finds it; its rows are being computed or loaded
        fresh   its rows are those of its sources; up to ``expires_s`` reads may return them
        stale   changes are logged here (`note`) or upstream: `Reader.refresh` applies them
        dead    dropped: evicted, invalidated, expired, its log too long, its sources forgotten, its join changed

    Other classes change a context by its methods alone, except ``last_used``, which reads write, ``view_last``, which
    is for `Hits`, and ``rows``, into which `Writer` writes eager changes.

    Invariants, beside those of `Materialised`:
        4. ``is_fresh`` only if the log is empty and every upstream context is fresh.
        5. Rows equal the join's evaluation over the sources as they were before the log's changes.
        6. Aggregate states and rows have the same output keys wherever an aggregate has a result.
        7. ``ready_until_s`` is ``expires_s`` while it is fresh, -inf while it is stale.
    """

    __slots__ = (
        "environment",
        "frames",
        "is_live",
        "join",
        "plan",
        "ticket",
        "updaters_gone",
        "view_last",
    )

    #: Changes of sources that are not applied yet.
    log: Log
    #: Contexts of other joins whose rows were read to compute these rows, and the reverse.
    upstreams: dict[Context, None]
    dependants: dict[Context, None]
    #: Updaters that hold this context, to release them; some may have been released since.
    updaters: list[Updaters]

    def __init__(
        self,
        join: CompiledJoin,
        plan: Plan,
        frames: Sequence[Frames],
        kernel: NativeKernel | None,
        environment: list[bytes],
        prefix: bytes,
    ) -> None:
        super().__init__(join.ledger, prefix, plan.end_of(prefix))
        self.join = join
        #: Those of the join, nearer.
        self.counters = join.counters
        self.plan = plan
        #: For each step of the plan, its frames; empty if the join keeps no updaters.
        self.frames = frames
        #: What applies its log natively, None if nothing does.
        self.kernel = kernel
        #: Slot values by number; empty for slots that the read did not fix. Copy before binding more.
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
        #: Whether it is not dead.
        self.is_live = True
        self.updaters_gone = 0
        #: The number of the latest read that used it.
        self.last_used = 0
        self.ticket: Ticket | None = None
        #: The end of a view with this context, which is forgotten with it; see `Hits`.
        self.view_last: bytes | None = None

    def go_stale(self, now_s: float) -> None:
        """Fresh to stale: the rows are not those of the sources; its log or that of an upstream has entries."""
        self.is_fresh = False
        self.ready_until_s = -inf
        self.stale_since_s = now_s

    def note(self, depth: int, key: bytes, old: bytes | None, grown_bytes: int) -> int:
        """Log that a source key was ``old`` before it changed, unless the key is in the log; return the log's length.

        The caller makes it stale, with all that was computed from it.
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
        self.ledger.change_logs(-self.log_bytes)
        self.log_bytes = 0
        self.is_fresh = True
        self.ready_until_s = self.expires_s

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
        if self.has_updaters:
            for updaters in self.updaters:
                updaters.release(self)
            self.updaters = []
        self.ledger.change_updaters(self.let_go())
        if self.has_upstreams:
            for upstream in self.upstreams:
                upstream.dependants.pop(self, None)
        self.clear_rows()
        if self.log_bytes:
            self.ledger.change_logs(-self.log_bytes)
            self.log = {}

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

    def grow_log(self, grown_bytes: int) -> None:
        """Enter into the ledger that the log has grown or shrunk."""
        self.ledger.change_logs(grown_bytes)
        self.log_bytes += grown_bytes

    @property
    def updaters_count(self) -> int:
        """At how many frame keys it waits."""
        return self.held_count + (len(self.updaters) - self.updaters_gone if self.has_updaters else 0)

    def lose_updaters(self) -> None:
        """Note that some updaters of this context were released; drop them from the list when they are many.

        Cost:
            O(1) amortised.
        """
        self.updaters_gone += 1
        if self.updaters_gone > 16 + len(self.updaters) // 2:
            self.updaters = list(dict.fromkeys(held for held in self.updaters if self in held.contexts))
            self.updaters_gone = 0

    def _check(self) -> None:
        super()._check()
        assert self.is_live
        assert self.ready_until_s == (self.expires_s if self.is_fresh else -inf), "invariant 7"
        if self.is_fresh:
            assert not self.log, "invariant 4"
            assert all(upstream.is_fresh for upstream in self.upstreams), "invariant 4"
        assert all(upstream.is_live and self in upstream.dependants for upstream in self.upstreams)
        assert all(dependant.is_live and self in dependant.upstreams for dependant in self.dependants)
        for updaters in self.updaters:
            assert self in updaters.contexts or self.updaters_gone


class Updaters:
    """The contexts that wait at one frame key."""

    __slots__ = ("_frames", "contexts", "key", "tail_bytes")

    def __init__(self, frames: Frames, key: FrameKey) -> None:
        self.contexts: dict[Context, Extras] = {}
        self._frames = frames
        self.key = key
        #: Tails that fan-outs at this frame key made, shared by all its contexts.
        self.tail_bytes = 0

    def release(self, context: Context) -> None:
        """Release ``context`` with all its frames here; nothing changes if it is not here."""
        if context not in self.contexts:
            return
        extras = self.contexts.pop(context)
        ledger = self._frames.ledger
        ledger.change_updaters(-HOLD if extras is None else -HOLD - len(extras) * EXTRAS)
        if not self.contexts:
            ledger.change_updaters(-UPDATERS - self.tail_bytes)
            self._frames.discard(self.key)

    def hand_over(self, context: Context, other: Context) -> None:
        """Let ``other`` wait at all frames here at which ``context`` waits, if it does."""
        if context not in self.contexts:
            return
        extras = self.contexts.pop(context)
        ledger = self._frames.ledger
        if other not in self.contexts:
            self.contexts[other] = extras
            other.updaters.append(self)
        elif extras is None:
            ledger.change_updaters(-HOLD)
        else:
            waiting = self.contexts[other]
            assert waiting is not None, "a step has extras or has none"
            count = len(waiting) + len(extras)
            waiting |= extras
            ledger.change_updaters(-HOLD - (count - len(waiting)) * EXTRAS)


class Frames:
    """The frames of one step of a plan, by frame key.

    Invariants:
        1. No entry is empty.
        2. Every context in it is live and remembers the entry.
        3. Where a database owns the source, ``_order`` holds exactly the frame keys.
    """

    __slots__ = ("_by_key", "_is_native", "_order", "ledger")

    def __init__(self, ledger: Ledger, *, is_ordered: bool, is_plain: bool) -> None:
        self.ledger = ledger
        self._by_key: dict[FrameKey, Updaters] = {}
        #: Frames that are *plain*, without extras and known by bytes alone, are native ones where the engine is.
        self._is_native = core is not None and is_plain and not is_ordered
        if not TYPE_CHECKING and self._is_native:
            self._by_key = core.Frames(NATIVE_UPDATERS, NATIVE_HOLD)
        #: For finding the dependants of a range that is forgotten; None if the source's rows are never forgotten.
        self._order: SortedList[FrameKey] | None = SortedList() if is_ordered else None

    def __bool__(self) -> bool:
        """Return whether any context waits here."""
        return bool(self._by_key)

    @property
    def native(self) -> dict[FrameKey, Updaters] | None:
        """The native frames, None if these are not native."""
        return self._by_key if self._is_native else None

    def get(self, frame_key: FrameKey) -> Updaters | None:
        """Return the updaters at a frame key; O(key length), for any number of frames."""
        return self._by_key.get(frame_key)

    def add(self, frame_key: FrameKey, extras: tuple[bytes, ...], context: Context) -> None:
        """Let ``context`` wait at a frame with extras; nothing changes if it already does.

        Cost:
            O(1).
        """
        ledger = self.ledger
        updaters = self._by_key.get(frame_key)
        if updaters is None:
            updaters = self._by_key[frame_key] = Updaters(self, frame_key)
            ledger.change_updaters(UPDATERS)
            if self._order is not None:
                self._order.add(frame_key)
        contexts = updaters.contexts
        if context not in contexts:
            contexts[context] = {extras: None}
            context.updaters.append(updaters)
            ledger.change_updaters(HOLD + EXTRAS)
        else:
            waiting = contexts[context]
            assert waiting is not None, "a step has extras or has none"
            if extras not in waiting:
                waiting[extras] = None
                ledger.change_updaters(EXTRAS)

    def add_all(self, frame_keys: Sequence[FrameKey], context: Context) -> None:
        """Let ``context`` wait at frames without extras; as `add` for each, in one loop (bench row: check, first)."""
        if not TYPE_CHECKING and self._is_native:
            self.ledger.change_updaters(self._by_key.add_all(frame_keys, context))
            return
        by_key, order = self._by_key, self._order
        held = context.updaters
        counts = len(by_key), len(held)
        # The look-ups are lazy: a key that occurs twice is found the second time.
        for frame_key, found in zip(frame_keys, map(by_key.get, frame_keys), strict=True):
            updaters = found
            if updaters is None:
                updaters = by_key[frame_key] = Updaters(self, frame_key)
                if order is not None:
                    order.add(frame_key)
            contexts = updaters.contexts
            if context not in contexts:
                contexts[context] = None
                held.append(updaters)
        grown_bytes = (len(by_key) - counts[0]) * UPDATERS + (len(held) - counts[1]) * HOLD
        self.ledger.change_updaters(grown_bytes)

    def remove(self, frame_key: FrameKey, extras: tuple[bytes, ...] | None, context: Context) -> None:
        """Let ``context`` no longer wait at a frame; nothing changes if it does not."""
        if not TYPE_CHECKING and self._is_native:
            self.ledger.change_updaters(self._by_key.remove(frame_key, context))
            return
        updaters = self._by_key.get(frame_key)
        if updaters is None or context not in updaters.contexts:
            return
        waiting = updaters.contexts[context]
        if waiting is not None:
            assert extras is not None
            if extras in waiting and len(waiting) > 1:
                del waiting[extras]
                self.ledger.change_updaters(-EXTRAS)
                return
            if extras not in waiting:
                return
        updaters.release(context)
        context.lose_updaters()

    def discard(self, frame_key: FrameKey) -> None:
        """Drop an entry that has become empty."""
        del self._by_key[frame_key]
        if self._order is not None:
            self._order.remove(frame_key)

    def count_bytes(self) -> int:
        """Return the bytes of these frames in the ledger, in O(frames)."""
        each, hold = (NATIVE_UPDATERS, NATIVE_HOLD) if self._is_native else (UPDATERS, HOLD)
        held = [(updaters.tail_bytes, updaters.contexts.values()) for updaters in self._by_key.values()]
        return sum(
            each + tail_bytes + sum(hold if extras is None else hold + len(extras) * EXTRAS for extras in waiting)
            for tail_bytes, waiting in held
        )

    def _check(self) -> None:
        assert self._order is None or list(self._order) == sorted(self._by_key), "invariant 3"
        for updaters in self._by_key.values():
            assert updaters.contexts, "invariant 1"
            for context in updaters.contexts:
                assert context.is_live, "invariant 2"
                assert updaters in context.updaters or updaters in context.frames_held(), "invariant 2"
