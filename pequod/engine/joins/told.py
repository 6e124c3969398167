"""What watches are told: the changes of their rows in order, and how they ask for their turn.

put --> a ToldLane of each watch --> the Changes of all of them, and one call when the first comes
                                    |
take_runs: the same, range by range +

>>> changes, calls = PythonChanges(), []
>>> lanes = [PythonLane(changes, number, [], lambda: calls.append("a turn")) for number in (7, 3)]
>>> for lane, key in zip((*lanes, lanes[0]), (b"a", b"b", b"c")):
...     lane.tell(key, None, b"")
>>> changes.runs(), [change.key for change in changes]
([(7, 2), (3, 1)], [b'a', b'c', b'b'])
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING

from pequod.answers.changes import Change, Expired
from pequod.native import core


class PythonChanges:
    """Changes of keys, range by range, those of each in their order.

    Invariants:
        1. ``_runs`` has the changes of each range by its number, in the order in which the ranges began.
    """

    __slots__ = ("_last", "_runs")

    def __init__(self) -> None:
        self._runs: dict[int, list[Change]] = {}
        #: The range whose changes are appended.
        self._last = 0

    def begin_run(self, number: int) -> None:
        """Have the changes that follow be those of another range, which has none yet."""
        self._last = number

    def append(self, change: Change) -> None:
        """Add a change."""
        self.append_to(self._last, change)

    def append_to(self, number: int, change: Change) -> None:
        """Add a change of a range."""
        self._runs.setdefault(number, []).append(change)

    def tell(self, key: bytes, old: bytes | None, new: bytes | None) -> None:
        """Add a change."""
        self.append(Change(key, old, new))

    def runs(self) -> list[tuple[int, int]]:
        """Return the numbers of the ranges, each with the number of its changes."""
        return [(number, len(changes)) for number, changes in self._runs.items()]

    def part(self, start: int, stop: int) -> list[Change]:
        """Return the changes from one place up to another."""
        return list(islice(self, start, stop))

    def take(self) -> list[Change]:
        """Return all changes, and keep none."""
        taken, self._runs = list(self), {}
        return taken

    def take_run(self, number: int) -> list[Change]:
        """Return the changes of a range, and keep none of them."""
        return self._runs.pop(number, [])

    def text_bytes(self) -> tuple[int, int]:
        """Return the bytes of the keys and of the values before, and those of the values after."""
        keys, olds, news = zip(*self, strict=True) if self else ((), (), ())
        return sum(map(len, keys)) + sum(map(len, filter(None, olds))), sum(map(len, filter(None, news)))

    def __len__(self) -> int:
        return sum(map(len, self._runs.values()))

    def __iter__(self) -> Iterator[Change]:
        return chain.from_iterable(self._runs.values())

    def __getitem__(self, at: int) -> Change:
        return list(self)[at]


class HotWatch:
    """What a write looks at in a watch that it tells of a change; see `Watch`."""

    __slots__ = ("changes", "ended", "first", "is_awake", "last", "lost", "stale", "waker")

    first: bytes
    last: bytes | None
    #: Changes that were delivered and not taken yet.
    changes: Changes | HotLane
    #: Contexts that are not as a scan would return them.
    stale: Collection[object]
    #: Ranges whose rows are not.
    lost: list[tuple[bytes, bytes]]
    #: The reason for which it has ended; None while it has not.
    ended: str | None
    #: Called when there is something to settle, while ``is_awake`` is false.
    waker: Callable[[], None]
    is_awake: bool


class PythonLane:
    """What one of many watches of an owner is told; see `ToldLane`."""

    __slots__ = ("begin", "changes", "number", "woken")

    changes: PythonChanges
    number: int
    woken: list[int]
    begin: Callable[[], object]

    def __init__(self, changes: PythonChanges, number: int, woken: list[int], begin: Callable[[], object]) -> None:
        self.changes = changes
        self.number = number
        self.woken = woken
        self.begin = begin

    def append(self, change: Change) -> None:
        """Add a change of this watch."""
        self.changes.append_to(self.number, change)

    def tell(self, key: bytes, old: bytes | None, new: bytes | None) -> None:
        """Add a change by its key and values."""
        self.append(Change(key, old, new))

    def take(self) -> list[Change]:
        """Return the changes of this watch, and keep none of them."""
        return self.changes.take_run(self.number)


def python_take_runs(watches: Mapping[int, HotWatch], woken: list[int], changes: PythonChanges) -> PythonChanges | None:
    """Take what watches were told, if that is all that there is to know of each.

    Args:
        watches: By their numbers.
        woken: The numbers of those that asked for a turn by themselves; it is empty afterwards.
        changes: What their lanes told; it is empty afterwards.

    Returns:
        None, with nothing taken, if one of them has ended, or has to be settled.
    """
    found = [watches[number] for number in woken]
    if any(watch.stale or watch.lost or watch.ended is not None for watch in found):
        return None
    for watch in found:
        watch.is_awake = False
    woken.clear()
    taken = PythonChanges()
    taken._runs, changes._runs = changes._runs, taken._runs
    return taken


Changes = PythonChanges
HotLane = PythonLane
if not TYPE_CHECKING and core is not None:
    Changes, HotWatch, HotLane = core.Changes, core.HotWatch, core.HotLane
    core.use_changes(Change, Expired)


def take_runs(watches: Mapping[int, HotWatch], woken: list[int], changes: Changes) -> Changes | None:
    """Do what `python_take_runs` does, natively where the core is."""
    return (python_take_runs if core is None else core.take_runs)(watches, woken, changes)


def joined(runs: Mapping[int, Sequence[Change]]) -> Changes:
    """Return changes by range as changes."""
    found = Changes()
    for number, changes in runs.items():
        found.begin_run(number)
        for change in changes:
            found.append(change)
    return found


class ToldLane(HotLane):
    """What one of many watches of an owner is told: its part of their changes. It is the waker of the watch as well.

    Args:
        changes: Of all these watches, for their owner to take.
        number: Of the watch.
        woken: Gets the numbers of watches that have something else to settle; their owner empties it.
        begin: Called when the first of these or of the changes comes; at times once more.
    """

    __slots__ = ()

    def __init__(self, changes: Changes, number: int, woken: list[int], begin: Callable[[], object]) -> None:
        self.changes = changes
        self.number = number
        self.woken = woken
        self.begin = begin

    def __call__(self) -> None:
        """Note that the watch has something to settle."""
        is_first = not self.woken
        self.woken.append(self.number)
        if is_first:
            self.begin()
