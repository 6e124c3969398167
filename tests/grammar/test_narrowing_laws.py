"""Bounds on output keys leave out no source key that contributes, whatever names are prefixes of others."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from pequod.language import narrowing
from pequod.language.narrowing import Narrowing

#: Below the delimiter, the least of them, and above it.
BYTES = (b"\0", b"0", b"1", b"}")
VALUES = [b"".join(some) for size in (1, 2, 3) for some in product(BYTES, repeat=size)]
BOUNDS = [b"", *VALUES, b"0|", b"0|1", b"00}", b"|"]


def ends(of: bytes, *, is_open: bool) -> Iterator[bytes]:
    yield from (of + b"|", of + b"|1", of + b"|}") if is_open else (of,)


@pytest.mark.parametrize(
    ("narrow", "output_is_open", "source_is_open"),
    [
        (narrowing.end_to_open, False, True),
        (narrowing.open_to_end, True, False),
        (narrowing.open_to_open, True, True),
        (narrowing.end_to_end, False, False),
    ],
)
def test_no_contributing_key_is_left_out(narrow: Narrowing, *, output_is_open: bool, source_is_open: bool) -> None:
    for first in BOUNDS:
        for last in (*BOUNDS, None):
            if last is not None and last <= first:
                continue
            low, high = narrow(first, last)
            for value in VALUES:
                outputs = ends(value, is_open=output_is_open)
                if any(first <= output and (last is None or output < last) for output in outputs):
                    for source in ends(value, is_open=source_is_open):
                        assert low <= source, (first, last, value)
                        assert high is None or source < high, (first, last, value)


def test_a_slot_that_ends_the_output_is_tight_on_one_value_and_behind_its_prefixes() -> None:
    assert narrowing.end_to_open(b"1", b"1\0") == (b"1|", b"1}")
    assert narrowing.end_to_open(b"12", b"13") == (b"12", b"13")
    assert narrowing.end_to_open(b"1", b"13") == (b"1", b"1}")
