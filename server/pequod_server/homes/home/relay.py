"""The relay of a home: the latest changes of its base data, kept for the feeds of computes.

    store's feed -> Intake -> relay    ring   [ 41 | 42 | 43 | 44 ]         each event has a number and its feeds' bits
                                               ^ floor          ^ sequence
                              feed 1   ........................ |           has told everything
                              feed 2   ......... |                          is behind, and costs nothing meanwhile
                              feed 3   |                                    is below the floor: everything is reloaded

What is kept are the changes that the store's feed told, in the turn in which the engine has taken in the whole event.
So the engine's rows are always those as of ``sequence``, but while a commit is half applied. Each key is looked up once
for all feeds. A feed references the ring by a number, so a compute that reads slowly neither slows the home nor makes
it keep more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from operator import and_, or_
from typing import Final, NamedTuple

from pequod_server.backing import Changes, Event, History, KeyRange, Place, Reload, RowChange
from pequod_server.homes.messages import ChangeColumns
from pequod_server.homes.subscriptions import Subscriptions

#: The memory of an event and of a change beside keys and values: the objects and their places in lists.
_EVENT_BYTES: Final = 400
_CHANGE_BYTES: Final = 180
#: Changes of an event that are looked up in one turn of the loop: 2 ms. A larger event is looked through piece by
#: piece, by the feeds that tell it.
LOOKED_AT: Final = 4096
#: Stands for all feeds.
EVERYONE: Final = -1


_NOTHING: Final = ChangeColumns((), (), b"", 0)


class Entry(NamedTuple):
    """An event of the store's feed in the ring, from which feeds tell it on."""

    sequence: int
    position: int
    shown: int | None
    changes: Sequence[RowChange]
    #: The same, made once for all feeds that want all of them.
    columns: ChangeColumns
    #: The feeds that want any of the changes; `EVERYONE` for a reload.
    mask: int
    #: The feeds that want all of the changes.
    common: int
    #: The feeds that want each of the changes.
    masks: list[int]
    #: Ranges to be read again, if the event is a reload.
    reloads: tuple[KeyRange, ...]
    reason: str
    size_bytes: int


class Subscriber:
    """A place in the ring, with the subscriptions of one compute.

    Invariants:
        1. All events up to ``told`` were told to the compute, or hold nothing for it.
        2. ``due`` is the first event above ``told`` that holds something for it; None if no event does.
    """

    __slots__ = ("bit", "born", "due", "lost", "told", "wake")

    def __init__(self, bit: int, told: int, wake: Callable[[], None]) -> None:
        self.bit = bit
        self.told = told
        #: The masks of later events know all that this subscriber wants.
        self.born = told
        self.due: int | None = None
        #: Why it has to read everything again; empty if it need not.
        self.lost = ""
        self.wake = wake


class Relay:
    """The ring of events, and the subscribers that read it.

    Args:
        keep_bytes: The most that the ring takes.
        charge: Takes the bytes by which the ring has grown.

    Invariants:
        1. The ring holds the events ``floor + 1`` to ``sequence``.
        2. Each subscriber has a bit of its own; bits of those that are gone are used again once no range has them.
    """

    def __init__(self, keep_bytes: int, charge: Callable[[int], None] = lambda _: None) -> None:
        self._keep_bytes = keep_bytes
        self._charge = charge
        #: Whether a compute has asked for base data yet. Before, no event is kept.
        self.is_awake = False
        self.wants = Subscriptions()
        self.sequence = 0
        self.floor = 0
        #: The position of the last event, or of the moment before the first one.
        self.position = 0
        #: All changes after this position are in the ring; None if that is true of no position.
        self.complete_from: int | None = None
        self.history: History | None = None
        self.size_bytes = 0
        self._ring: dict[int, Entry] = {}
        self.subscribers: dict[int, Subscriber] = {}
        self._used_bits = 0
        #: Times that a compute had to read everything again since it was too slow.
        self.overrun_count = 0
        #: The ranges that computes have wanted, for a server that has them from others and may want them no more.
        self.unwanted: list[KeyRange] | None = None

    def begin(self, history: History, position: int) -> None:
        """Keep what is told from now on, which is after ``position``."""
        self.is_awake = True
        self.history, self.position = history, position

    def taken(self, event: Event, history: History, position: int) -> None:
        """Keep an event that the engine has taken in, in the same turn.

        Args:
            history, position: Of the engine afterwards.
        """
        if not self.is_awake:
            return
        if history != self.history:
            # Positions of two timelines are not compared: who is behind reads again.
            self._drop(self.sequence)
            self.history, self.position, self.complete_from = history, position, position
        match event:
            case Changes(changes=changes, shown=shown):
                if shown is not None:
                    # Such positions do not say what a state holds: another home's events are no continuation.
                    self.complete_from = None
                self.add(event.position, changes, shown)
            case Reload(ranges=ranges, reason=reason):
                sequence, position = self.sequence + 1, event.position
                reload = Entry(sequence, position, None, (), _NOTHING, EVERYONE, 0, [], ranges, reason, _EVENT_BYTES)
                self._append(reload)

    def add(self, position: int, changes: Sequence[RowChange], shown: int | None = None) -> None:
        """Keep changes that become visible together."""
        if len(changes) > LOOKED_AT:
            some = changes[:: max(len(changes) // 1024, 1)]
            size_bytes = ChangeColumns.of(some).size_bytes * len(changes) // len(some)
            size_bytes += _EVENT_BYTES + _CHANGE_BYTES * len(changes)
            sequence = self.sequence + 1
            told = Entry(sequence, position, shown, changes, _NOTHING, EVERYONE, 0, [], (), "", size_bytes)
            self._append(told)
            return
        columns = ChangeColumns.of(changes)
        masks = self.wants.masks_of(columns.keys)
        # A loop over the different masks, which are few, is not one over the changes (bench row: feed: tell).
        different = set(masks)
        mask, common = reduce(or_, different, 0), reduce(and_, different, EVERYONE)
        size_bytes = _EVENT_BYTES + _CHANGE_BYTES * len(masks) + columns.size_bytes
        self._append(
            Entry(self.sequence + 1, position, shown, changes, columns, mask, common, masks, (), "", size_bytes)
        )

    def _append(self, told: Entry) -> None:
        self.sequence = told.sequence
        self.position = told.position
        self._ring[told.sequence] = told
        self.size_bytes += told.size_bytes
        self._charge(told.size_bytes)
        if told.mask:
            for subscriber in self.subscribers.values():
                if told.mask & subscriber.bit and subscriber.due is None:
                    subscriber.due = told.sequence
                    subscriber.wake()
        if self.size_bytes > self._keep_bytes:
            self._shrink()

    def _shrink(self) -> None:
        drop = self.floor
        size_bytes = self.size_bytes
        while size_bytes > self._keep_bytes:
            drop += 1
            size_bytes -= self._ring[drop].size_bytes
        self._drop(drop)

    def _drop(self, upto: int) -> None:
        """Drop the events up to a number; subscribers that have not told them have lost them."""
        before_bytes = self.size_bytes
        while self.floor < upto:
            self.floor += 1
            told = self._ring.pop(self.floor)
            self.size_bytes -= told.size_bytes
            if self.complete_from is not None:
                self.complete_from = max(self.complete_from, told.position)
        self._charge(self.size_bytes - before_bytes)
        for subscriber in list(self.subscribers.values()):
            if subscriber.due is not None and subscriber.due <= self.floor:
                self.lose(
                    subscriber, "the home keeps no more changes than peer_keep_bytes, and the feed is further behind"
                )

    def lose(self, subscriber: Subscriber, reason: str) -> None:
        """Have a compute read everything again: it wants nothing from here on, until it has loaded it.

        `sweep_in_steps` clears its subscriptions.
        """
        if not self.has(subscriber):
            return
        self.overrun_count += 1
        subscriber.lost = reason
        subscriber.told, subscriber.due = self.sequence, None
        bit = self._new_bit()
        self.subscribers[bit] = self.subscribers.pop(subscriber.bit)
        subscriber.bit, subscriber.born = bit, self.sequence
        subscriber.wake()

    # Followers.

    def subscribe(self, wake: Callable[[], None]) -> Subscriber:
        """Add a subscriber, which wants nothing yet."""
        bit = self._new_bit()
        subscriber = self.subscribers[bit] = Subscriber(bit, self.sequence, wake)
        return subscriber

    def leave(self, subscriber: Subscriber) -> None:
        """Remove a subscriber; `sweep_in_steps` clears its subscriptions."""
        if self.has(subscriber):
            del self.subscribers[subscriber.bit]

    def want(self, subscriber: Subscriber, first: bytes, last: bytes | None) -> None:
        """Tell a subscriber the changes of a range from now on; one that has left wants nothing.

        The bit of one that has left may be that of another compute by now, which may have other rights.
        """
        if self.has(subscriber):
            self.wants.add(first, last, subscriber.bit)

    def release(self, subscriber: Subscriber, first: bytes, last: bytes | None) -> None:
        """Tell a subscriber no changes of a range any more."""
        if self.has(subscriber):
            self.wants.remove(first, last, subscriber.bit)
            if self.unwanted is not None:
                self.unwanted.append(KeyRange(first, last))

    def take_unwanted(self) -> list[KeyRange]:
        """Return the ranges that computes have wanted, since the last time; some may be wanted still, or again."""
        found, self.unwanted = self.unwanted or [], []
        return found

    def not_wanted(self, ranges: Sequence[KeyRange]) -> list[KeyRange]:
        """Return the parts of ranges that no compute wants."""
        bits = sum(self.subscribers)
        return [part for one in ranges for part, mask in self.wants.parts(one.first, one.last, bits) if not mask]

    def has(self, subscriber: Subscriber) -> bool:
        """Return whether a subscriber has not left."""
        return self.subscribers.get(subscriber.bit) is subscriber

    def sweep_in_steps(self) -> Iterator[None]:
        """Clear the subscriptions of subscribers that are gone, in steps; then their bits may be used again."""
        gone = self._used_bits
        for bit in self.subscribers:
            gone &= ~bit
        if gone:
            for wanted in self.wants.clear_in_steps(gone):
                if self.unwanted is not None:
                    self.unwanted += wanted
                yield
            self._used_bits &= ~gone

    def _new_bit(self) -> int:
        bit = ~self._used_bits & (self._used_bits + 1)
        self._used_bits |= bit
        return bit

    # What subscribers read.

    def since(self, sequence: int) -> list[Entry] | None:
        """Return the events after a number, None if they are not kept any more."""
        if sequence < self.floor:
            return None
        return [self._ring[number] for number in range(sequence + 1, self.sequence + 1)]

    def resume(self, subscriber: Subscriber, since: Place) -> bool:
        """Have a subscriber go on after a place of another time; return whether everything after it is kept.

        Requires:
            The engine has everything up to the place; the subscriber wants what the compute holds.
        """
        history = self.history
        if history is None or since.timeline != history.timeline or self.complete_from is None:
            return False
        if since.position < self.complete_from:
            return False
        low, high = self.floor, self.sequence
        while low < high:
            middle = (low + high) // 2
            if self._ring[middle + 1].position > since.position:
                high = middle
            else:
                low = middle + 1
        subscriber.told, subscriber.due = low, low + 1 if low < self.sequence else None
        subscriber.born = self.sequence
        return True

    def wanted(self, told: Entry, subscriber: Subscriber, start: int = 0) -> tuple[Sequence[RowChange], int]:
        """Return the changes of an event, from a place on, that a subscriber wants; of a large event a part.

        Returns:
            Beside them, where the next part begins; 0: there is none.
        """
        if len(told.changes) <= LOOKED_AT:
            return self._all_wanted(told, subscriber), 0
        stop = min(start + LOOKED_AT, len(told.changes))
        some, bit = told.changes[start:stop], subscriber.bit
        if told.sequence > subscriber.born and len(told.masks) >= start:
            if len(told.masks) < stop:
                # A compute that wants a key now wanted it when the event came, or has loaded it since, with the change.
                told.masks.extend(self.wants.masks_of([key for key, _ in told.changes[len(told.masks) : stop]]))
            masks: Sequence[int] = told.masks[start:stop]
        else:
            masks = self.wants.masks_of([key for key, _ in some])
        wanted = [change for change, mask in zip(some, masks, strict=True) if mask & bit]
        return wanted, stop if stop < len(told.changes) else 0

    def _all_wanted(self, told: Entry, subscriber: Subscriber) -> Sequence[RowChange]:
        bit = subscriber.bit
        if told.sequence > subscriber.born:
            if told.common & bit:
                return told.changes
            if not told.mask & bit:
                return ()
            return [change for change, mask in zip(told.changes, told.masks, strict=True) if mask & bit]
        mask_of = self.wants.mask_of
        return [change for change in told.changes if mask_of(change[0]) & bit]

    def next_for(self, subscriber: Subscriber) -> Entry | None:
        """Return the next event that may hold something for a subscriber; None if the subscriber has told all."""
        if subscriber.due is None:
            subscriber.told = self.sequence
            return None
        return self._ring[subscriber.due]

    def pass_by(self, subscriber: Subscriber) -> None:
        """Note that the event that is due to a subscriber was told."""
        assert subscriber.due is not None
        subscriber.told = subscriber.due
        ring = self._ring
        for number in range(subscriber.told + 1, self.sequence + 1):
            if number <= subscriber.born or ring[number].mask & subscriber.bit:
                subscriber.due = number
                return
        subscriber.told, subscriber.due = self.sequence, None

    def lag(self, subscriber: Subscriber) -> int:
        """Return the number of events that a subscriber has not told."""
        return 0 if subscriber.due is None else self.sequence - subscriber.told

    def _check(self) -> None:
        assert list(self._ring) == list(range(self.floor + 1, self.sequence + 1)), "invariant 1"
        assert self.size_bytes == sum(told.size_bytes for told in self._ring.values())
        bits = 0
        for bit, subscriber in self.subscribers.items():
            assert bit == subscriber.bit, "invariant 2"
            assert bit & (bit - 1) == 0, "invariant 2"
            assert not bits & bit, "invariant 2"
            bits |= bit
            assert subscriber.due is None or subscriber.told < subscriber.due, "invariant 2 of the subscriber"
        assert not bits & ~self._used_bits, "invariant 2"
        self.wants._check()
