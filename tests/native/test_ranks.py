"""The first servers of a group in C++ are those in Python, by each of the processor's vectors."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pequod.cluster.rendezvous import owners
from tests.native.core import hot

assert hot.INTERFACE

IDS = st.text("abcdefgh-_.0123456789", min_size=1, max_size=63)
WEIGHTS = st.one_of(st.just(1.0), st.floats(1e-6, 1000.0))
GROUPS = st.one_of(st.binary(min_size=1, max_size=128), st.integers().map(lambda number: b"t|%d|" % number))


@pytest.fixture(params=[2, 4, 8], scope="module")
def lanes(request: pytest.FixtureRequest) -> Iterator[int]:
    if not hot.use_lanes(request.param):
        pytest.skip(f"this processor has no {request.param} lanes")
    yield request.param
    hot.use_lanes(0)


def packed(weights: dict[str, float]) -> tuple[list[str], bytes, bytes]:
    ids = sorted(weights)
    return ids, hot.keyed([name.encode() for name in ids]), array("d", (weights[name] for name in ids)).tobytes()


@given(weights=st.dictionaries(IDS, WEIGHTS, max_size=40), group=GROUPS, wanted=st.integers(1, 50))
def test_the_first_servers_are_those_of_the_reference(
    lanes: int, weights: dict[str, float], group: bytes, wanted: int
) -> None:
    ids, keyed, sizes = packed(weights)
    found = [ids[at] for at in hot.first_ranked(keyed, sizes, group, wanted)]
    assert found == owners(group, list(weights.items()))[:wanted], lanes


@pytest.mark.parametrize("weights", [[1.0], [1.0, 1.0, 5.0, 0.25]], ids=["alike", "weighed"])
def test_a_thousand_servers_are_ranked_as_by_the_reference(lanes: int, weights: list[float]) -> None:
    """Most scores are left out without being worked out."""
    known = {f"c{number:04}": weights[number % len(weights)] for number in range(1000)}
    ids, keyed, sizes = packed(known)
    for group in (b"t|%d|" % number for number in range(50)):
        found = [ids[at] for at in hot.first_ranked(keyed, sizes, group, 16)]
        assert found == owners(group, list(known.items()))[:16], lanes


def test_the_words_are_kept_of_what_the_hash_has_taken_of_its_key(lanes: int) -> None:
    """A group of one block is hashed as if its key had just been taken."""
    for size in (1, 8, 63):
        ids = [b"k" * size, b"other"]
        keyed, sizes = hot.keyed(ids), array("d", (1.0, 1.0)).tobytes()
        hashes = [blake2b(b"g" * 128, digest_size=8, key=name).digest() for name in ids]
        assert hot.first_ranked(keyed, sizes, b"g" * 128, 1) == [hashes.index(max(hashes))], lanes


@pytest.mark.parametrize(
    "arguments",
    [
        (hot.keyed([b"c1"]), b"", b"t|", 1),
        (b"", array("d", [1.0]).tobytes(), b"t|", 1),
        (hot.keyed([b"c1"]), array("d", [1.0]).tobytes(), b"", 1),
        (hot.keyed([b"c1"]), array("d", [1.0]).tobytes(), b"t" * 129, 1),
        (hot.keyed([b"c1"]), array("d", [1.0]).tobytes(), b"t|", 0),
    ],
    ids=["words of others", "no words", "no group", "long group", "none wanted"],
)
def test_what_cannot_be_ranked_is_refused(arguments: tuple[bytes, bytes, bytes, int]) -> None:
    with pytest.raises(ValueError, match="the words are of other servers, or the group is empty or long"):
        hot.first_ranked(*arguments)


def test_what_is_no_id_or_of_another_kind_is_refused() -> None:
    wrong: list[Any] = [[b""], [b"x" * 65], ["c1"]]
    for ids in wrong:
        with pytest.raises(ValueError, match="an id is bytes, from 1 to 64 of them"):
            hot.keyed(ids)
    with pytest.raises(TypeError, match="takes a list"):
        hot.keyed((b"c1",))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="first_ranked takes"):
        hot.first_ranked(b"", b"", "t|", 1)  # type: ignore[arg-type]
    with pytest.raises(OverflowError):
        hot.first_ranked(b"", b"", b"t|", -1)
