"""Rights on key ranges: what is inside, to the byte."""

import doctest
from itertools import pairwise

import pequod_server.access.grants
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pequod_server.access.grants import KeyRanges, Right, Role

import pequod.addresses
from pequod.addresses import is_local
from pequod.errors import PermissionDeniedError
from pequod.language.ranges import prefix_end

_BYTES = st.binary(max_size=3).map(lambda key: bytes(b"\x00t|}\xff"[byte % 5] for byte in key))


@pytest.mark.parametrize("module", [pequod_server.access.grants, pequod.addresses], ids=lambda module: module.__name__)
def test_examples_of_the_docstrings(module: object) -> None:
    failed, tried = doctest.testmod(module)  # type: ignore[arg-type]
    assert (failed, tried > 0) == (0, True)


@given(st.lists(_BYTES, max_size=4), _BYTES, st.none() | _BYTES, _BYTES)
def test_a_range_is_covered_if_and_only_if_each_key_of_it_has_a_prefix(
    prefixes: list[bytes], first: bytes, last: bytes | None, any_key: bytes
) -> None:
    ranges = KeyRanges(prefixes)
    ranges._check()

    def is_asked(key: bytes) -> bool:
        return first <= key and (last is None or key < last)

    def is_granted(key: bytes) -> bool:
        return key.startswith(tuple(prefixes))

    # If anything of a range is not granted, then its first key or a key where some prefix ends.
    ends = {end for prefix in prefixes if (end := prefix_end(prefix)) is not None}
    assert ranges.covers(first, last) == all(is_granted(key) for key in {first, *ends} if is_asked(key))
    assert ranges.holds(any_key) == is_granted(any_key)
    assert is_granted(any_key) or not (is_asked(any_key) and ranges.covers(first, last))


@pytest.mark.parametrize(
    ("first", "last"),
    [
        (b"t|", b"t}\0"),
        (b"t{\xff\xff", b"t}"),
        (b"t|ann|", None),
        (b"t|", b"u"),
        (b"", b"t}"),
        (b"", None),
        (b"t}", b"t}\0"),
        (b"t|", b"v|b"),
    ],
)
def test_ranges_that_poke_out_are_refused(first: bytes, last: bytes | None) -> None:
    role = Role("web", {Right.READ: [b"t|", b"v|"]})
    with pytest.raises(PermissionDeniedError) as denied:
        role.need(Right.READ, first, last)
    assert (denied.value.right, denied.value.first, denied.value.last) == ("read", first, last)


def test_ranges_inside_neighbouring_and_empty_ones_are_granted() -> None:
    role = Role("web", {Right.READ: [b"t|", b"t}", b"v|"]})
    for first, last in [(b"t|", b"t}"), (b"t|a", b"t~"), (b"v|", b"v|\0"), (b"x", b"x"), (b"x", b"a"), (b"x", b"")]:
        role.need(Right.READ, first, last)
    Role("all", {Right.READ: [b""]}).need(Right.READ, b"", None)
    Role("high", {Right.READ: [b"\xff"]}).need(Right.READ, b"\xff\xff", None)


def test_a_right_is_not_another() -> None:
    for held in Right:
        role = Role("one", {held: [b"t|"]})
        for asked in Right:
            assert role.may(asked, b"t|", b"t}") == (asked is held)
    assert not Role("most", {Right.READ: [b""], Right.WRITE: [b"t|", b"u|"]}).is_unlimited


def test_long_bounds_are_cut_in_errors() -> None:
    error = PermissionDeniedError("web", "read", b"k" * 1_000_000, b"l" * 1_000_000)
    assert len(str(error)) < 1000
    assert (error.first, error.last) == (b"k" * 256, b"l" * 256)


@pytest.mark.parametrize(
    ("target", "local"),
    [
        ("127.0.0.1:1", True),
        ("127.9.8.7:1", True),
        ("localhost:1", True),
        ("[::1]:1", True),
        ("unix:/tmp/socket", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        (":1", False),
        ("10.0.0.1:1", False),
        ("localhost.example.org:1", False),
        ("127.0.0.1.example.org:1", False),
        ("dns:///127.0.0.1:1", False),
    ],
)
def test_what_is_local(target: str, local: bool) -> None:
    assert is_local(target) == local


def test_ranges_are_merged() -> None:
    ranges = KeyRanges([b"c", b"a", b"ab", b"b", b"e", b"\xff"])
    ranges._check()
    bounds = list(zip(ranges._starts, ranges._ends, strict=True))
    assert bounds == [(b"a", b"d"), (b"e", b"f"), (b"\xff", None)]
    assert all(end is not None and end < start for (_, end), (start, _) in pairwise(bounds))
