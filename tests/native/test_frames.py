"""Native frames beside a dictionary of sets: who waits where, and what the ledger is told."""

import gc
import weakref

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.native.core import hot

FRAME_BYTES, HOLD_BYTES = 1000, 1
KEYS = st.integers(0, 40).map(lambda number: b"p|%d|" % number)
CONTEXTS = st.integers(0, 5)


class Context(hot.Hot):
    """A context that one can look at weakly."""


class FramesBesideSets(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.frames = hot.Frames(FRAME_BYTES, HOLD_BYTES, True)
        self.contexts = [Context() for _ in range(6)]
        self.expected: dict[bytes, set[int]] = {}
        self.ledger_bytes = 0

    def leave(self, context: int, keys: list[bytes]) -> None:
        for key in keys:
            self.expected[key].discard(context)
            if not self.expected[key]:
                del self.expected[key]

    def held_by(self, context: int) -> list[bytes]:
        return [key for key, waiting in self.expected.items() if context in waiting]

    @rule(keys=st.lists(KEYS, max_size=50), context=CONTEXTS)
    def add_all(self, keys: list[bytes], context: int) -> None:
        self.ledger_bytes += self.frames.add_all(keys, self.contexts[context])
        for key in keys:
            self.expected.setdefault(key, set()).add(context)

    @rule(key=KEYS, context=CONTEXTS)
    def remove(self, key: bytes, context: int) -> None:
        self.ledger_bytes += self.frames.remove(key, self.contexts[context])
        if context in self.expected.get(key, ()):
            self.leave(context, [key])

    @rule(context=CONTEXTS)
    def let_go(self, context: int) -> None:
        self.ledger_bytes += self.contexts[context].let_go()
        self.leave(context, self.held_by(context))

    @rule(context=CONTEXTS, other=CONTEXTS)
    def hand_over(self, context: int, other: int) -> None:
        if context == other:
            return
        self.ledger_bytes += self.contexts[context].hand_over(self.contexts[other])
        keys = self.held_by(context)
        for key in keys:
            self.expected[key].add(other)
        self.leave(context, keys)

    @rule(context=CONTEXTS)
    def end(self, context: int) -> None:
        """A context that ends without a word, as in an engine that is dropped, is not waited for any more."""
        before = len(self.frames), self.contexts[context].held_count
        self.contexts[context] = Context()
        self.leave(context, self.held_by(context))
        self.ledger_bytes -= FRAME_BYTES * (before[0] - len(self.frames)) + HOLD_BYTES * before[1]

    @invariant()
    def hold_the_same(self) -> None:
        numbers: dict[hot.Hot, int] = {context: number for number, context in enumerate(self.contexts)}
        waiting = {key: self.frames.get(key) for key in self.expected}
        assert len(self.frames) == len(self.frames.values()) == len(self.expected)
        for key, frame in waiting.items():
            assert frame is not None
            frame._check()
            assert len(frame) == len(self.expected[key])
            assert {numbers[context] for context in frame.contexts} == self.expected[key]
        for number, context in enumerate(self.contexts):
            assert context.held_count == len(self.held_by(number)) == len(context.frames_held())
        for first, last in ((b"", b"q"), (b"p|1", b"p|2"), (b"p|3|", b"p|3|\0"), (b"p|2", b"p|1")):
            expected = sorted(key for key in self.expected if first <= key < last)
            assert [frame.key for frame in self.frames.over(first, last)] == expected
        hold_count = sum(map(len, self.expected.values()))
        assert self.ledger_bytes == FRAME_BYTES * len(self.expected) + HOLD_BYTES * hold_count


TestFramesBesideSets = FramesBesideSets.TestCase


def test_contexts_and_frames_may_end_in_any_order() -> None:
    frames, context = hot.Frames(1, 1), Context()
    frames.add_all([b"a", b"b"], context)
    (waiting, _) = context.frames_held()
    del frames
    waiting._check()
    assert list(waiting.contexts) == [context]
    gone = weakref.ref(context)
    del context
    gc.collect()
    assert gone() is None
    assert len(waiting) == 0


def test_a_context_in_a_cycle_is_collected_with_what_it_holds() -> None:
    frames, context = hot.Frames(1, 1), Context()
    frames.add_all([b"a"], context)
    context.counters = context  # type: ignore[assignment]
    gone = weakref.ref(context)
    del context
    gc.collect()
    assert gone() is None
    assert len(frames) == 0


def test_a_context_is_not_handed_over_to_itself() -> None:
    context = hot.Hot()
    with pytest.raises(TypeError, match="another context"):
        context.hand_over(context)
