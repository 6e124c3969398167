"""Updaters: from a changed source key to the contexts that it concerns (paper §3.2).

    site     source p|<poster>|<time:10> of the timeline join, at level 1
      frame key p|bob|  ->  contexts t|ann|, t|liz|, ...      bob's followers whose timelines are materialised
      frame key p|liz|  ->  contexts t|ann|

A frame is a nested loop suspended at a source: the keys of the earlier sources are chosen, those of this one may
come and go. Its key is what it knows of the source key: the exact prefix, mostly. All contexts that wait at one
frame key share one `Updaters`, and a context keeps only what neither the source key nor its slot set tells
(``extras``). The ranges of one context are disjoint, so no interval tree is needed: the output key says which.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sortedcontainers import SortedList

from pequod.engine.joins import timeline
from pequod.engine.joins.contexts import Context
from pequod.engine.joins.plan import FrameKey, Plan, Step
from pequod.engine.memory.ledger import EXTRAS, HOLD, UPDATERS
from pequod.language.patterns import compile_builder

if TYPE_CHECKING:
    from pequod.engine.joins.installed import InstalledJoin

#: Values of the slots that only earlier sources know, one tuple per frame, and the tail of the row that the frame gives
#: if `Site.is_steady` and the row has been looked for; None if there are no such slots.
Extras = dict[tuple[bytes, ...], bytes | None] | None


class Updaters:
    """The contexts that wait at one frame key of one site."""

    __slots__ = ("_key", "_site", "contexts", "tail_bytes")

    def __init__(self, site: Site, key: FrameKey) -> None:
        self.contexts: dict[Context, Extras] = {}
        self._site = site
        self._key = key
        #: Tails that fan-outs from here made, one for all contexts.
        self.tail_bytes = 0

    def release(self, context: Context) -> None:
        """Let go of ``context`` with all its frames here."""
        extras = self.contexts.pop(context, context)
        if extras is context:
            return
        ledger = self._site.join.ledger
        ledger.change_updaters(-HOLD if extras is None else -HOLD - len(extras) * EXTRAS)  # type: ignore[arg-type]
        if not self.contexts:
            ledger.change_updaters(-UPDATERS - self.tail_bytes)
            self._site.discard(self._key)

    def hand_over(self, context: Context, other: Context) -> None:
        """Let ``other`` wait at all frames here at which ``context`` did, if it did."""
        if context not in self.contexts:
            return
        extras = self.contexts.pop(context)
        ledger = self._site.join.ledger
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


class Site:
    """The frames of one step, by frame key.

    Invariants:
        1. No entry is empty.
        2. Every context in it is live and remembers the entry.
        3. Where a database owns the source, ``_order`` holds exactly the frame keys.
    """

    __slots__ = ("_by_key", "_order", "_tail", "is_alike", "is_last", "is_steady", "join", "plan", "step")

    def __init__(self, join: InstalledJoin, plan: Plan, step: Step) -> None:
        self.join = join
        self.plan = plan
        self.step = step
        self.is_last = step is plan.steps[-1]
        #: The source key alone tells the one row that it makes under a context's prefix, the same for all contexts.
        self.is_alike = timeline.is_on and join.is_unique and plan.tail_slots <= {number for _, number in step.bindings}
        groups = {number: group for group, number in step.bindings}
        by_name = {name: groups[number] for name, number in join.numbers.items() if number in groups}
        #: What a key's match shows -> that row's tail.
        self._tail = compile_builder(plan.tail_parts, by_name) if self.is_alike else plan.tail
        #: Frames have extras and give one row each: the frame key is the whole source key.
        self.is_steady = step.is_point and bool(step.extras) and join.is_unique
        self._by_key: dict[FrameKey, Updaters] = {}
        is_backed = join.source_tables[step.depth].presence is not None
        #: For finding who depends on a range that is forgotten.
        self._order: SortedList[FrameKey] | None = SortedList() if is_backed else None

    def __bool__(self) -> bool:
        """Tell whether anybody waits here."""
        return bool(self._by_key)

    def at(self, key: bytes, match: re.Match[bytes]) -> Updaters | None:
        """Return the updaters that a change of ``key`` concerns; ``match`` is the step's match of it.

        Cost:
            O(key length), whatever the number of frames.
        """
        return self._by_key.get(self.step.frame_key_of(key, match))

    def tail_of(self, match: re.Match[bytes]) -> bytes:
        """Return the tail of the rows that the source key of a match makes, the same in all contexts.

        Requires:
            ``is_alike``.
        """
        return self._tail(match.groups())

    def within(self, first: bytes, last: bytes) -> Iterator[Context]:
        """Yield the contexts that wait for changes of keys in ``[first, last)``, some twice, and perhaps others.

        Requires:
            A database owns the source. The site is not changed while the iterator is live.

        Cost:
            O(length of ``first`` * log frames + contexts found).
        """
        order = self._order
        assert order is not None
        # A frame whose source key is wholly known waits for its prefix alone; more does no harm.
        above = [first[:length] for length in range(len(first))]
        for start, stop in [*zip(above, [prefix + b"\0" for prefix in above], strict=True), (first, last)]:
            low: FrameKey = (start,) if self.step.verify else start
            high: FrameKey = (stop,) if self.step.verify else stop
            for frame_key in order.irange(low, high, inclusive=(True, False)):
                yield from self._by_key[frame_key].contexts

    def add(self, frame_key: FrameKey, extras: tuple[bytes, ...], context: Context) -> None:
        """Let ``context`` wait at a frame with extras; nothing changes if it already does.

        Cost:
            O(1).
        """
        ledger = self.join.ledger
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

    def add_all(self, frame_keys: list[FrameKey], context: Context) -> None:
        """Let ``context`` wait at frames without extras; as `add` for each, in one loop (bench row: check, first)."""
        by_key, order = self._by_key, self._order
        held = context.updaters
        counts = len(by_key), len(held)
        # The look-ups are lazy: a key that comes twice is found the second time.
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
        self.join.ledger.change_updaters(grown_bytes)

    def remove(self, frame_key: FrameKey, extras: tuple[bytes, ...] | None, context: Context) -> None:
        """Let ``context`` no longer wait at a frame; nothing changes if it does not."""
        updaters = self._by_key.get(frame_key)
        if updaters is None or context not in updaters.contexts:
            return
        waiting = updaters.contexts[context]
        if waiting is not None:
            assert extras is not None
            if extras in waiting and len(waiting) > 1:
                del waiting[extras]
                self.join.ledger.change_updaters(-EXTRAS)
                return
            if extras not in waiting:
                return
        updaters.release(context)
        context.lose_updaters()

    def discard(self, frame_key: FrameKey) -> None:
        """Forget an entry that has become empty."""
        del self._by_key[frame_key]
        if self._order is not None:
            self._order.remove(frame_key)

    def count_bytes(self) -> int:
        """Return what the ledger has of this site.

        Cost:
            O(frames).
        """
        held = [(updaters.tail_bytes, updaters.contexts.values()) for updaters in self._by_key.values()]
        return sum(
            UPDATERS + tail_bytes + sum(HOLD if extras is None else HOLD + len(extras) * EXTRAS for extras in waiting)
            for tail_bytes, waiting in held
        )

    def _check(self) -> None:
        assert self._order is None or list(self._order) == sorted(self._by_key), "invariant 3"
        for updaters in self._by_key.values():
            assert updaters.contexts, "invariant 1"
            for context in updaters.contexts:
                assert context.is_live, "invariant 2"
                assert updaters in context.updaters, "invariant 2"
