"""What watches are told: the changes of their rows in order, and how they ask for their turn.

put --> Changes of each watch --> Waker: the numbers of those that have something, and one call for all of them
                                                             |
take_runs: the changes of all of them, range by range <------+
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pequod.answers.changes import Change, Expired
from pequod.native import core


class PythonChanges(list[Change]):
    """Changes of keys, in their order."""

    __slots__ = ()

    def tell(self, key: bytes, old: bytes | None, new: bytes | None) -> None:
        """Add a change."""
        self.append(Change(key, old, new))

    def part(self, start: int, stop: int) -> list[Change]:
        """Return the changes from one place up to another."""
        return self[start:stop]

    def text_bytes(self) -> tuple[int, int]:
        """Return the bytes of the keys and of the values before, and those of the values after."""
        keys, olds, news = zip(*self, strict=True) if self else ((), (), ())
        return sum(map(len, keys)) + sum(map(len, filter(None, olds))), sum(map(len, filter(None, news)))


class HotWatch:
    """What a write looks at in a watch that it tells of a change; see `Watch`."""

    __slots__ = ("changes", "ended", "first", "is_awake", "last", "lost", "stale", "waker")

    first: bytes
    last: bytes | None
    #: Changes that were delivered and not taken yet.
    changes: Changes
    #: Contexts that are not as a scan would return them.
    stale: Collection[object]
    #: Ranges whose rows are not.
    lost: list[tuple[bytes, bytes]]
    #: The reason for which it has ended; None while it has not.
    ended: str | None
    #: Called when there is something to settle, while ``is_awake`` is false.
    waker: Callable[[], None]
    is_awake: bool


class HotWaker:
    """What a write looks at in a waker; see `Waker`."""

    __slots__ = ("begin", "number", "woken")

    number: int
    woken: list[int]
    begin: Callable[[], object]


class Runs(NamedTuple):
    """The changes of some watches, one watch after the other."""

    changes: Changes
    #: The numbers of the watches, and how many changes each has.
    numbers: list[int]
    counts: list[int]


def python_take_runs(watches: Mapping[int, HotWatch], woken: list[int]) -> Runs | None:
    """Take what watches were told, if that is all that there is to know of each.

    Args:
        watches: By their numbers.
        woken: The numbers of those that have something; it is empty afterwards.

    Returns:
        None, with nothing taken, if one of them has ended, or has to be settled.
    """
    found = [watches[number] for number in woken]
    if any(watch.stale or watch.lost or watch.ended is not None for watch in found):
        return None
    runs = Runs(Changes(), [], [])
    for number, watch in zip(woken, found, strict=True):
        watch.is_awake = False
        if watch.changes:
            runs.numbers.append(number)
            runs.counts.append(len(watch.changes))
            for change in watch.changes:
                runs.changes.append(change)
            watch.changes = Changes()
    woken.clear()
    return runs


Changes = PythonChanges
if not TYPE_CHECKING and core is not None:
    Changes, HotWatch, HotWaker = core.Changes, core.HotWatch, core.HotWaker
    core.use_changes(Change, Expired)


def take_runs(watches: Mapping[int, HotWatch], woken: list[int]) -> Runs | None:
    """Do what `python_take_runs` does, natively where the core is."""
    if core is None:
        return python_take_runs(watches, woken)
    taken = core.take_runs(watches, woken)
    return None if taken is None else Runs(*taken)


def joined(runs: Mapping[int, Sequence[Change]]) -> Runs:
    """Return changes by watch as runs."""
    found = Runs(Changes(), list(runs), list(map(len, runs.values())))
    for changes in runs.values():
        for change in changes:
            found.changes.append(change)
    return found


class Waker(HotWaker):
    """Notes which of many watches have something to settle, and calls once for all of them.

    Args:
        number: Of the watch that it wakes.
        woken: Gets the numbers; its owner empties it.
        begin: Called when the first of them comes.
    """

    __slots__ = ()

    def __init__(self, number: int, woken: list[int], begin: Callable[[], object]) -> None:
        self.number = number
        self.woken = woken
        self.begin = begin

    def __call__(self) -> None:
        """Note that the watch has something to settle."""
        is_first = not self.woken
        self.woken.append(self.number)
        if is_first:
            self.begin()
