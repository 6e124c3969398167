"""Native deadlines and those in Python, driven side by side: they hold the same, and answer the same."""

from collections.abc import Iterator
from random import Random
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pequod.engine.base.deadlines import INSTANT_MAX, PythonDeadlines
from tests.native.core import hot

KEYS = st.binary(max_size=2)
INSTANTS = st.integers(0, 60)


def taken(deadlines: Any) -> Iterator[tuple[int | None, bytes]]:
    while (first_ms := deadlines.first_ms) is not None and (key := deadlines.take_due()) is not None:
        yield first_ms, key


class DeadlinesSideBySide(RuleBasedStateMachine):
    """Some steps set or take away hundreds, so that buckets come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.python = PythonDeadlines()
        self.native = hot.Deadlines()

    @rule(key=KEYS, at_ms=INSTANTS)
    def set(self, key: bytes, at_ms: int) -> None:
        assert self.native.set(key, at_ms) == self.python.set(key, at_ms)

    @rule(seed=st.integers(0, 1000), count=st.integers(0, 400))
    def set_many(self, seed: int, count: int) -> None:
        random = Random(seed)
        for _ in range(count):
            self.set(b"%d" % random.randrange(500), random.randrange(60))

    @rule(key=KEYS)
    def remove(self, key: bytes) -> None:
        assert self.native.remove(key) == self.python.remove(key)

    @rule(seed=st.integers(0, 1000), count=st.integers(0, 500))
    def remove_many(self, seed: int, count: int) -> None:
        for number in Random(seed).sample(range(500), count):
            self.remove(b"%d" % number)

    @rule(now_ms=INSTANTS)
    def tell(self, now_ms: int) -> None:
        assert self.native.tell(now_ms) == self.python.tell(now_ms) == self.native.is_due

    @rule()
    def take(self) -> None:
        native, python = list(taken(self.native)), list(taken(self.python))
        assert [at_ms for at_ms, _ in native] == [at_ms for at_ms, _ in python], "the earliest first"
        assert sorted(native) == sorted(python)

    @invariant()
    def agree(self) -> None:
        keys = [b"%d" % number for number in range(500)] + [bytes([first]) for first in range(256)]
        assert self.native.among(keys) == self.python.among(keys)
        assert self.native.due(keys) == self.python.due(keys)
        assert len(self.native) == len(self.python)
        assert self.native.first_ms == self.python.first_ms
        assert self.native.now_ms == self.python.now_ms
        assert self.native.is_due == self.python.is_due
        self.native._check()
        self.python._check()


TestDeadlinesSideBySide = DeadlinesSideBySide.TestCase


def test_a_deadline_takes_at_most_24_bytes_beside_its_key() -> None:
    deadlines = hot.Deadlines()
    assert deadlines.byte_count == 0
    keys = [b"session|%d" % number for number in range(100_000)]
    for number, key in enumerate(keys):
        deadlines.set(key, number)
        if number > 1_000:
            assert deadlines.byte_count <= 24 * (number + 1)
    deadlines._check()
    for key in keys[10:]:
        deadlines.remove(key)
    assert deadlines.byte_count < 10_000, "room is given back"


def test_instants_that_were_moved_leave_nothing_behind() -> None:
    deadlines = hot.Deadlines()
    for number in range(20_000):
        deadlines.set(b"%d" % (number % 100), number)
    assert deadlines.byte_count <= 24 * 100
    assert deadlines.first_ms == 19_900


@pytest.mark.parametrize("deadlines", [PythonDeadlines(), hot.Deadlines()], ids=["python", "native"])
def test_no_instant_is_negative_or_too_far(deadlines: PythonDeadlines) -> None:
    for at_ms in (-1, INSTANT_MAX + 1):
        with pytest.raises(ValueError, match="an instant is 0 to"):
            deadlines.set(b"k", at_ms)
        with pytest.raises(ValueError, match="an instant is 0 to"):
            deadlines.tell(at_ms)
    assert deadlines.set(b"k", INSTANT_MAX)
    assert not deadlines.tell(INSTANT_MAX - 1)
    assert deadlines.tell(INSTANT_MAX)


def test_what_is_no_key_is_refused() -> None:
    deadlines: Any = hot.Deadlines()
    for call in (deadlines.remove, deadlines.get, deadlines.due, deadlines.among):
        with pytest.raises(TypeError):
            call("text")
    with pytest.raises(TypeError):
        deadlines.set("text", 1)
    with pytest.raises(TypeError):
        deadlines.set(b"k")
