"""Frames: where contexts wait for changes of sources (paper §3.2).

    join   t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:10>

    frames of the second source
      p|bob|  ->  contexts t|ann|, t|liz|, ...      bob's followers whose timelines are materialised
      p|liz|  ->  contexts t|ann|

A frame is the nested loops stopped at one source: the keys of the earlier sources are chosen, and keys of this source
may appear and disappear. Its frame key is the known part of the source key, usually an exact prefix. All contexts that
wait at one frame key share one `Updaters`, and a context keeps only values that follow neither from the source key nor
from its slot set (``extras``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from sortedcontainers import SortedList

from pequod.engine.joins.materialised import Materialised
from pequod.engine.joins.plan import FrameKey
from pequod.engine.joins.told import HotWatch
from pequod.engine.memory.ledger import EXTRAS, HOLD, NATIVE_HOLD, NATIVE_PLACE, NATIVE_UPDATERS, UPDATERS, Ledger
from pequod.native import Route, core

#: Values of the slots that only earlier sources know, one tuple per frame, and the tail of the row that the frame gives
#: if `Site.gives_one_row` and the row has been looked for; None if there are no such slots.
Extras = dict[tuple[bytes, ...], bytes | None] | None


class Awaiting(Materialised):
    """Rows that wait at frames for changes: what frames know of a context.

    While it is live, it is in each of ``updaters``, except those that have released it since.
    """

    __slots__ = ("is_live", "updaters_gone")

    #: Updaters that hold it, to release them; some may have been released since.
    updaters: list[Updaters[Self]]

    def __init__(self, ledger: Ledger, prefix: bytes, end: bytes) -> None:
        super().__init__(ledger, prefix, end)
        #: Whether it is not dead.
        self.is_live = True
        self.updaters_gone = 0

    @property
    def updaters_count(self) -> int:
        """At how many frame keys it waits."""
        return self.held_count + (len(self.updaters) - self.updaters_gone if self.has_updaters else 0)

    def release_updaters(self: Self) -> None:
        """Wait at no frame any more."""
        if self.has_updaters:
            for updaters in self.updaters:
                updaters.release(self)
            self.updaters = []
        self.ledger.change_updaters(self.let_go())

    def lose_updaters(self) -> None:
        """Note that some updaters of this context were released; remove them from the list when they are many.

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
        for updaters in self.updaters:
            assert self in updaters.contexts or self.updaters_gone


W = TypeVar("W", bound=Awaiting)


class Updaters(Generic[W]):
    """The contexts that wait at one frame key."""

    __slots__ = ("_frames", "contexts", "key", "tail_bytes")

    def __init__(self, frames: Frames[W], key: FrameKey) -> None:
        self.contexts: dict[W, Extras] = {}
        self._frames = frames
        self.key = key
        #: Tails that fan-outs at this frame key made, shared by all its contexts.
        self.tail_bytes = 0

    def release(self, context: W) -> None:
        """Release ``context`` with all its frames here; nothing changes if it is not here."""
        if context not in self.contexts:
            return
        extras = self.contexts.pop(context)
        ledger = self._frames.ledger
        ledger.change_updaters(-HOLD if extras is None else -HOLD - len(extras) * EXTRAS)
        if not self.contexts:
            ledger.change_updaters(-UPDATERS - self.tail_bytes)
            self._frames.remove_empty(self.key)

    def hand_over(self, context: W, other: W) -> None:
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


class HotSite:
    """What a write looks at in a site before it looks for frames."""

    __slots__ = ("route", "told")

    #: The way from a written key to the contexts that wait for it, for writes that run natively. None: Python brings
    #: them up to date, since the rows are not the same in all of them, or the frames are not native.
    route: Route | None
    #: The watches of the rows that follow from it, for writes that run natively. None: nobody watches them, or the
    #: index of the watches has to look for those who do.
    told: tuple[HotWatch, ...] | None


if not TYPE_CHECKING and core is not None:
    HotSite = core.HotSite


class Frames(HotSite, Generic[W]):
    """The frames of one step of a plan, by frame key.

    Invariants:
        1. No entry is empty.
        2. Every context in it is live and remembers the entry.
        3. ``_order``, if it is there, holds exactly the frame keys; native frames have an order of their own.
    """

    __slots__ = ("_by_key", "_is_native", "_order", "is_ordered", "ledger")

    def __init__(self, ledger: Ledger, *, is_ordered: bool, is_plain: bool) -> None:
        self.ledger = ledger
        #: Whether frames are found by ranges of keys: the source's rows may be forgotten, with what depends on them.
        self.is_ordered = is_ordered
        self._by_key: dict[FrameKey, Updaters[W]] = {}
        #: Frames that are *plain*, without extras and known by bytes alone, are native ones where the engine is.
        self._is_native = core is not None and is_plain
        if not TYPE_CHECKING and self._is_native:
            self._by_key = core.Frames(self._native_bytes, NATIVE_HOLD, is_ordered)
        self._order: SortedList[FrameKey] | None = SortedList() if is_ordered and not self._is_native else None

    def __bool__(self) -> bool:
        """Return whether any context waits here."""
        return bool(self._by_key)

    @property
    def _native_bytes(self) -> int:
        return NATIVE_UPDATERS + NATIVE_PLACE * self.is_ordered

    @property
    def native(self) -> dict[FrameKey, Updaters[W]] | None:
        """The native frames, None if these are not native."""
        return self._by_key if self._is_native else None

    def get(self, frame_key: FrameKey) -> Updaters[W] | None:
        """Return the updaters at a frame key; O(key length), for any number of frames."""
        return self._by_key.get(frame_key)

    def over(self, first: FrameKey, last: FrameKey) -> Sequence[Updaters[W]]:
        """Return the updaters at the frame keys of ``[first, last)``, in order; O(log frames + updaters found).

        Requires:
            ``is_ordered``.
        """
        if not TYPE_CHECKING and self._is_native:
            return self._by_key.over(first, last)
        assert self._order is not None, "frames are ordered"
        return [self._by_key[key] for key in self._order.irange(first, last, inclusive=(True, False))]

    def add(self, frame_key: FrameKey, extras: tuple[bytes, ...], context: W) -> None:
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

    def add_all(self, frame_keys: Sequence[FrameKey], context: W) -> None:
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

    def remove(self, frame_key: FrameKey, extras: tuple[bytes, ...] | None, context: W) -> None:
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

    def remove_empty(self, frame_key: FrameKey) -> None:
        """Remove an entry that has become empty."""
        del self._by_key[frame_key]
        if self._order is not None:
            self._order.remove(frame_key)

    def count_bytes(self) -> int:
        """Return the bytes of these frames in the ledger, in O(frames)."""
        each, hold = (self._native_bytes, NATIVE_HOLD) if self._is_native else (UPDATERS, HOLD)
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
                assert updaters in [*context.updaters, *context.frames_held()], "invariant 2"
