"""Which keys belong to which database."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pequod_server.backing import KeyRange
from pequod_server.database.assignment import Assignment, overlap, tables_of

KEYS = [bytes([first, second]) for first in b"abc" for second in b"abc"] + [b"a", b"b", b"c"]
BOUNDS = st.sampled_from([b"", *sorted(KEYS), b"d"])
ENDS = st.one_of(st.none(), BOUNDS)


@st.composite
def assignments(draw: st.DrawFn) -> Assignment[str]:
    cuts = sorted(draw(st.sets(BOUNDS, min_size=2)))
    ranges = [
        (KeyRange(first, last), owner)
        for first, last in zip(cuts, [*cuts[1:], None], strict=True)
        if (owner := draw(st.sampled_from(["A", "B", None]))) is not None
    ]
    return Assignment(ranges)


@given(assignments(), BOUNDS, ENDS)
def test_pieces_are_the_range_in_order_and_each_key_has_the_owner_of_its_piece(
    owned: Assignment[str], first: bytes, last: bytes | None
) -> None:
    pieces = list(owned.split(first, last))
    wanted = [key for key in sorted(KEYS) if KeyRange(first, last).holds(key)]
    assert [key for piece, _ in pieces for key in sorted(KEYS) if piece.holds(key)] == wanted
    assert all(owned.owner_of(key) == owner for piece, owner in pieces for key in KEYS if piece.holds(key))
    assert all(piece.last is None or piece.first < piece.last for piece, _ in pieces)


@given(assignments(), assignments())
def test_changes_are_exactly_the_keys_with_another_owner(before: Assignment[str], after: Assignment[str]) -> None:
    changed = {key: (old, new) for piece, old, new in before.changes(after) for key in KEYS if piece.holds(key)}
    moves = {key: (before.owner_of(key), after.owner_of(key)) for key in KEYS}
    assert changed == {key: move for key, move in moves.items() if move[0] != move[1]}


@given(assignments(), BOUNDS, ENDS)
def test_an_overlap_is_what_both_have(owned: Assignment[str], first: bytes, last: bytes | None) -> None:
    parts = overlap([KeyRange(first, last)], owned.ranges_of("A"))
    assert {key for part in parts for key in KEYS if part.holds(key)} == {
        key for key in KEYS if KeyRange(first, last).holds(key) and owned.owner_of(key) == "A"
    }


@pytest.mark.parametrize(
    "ranges",
    [
        [KeyRange(b"a", b"a")],
        [KeyRange(b"b", b"a")],
        [KeyRange(b"a", b"c"), KeyRange(b"b", b"d")],
        [KeyRange(b"a", None), KeyRange(b"b", b"d")],
    ],
)
def test_ranges_that_are_empty_or_overlap_are_refused(ranges: list[KeyRange]) -> None:
    with pytest.raises(ValueError, match="the range from"):
        Assignment((one, "A") for one in ranges)


def test_a_range_is_within_one_table() -> None:
    assert tables_of([KeyRange(b"p|", b"p|m"), KeyRange(b"p|m", b"p}"), KeyRange(b"s|", b"s}")]) == [b"p", b"s"]
    for one in (KeyRange(b"p|", b"q"), KeyRange(b"p|", None), KeyRange(b"p", b"p}")):
        with pytest.raises(ValueError, match="is not within one table"):
            tables_of([one])
