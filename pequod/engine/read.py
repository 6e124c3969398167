"""Reads: one record for each public call that uses what the engine holds.

    scan t|ann|   number 41   now 12.5   serial 7   missing: p|bob| .. p|bob}

The record accompanies the call, through all contexts that the call brings up to date, and ends with it.

>>> reads = Reads()
>>> first, second = reads.begin(), reads.begin(now=12.5)
>>> first.number, second.number, second.now
(1, 2, 12.5)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pequod.language.missing import Lacking, NextGroups
from pequod.native import core


class Read:
    """One public call, from its beginning to its end."""

    __slots__ = ("in_parts", "is_whole", "missing", "next_groups", "now", "number", "serial")

    def __init__(self, number: int, now: float) -> None:
        #: Counted from the engine's start. Data that the call used stay until it ends.
        self.number = number
        #: The caller's time: contexts that expired before it do not answer.
        self.now = now
        #: What the call needs and is not there, in the order in which it met that.
        self.missing: dict[Lacking, None] = {}
        #: Whether it has the indexes that it needs made at once, however long that takes.
        self.is_whole = False
        #: Whether it goes through sources that a disk has in small parts, however often it has to be repeated.
        self.in_parts = False
        #: What it will need when it has them.
        self.next_groups: list[NextGroups] = []
        #: `Writer.serial` at the beginning of the call or of its last attempt. If it has grown since, what was read may
        #: be of several moments.
        self.serial = 0

    def begin_again(self, serial: int) -> None:
        """Drop the missing ranges of an earlier attempt."""
        self.missing.clear()
        self.next_groups.clear()
        self.serial = serial

    def lack(self, ranges: Iterable[Lacking]) -> None:
        """Note ranges that are not loaded, and indexes that are not made."""
        self.missing.update(dict.fromkeys(ranges))


class Numbers:
    """The number of the latest call, or of the latest that used something; calls that run natively count, too."""

    __slots__ = ("number",)

    number: int


if not TYPE_CHECKING and core is not None:
    Numbers = core.Numbers


class Reads(Numbers):
    """Numbers the calls of one engine."""

    __slots__ = ("rows_computed",)

    def __init__(self) -> None:
        #: The number of the latest call.
        self.number = 0
        #: Rows that calls had to compute, of all joins.
        self.rows_computed = 0

    def begin(self, now: float = 0.0) -> Read:
        """Begin a call."""
        self.number = number = self.number + 1
        return Read(number, now)
