"""Native rows and those in Python, driven side by side: after each step they hold the same, and answer the same."""

import sys
from collections.abc import Callable
from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pequod.engine.base import rows as pure
from tests.native.core import hot

KEYS = st.text(alphabet="ab|~", max_size=4).map(str.encode)
VALUES = st.binary(max_size=3)
RUNS = st.dictionaries(KEYS, VALUES, max_size=12)
LASTS = st.none() | KEYS
LIMITS = st.none() | st.integers(0, 5)


class RowsSideBySide(RuleBasedStateMachine):
    """Leaves are short, so that they are split and emptied early."""

    def __init__(self) -> None:
        super().__init__()
        self._leaf_max = pure.LEAF_MAX, hot.set_leaf_max(4)
        pure.LEAF_MAX = 4
        self.python = pure.PythonRows()
        self.native = hot.SortedRows()

    def teardown(self) -> None:
        pure.LEAF_MAX = self._leaf_max[0]
        hot.set_leaf_max(self._leaf_max[1])

    @rule(key=KEYS, value=VALUES)
    def put(self, key: bytes, value: bytes) -> None:
        assert self.native.put(key, value) == self.python.put(key, value)

    @rule(key=KEYS)
    def remove(self, key: bytes) -> None:
        assert self.native.remove(key) == self.python.remove(key)

    @rule(first=KEYS, last=KEYS)
    def remove_range(self, first: bytes, last: bytes) -> None:
        for key in self.python.slice(first, last).keys:
            assert self.native.remove(key) == self.python.remove(key)

    @rule(count=st.integers(1, 12))
    def append_many(self, count: int) -> None:
        for number in range(count):
            key = b"~~~~~%03d" % (len(self.python) + number)
            assert self.native.put(key, key) == self.python.put(key, key)

    @rule(count=st.integers(0, 12))
    def take_first(self, count: int) -> None:
        taken = self.native.take_first(count)
        taken._check()
        assert taken.everything() == self.python.take_first(count).everything()

    @rule(key=KEYS, value=VALUES)
    def replace(self, key: bytes, value: bytes) -> None:
        assert self.native.replace(key, value) == self.python.replace(key, value)

    @rule(run=RUNS)
    def merge(self, run: dict[bytes, bytes]) -> None:
        keys = sorted(run)
        self.native.merge([*keys], [run[key] for key in keys])
        self.python.merge([*keys], [run[key] for key in keys])

    @rule(run=RUNS.filter(bool))
    def insert(self, run: dict[bytes, bytes]) -> None:
        keys = sorted(run)
        is_free = not self.python.count(keys[0], keys[-1] + b"\0")
        for rows in (self.native, self.python):
            # Where a leaf ends is each one's own, so that one may refuse what the other takes in.
            if rows.insert([*keys], [run[key] for key in keys]):
                assert is_free
            else:
                rows.merge([*keys], [run[key] for key in keys])

    @rule(first=KEYS, last=LASTS, limit=LIMITS, reverse=st.booleans(), step=st.integers(1, 3), prefix=KEYS)
    def read(
        self, first: bytes, last: bytes | None, limit: int | None, reverse: bool, step: int, prefix: bytes
    ) -> None:
        native, python = self.native, self.python
        assert native.slice(first, last, limit, reverse=reverse) == python.slice(first, last, limit, reverse=reverse)
        assert native.since(prefix, prefix + first, limit) == python.since(prefix, prefix + first, limit)
        assert native.count(first, last) == python.count(first, last)
        sampled = list(native.sample(first, last, step))
        assert sum(count for _, count in sampled) == python.count(first, last)
        assert all(python.get(key) is not None and count <= step for key, count in sampled)
        assert native.get(first) == python.get(first)
        assert native.floor_key(first) == python.floor_key(first)
        assert python.floor_key(first) == max(python.slice(b"", first + b"\0").keys, default=None)

    @invariant()
    def hold_the_same(self) -> None:
        self.native._check()
        self.python._check()
        assert self.native.everything() == self.python.everything()
        leaves = list(self.native.leaves())
        assert [key for keys, _ in leaves for key in keys] == self.python.everything().keys
        assert (len(self.native), bool(self.native)) == (len(self.python), bool(self.python))


TestRowsSideBySide = RowsSideBySide.TestCase


@pytest.mark.parametrize("kind", [pure.PythonRows, hot.SortedRows])
def test_a_run_that_ends_at_a_row_that_is_there_is_not_inserted(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    leaf_max = hot.set_leaf_max(4)
    monkeypatch.setattr(pure, "LEAF_MAX", 4)
    rows, keys = kind(), [b"%02d" % number for number in range(20)]
    for key in reversed(keys):
        rows.put(key, key)
    for key, following in pairwise(keys):
        assert not rows.insert([key + b"x", following], [b"new", b"new"])
    assert rows.everything() == (keys, keys)
    hot.set_leaf_max(leaf_max)


def test_what_is_no_bytes_is_refused_and_changes_nothing() -> None:
    rows = hot.SortedRows()
    rows.put(b"a", b"1")
    calls: list[Callable[[], object]] = [
        lambda: rows.put("b", b""),  # type: ignore[arg-type]
        lambda: rows.put(b"b", None),  # type: ignore[arg-type]
        lambda: rows.put(b"b"),  # type: ignore[call-arg]
        lambda: rows.get("a"),  # type: ignore[arg-type]
        lambda: rows.merge([b"b", "c"], [b"", b""]),  # type: ignore[list-item]
        lambda: rows.merge([b"b", b"c"], [3, b""]),  # type: ignore[list-item]
        lambda: rows.merge([b"b"], []),
        lambda: rows.insert((b"b",), (b"",)),  # type: ignore[arg-type]
        lambda: rows.slice(b"", 3),  # type: ignore[arg-type]
        lambda: rows.slice(b"", None, upwards=True),  # type: ignore[call-arg]
        lambda: rows.replace(b"a", 3),  # type: ignore[arg-type]
        lambda: rows.floor_key("a"),  # type: ignore[arg-type]
    ]
    for call in calls:
        with pytest.raises(TypeError):
            call()
    with pytest.raises(ValueError, match="limit"):
        rows.slice(b"", None, -1)
    assert rows.everything() == ([b"a"], [b"1"])


def test_rows_let_go_of_what_they_held() -> None:
    class Key(bytes):
        """Not exact bytes: rows keep a copy."""

    key, value = Key(b"key"), b"%d" % 12345
    before = sys.getrefcount(value)
    rows = hot.SortedRows()
    for _ in range(3):
        rows.put(key, value)
        rows.replace(b"key", value)
        rows.slice(b"", None)
        rows.since(b"t|", b"t|", None)
        rows.remove(b"key")
        rows.merge([b"a", b"b"], [value, value])
    assert sys.getrefcount(value) == before + 2
    assert type(next(rows.leaves())[0][0]) is bytes
    del rows
    assert sys.getrefcount(value) == before
