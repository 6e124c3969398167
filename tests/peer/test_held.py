"""The ranges that a compute holds, and since when it was told of them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pequod_server.backing import KeyRange
from pequod_server.homes.compute import held as module
from pequod_server.homes.compute.held import Held

A, B, C = (KeyRange(b"p|%c|" % name, b"p|%c}" % name) for name in b"abc")


def unknown(held: Held, ranges: Sequence[KeyRange], position: int) -> list[KeyRange] | None:
    steps = held.unknown_in_steps(ranges, position)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            held._check()
            found: list[KeyRange] | None = end.value
            return found


def test_a_range_is_known_from_the_place_of_its_load_on_until_it_is_missed_or_forgotten() -> None:
    held = Held()
    held.hold([A, B])
    held.begin([A], 40)
    assert unknown(held, [A], 50) is None, "it does not keep beginnings yet"
    held.keep_beginnings()
    assert unknown(held, [A], 39) is None
    assert unknown(held, [A, B, C], 40) == [B, C]
    held.begin([B], 57)
    assert unknown(held, [A, B], 50) == [B]
    assert unknown(held, [A, B], 57) == []
    held.begin([A], 60)
    assert unknown(held, [A], 50) == [], "it was told all along"
    held.missed([A])
    assert (unknown(held, [A], 70), held.ranges()) == ([A], [A, B])
    held.begin([A], 80)
    assert unknown(held, [A, B], 70) == [A]
    held.forget([B])
    assert (unknown(held, [B], 90), held.ranges()) == ([B], [A])
    held.clear()
    assert (unknown(held, [A], 90), held.ranges()) == ([A], [])


def test_of_beginnings_that_are_not_kept_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BEGUN_MAX", 2)
    held = Held()
    held.keep_beginnings()
    for position, one in enumerate((A, B, C), start=10):
        held.begin([one], position)
    assert unknown(held, [A], 9) is None
    assert unknown(held, [A, B, C], 10) == [B, C]
