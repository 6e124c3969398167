"""Native tails and those in Python, driven side by side: they give the same, and hold the same."""

import sys
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pequod.engine.joins.tails import PythonTails
from tests.native.core import hot

TAILS = st.lists(st.integers(0, 300).map(lambda number: b"%03d|bob" % number), max_size=150)


class TailsSideBySide(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.native, self.python = hot.Tails(), PythonTails()
        self.rows: list[bytes] = []

    @rule(tails=TAILS)
    def share(self, tails: list[bytes]) -> None:
        shared = self.native.share(tails)
        assert shared == self.python.share(tails) == tails
        again = self.native.share(tails)
        assert all(one is other for one, other in zip(shared, again, strict=True)), "one object for all rows"
        self.native.release(again)
        self.rows += tails

    @rule(count=st.integers(0, 400))
    def release(self, count: int) -> None:
        gone, self.rows = self.rows[:count], self.rows[count:]
        # Other objects than those that were given: equal bytes are one tail.
        self.native.release([tail[:3] + tail[3:] for tail in gone])
        self.python.release(gone)

    @invariant()
    def agree(self) -> None:
        assert len(self.native) == len(self.python) == len(set(self.rows))
        assert self.native.tail_bytes == self.python.tail_bytes == sum(map(len, set(self.rows)))
        for number in range(301):
            tail = b"%03d|bob" % number
            assert self.native.row_count(tail) == self.python.row_count(tail) == self.rows.count(tail)


TestTailsSideBySide = TailsSideBySide.TestCase


@pytest.mark.parametrize("make", [hot.Tails, PythonTails])
def test_a_tail_that_no_row_has_cannot_go(make: type[PythonTails]) -> None:
    tails = make()
    tails.share([b"1", b"2"])
    tails.release([b"1"])
    with pytest.raises(KeyError):
        tails.release([b"1"])
    assert (len(tails), tails.tail_bytes) == (1, 1)


def test_only_the_rows_hold_a_tail_once_it_is_gone() -> None:
    tails, tail = hot.Tails(), b"0120|" + b"bob" * 3
    before = sys.getrefcount(tail)
    tails.share([tail, tail])
    assert sys.getrefcount(tail) == before + 1
    tails.release([tail, tail])
    assert sys.getrefcount(tail) == before
    tails.share([tail])
    del tails
    assert sys.getrefcount(tail) == before, "all of them go with what they are in"


def test_tails_are_lists_of_bytes() -> None:
    tails: Any = hot.Tails()
    for wrong in ((b"1",), ["1"], b"1", [bytearray(b"1")]):
        with pytest.raises(TypeError):
            tails.share(wrong)
        with pytest.raises(TypeError):
            tails.release(wrong)
    with pytest.raises(TypeError):
        tails.row_count("1")
    assert len(tails) == 0
