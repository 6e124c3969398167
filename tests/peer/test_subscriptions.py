"""Subscriptions equal a plain set of pairs of key and feed, whatever is added and removed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pequod_server.backing import KeyRange
from pequod_server.homes import subscriptions
from pequod_server.homes.subscriptions import Subscriptions

KEYS = [bytes([letter]) for letter in b"abcdefgh"]
BOUND = st.sampled_from([b"", *KEYS])
STEPS = st.lists(st.tuples(st.booleans(), BOUND, BOUND | st.none(), st.sampled_from([1, 2, 1 << 70])), max_size=40)


def counted(wants: Subscriptions) -> dict[int, int]:
    steps = wants.counts_in_steps()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            counts: dict[int, int] = end.value
            return counts


@given(STEPS, st.sampled_from([1, 2, 512]))
def test_a_key_has_exactly_the_feeds_that_want_it(
    steps: list[tuple[bool, bytes, bytes | None, int]], chunk: int
) -> None:
    wants, model = Subscriptions(), dict.fromkeys([b"", *KEYS], 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subscriptions, "CHUNK_BOUNDS", chunk)
        for is_added, first, last, bit in steps:
            (wants.add if is_added else wants.remove)(first, last, bit)
            for key in model:
                if first <= key and (last is None or key < last):
                    model[key] = model[key] | bit if is_added else model[key] & ~bit
            wants._check()
        assert {key: wants.mask_of(key) for key in model} == model
        found = {key for key in model for one in wants.ranges_of(2) if one.holds(key)}
        assert found == {key for key, mask in model.items() if mask & 2}
        assert counted(wants) == {bit: count for bit in (1, 2, 1 << 70) if (count := len(list(wants.ranges_of(bit))))}
        for first, last in ((b"", None), *(step[1:3] for step in steps)):
            within = {key for key in model if first <= key and (last is None or key < last)}
            parts = [(one, mask) for one, mask in wants.parts(first, last, 3) if any(map(one.holds, within))]
            assert {key: mask for one, mask in parts for key in within if one.holds(key)} == {
                key: model[key] & 3 for key in within
            }
            if wants.covers(first, last, 3):
                assert all(model[key] & 3 == 3 for key in within)
        cleared = list[KeyRange]()
        for some in wants.clear_in_steps(1):
            cleared += some
            wants._check()
        assert {key for key in model if any(one.holds(key) for one in cleared)} == {
            key for key, mask in model.items() if mask & 1
        }
        assert {key: wants.mask_of(key) for key in model} == {key: mask & ~1 for key, mask in model.items()}


def test_a_feed_that_is_gone_leaves_nothing_behind() -> None:
    wants = Subscriptions()
    for number in range(5000):
        wants.add(b"p|%05d|" % number, b"p|%05d}" % number, 1)
    wants._check()
    assert len(list(wants.ranges_of(1))) == 5000
    for _ in wants.clear_in_steps(1):
        wants.add(b"q|", b"q}", 2)
    wants._check()
    assert len(wants) == 3


def test_what_no_step_changes_is_counted_once_whatever_else_changes_between_the_steps() -> None:
    wants = Subscriptions()
    for number in range(5000):
        wants.add(b"p|%05d|" % number, b"p|%05d}" % number, 1)
        wants.add(b"s|%05d|" % number, b"s|%05d}" % number, 2)
    steps = wants.counts_in_steps()
    counts: dict[int, int] = {}
    for number in range(5000):
        try:
            next(steps)
        except StopIteration as end:
            counts = end.value
            break
        # Chunks become empty, and others are halved.
        wants.remove(b"p|%05d|" % (400 * number), b"p|%05d}" % (400 * number + 399), 1)
        for more in range(200):
            wants.add(b"r|%05d|%05d" % (number, more), b"r|%05d|%05d|" % (number, more), 1)
    assert counts[2] == 5000
    wants._check()
