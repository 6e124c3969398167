"""Rows in key order: parallel lists of keys and values, cut into leaves when they grow.

    older leaves             last leaf
    [a b c] [d e f] | d  g | [g h i]      fences: keys >= fence are in a later leaf
                     fences   ^ `keys`, `values`: appends go here without a search (paper §4.2)

>>> rows = SortedRows()
>>> rows.put(b"b", b"2"), rows.put(b"a", b"1"), rows.put(b"b", b"3")
(None, None, b'2')
>>> rows.slice(b"a", b"z")
Rows(keys=[b'a', b'b'], values=[b'1', b'3'])
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from pequod.answers.rows import Rows
from pequod.native import core

#: A leaf longer than this is split when a row is inserted into its middle. An insert moves half of a leaf on
#: average: 4 KiB of pointers, 0.1 µs.
LEAF_MAX = 1024


#: ``new_tuple(Rows, (keys, values))`` is `Rows(keys, values)` in half the time (bench row: check, incremental).
new_tuple: Final = tuple.__new__


class SortedRows:
    """An ordered map from keys to values that is cheap while small and stays cheap when large.

    Invariants:
        1. Keys ascend strictly within a leaf and from leaf to leaf; each leaf has as many values as keys.
        2. There is one fence per older leaf, and ``older[i] < fences[i] <= the leaf after it``.
        3. No older leaf is empty.
    """

    __slots__ = ("_fences", "_older", "keys", "values")

    def __init__(self) -> None:
        #: The last leaf: every key here is above every key of the older leaves.
        self.keys: list[bytes] = []
        self.values: list[bytes] = []
        #: Both are lists as soon as there is an older leaf; small maps share the empty tuple.
        self._older: Sequence[tuple[list[bytes], list[bytes]]] = ()
        self._fences: Sequence[bytes] = ()

    def __len__(self) -> int:
        return len(self.keys) + sum(len(keys) for keys, _ in self._older)

    def __bool__(self) -> bool:
        return bool(self.keys or self._older)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of ``key``, or None if it is absent.

        Cost:
            O(log n).
        """
        keys, values = self._leaf(key)
        at = bisect_left(keys, key)
        return values[at] if at < len(keys) and keys[at] == key else None

    def put(self, key: bytes, value: bytes) -> bytes | None:
        """Set ``key`` to ``value`` and return the value that it had, None if it was absent.

        Cost:
            O(1) for a key above all others, else O(log n + LEAF_MAX).
        """
        keys, values = self.keys, self.values
        if keys and keys[-1] < key:
            keys.append(key)
            values.append(value)
            return None
        if self._fences and key < self._fences[-1]:
            keys, values = self._leaf(key)
        at = bisect_left(keys, key)
        if at < len(keys) and keys[at] == key:
            old = values[at]
            values[at] = value
            return old
        keys.insert(at, key)
        values.insert(at, value)
        if len(keys) > LEAF_MAX:
            self._split(key)
        return None

    def remove(self, key: bytes) -> bytes | None:
        """Remove ``key`` and return the value that it had, None if it was absent.

        Cost:
            O(log n + LEAF_MAX).
        """
        keys, values = self._leaf(key)
        at = bisect_left(keys, key)
        if at == len(keys) or keys[at] != key:
            return None
        if len(keys) - at > LEAF_MAX:
            # The last leaf grows without limit while keys are appended; removing many at its front must stay cheap.
            self._split(key)
            keys, values = self._leaf(key)
            at = bisect_left(keys, key)
        del keys[at]
        old = values.pop(at)
        if not keys:
            self._drop_empty()
        return old

    def take_first(self, count: int) -> SortedRows:
        """Take the first ``count`` rows out, or all if there are fewer, and return them as rows of their own.

        Cost:
            O(rows).
        """
        keys, values = (list(column) for column in self.everything())
        taken = type(self)()
        taken.merge(keys[:count], values[:count])
        self.__init__()  # type: ignore[misc]
        self.merge(keys[count:], values[count:])
        return taken

    def floor_key(self, key: bytes) -> bytes | None:
        """Return the greatest key that is not above ``key``, None if there is none.

        Cost:
            O(log n).
        """
        index = bisect_right(self._fences, key)
        keys = self._older[index][0] if index < len(self._older) else self.keys
        at = bisect_right(keys, key)
        if at:
            return keys[at - 1]
        return self._older[index - 1][0][-1] if index else None

    def replace(self, key: bytes, value: bytes) -> bytes | None:
        """Set ``key`` if it is there, and return the row's own key object; otherwise change nothing and return None.

        Cost:
            O(log n).
        """
        keys, values = self._leaf(key)
        at = bisect_left(keys, key)
        if at == len(keys) or keys[at] != key:
            return None
        values[at] = value
        return keys[at]

    def merge(self, keys: list[bytes], values: list[bytes]) -> None:
        """Merge rows with strictly ascending keys; the lists may be kept and must not be changed afterwards."""
        if keys and not self.insert(keys, values):
            for key, value in zip(keys, values, strict=True):
                self.put(key, value)

    def insert(self, keys: list[bytes], values: list[bytes]) -> bool:
        """Insert rows that all lie between two neighbouring rows, as one slice; return False if they do not.

        Requires:
            ``keys`` are not empty and ascend strictly; the lists may be kept and must not be changed afterwards.

        Cost:
            O(log n + LEAF_MAX + rows taken in): 20 ns or so for each of many.
        """
        if not self:
            self.keys, self.values = keys, values
            return True
        at = bisect_right(self._fences, keys[0])
        if at < len(self._fences) and keys[-1] >= self._fences[at]:
            return False
        leaf_keys, leaf_values = self._leaf(keys[0])
        start = bisect_left(leaf_keys, keys[0])
        is_append = start == len(leaf_keys) and at == len(self._fences)
        if start < len(leaf_keys) and leaf_keys[start] <= keys[-1]:
            return False
        leaf_keys[start:start], leaf_values[start:start] = keys, values
        if len(leaf_keys) > LEAF_MAX and not is_append:
            self._split(keys[0])
        return True

    def slice(self, first: bytes, last: bytes | None, limit: int | None = None, *, reverse: bool = False) -> Rows:
        """Return the rows of ``[first, last)``, at most ``limit`` of them from the end where reading starts.

        Cost:
            O(log n + rows returned).
        """
        if not self._fences or first >= self._fences[-1]:
            keys, values = self.keys, self.values
            start = bisect_left(keys, first)
            stop = len(keys) if last is None else bisect_left(keys, last, start)
            if reverse:
                begin = start if limit is None else max(start, stop - limit)
                return Rows(keys[begin:stop][::-1], values[begin:stop][::-1])
            if limit is not None and stop - start > limit:
                stop = start + limit
            return new_tuple(Rows, (keys[start:stop], values[start:stop]))
        return self._slice_leaves(first, last, limit, reverse=reverse)

    def since(self, prefix: bytes, first: bytes, limit: int | None) -> Rows:
        """Return the rows from ``first`` on with a prefix before their keys; fast for few rows, as in a check.

        Args:
            first: The first key, with the prefix.

        Cost:
            O(rows returned) up to 8 of them, else as `slice`.
        """
        keys = self.keys
        first = first[len(prefix) :]
        if not keys or (self._fences and first < self._fences[-1]):
            keys, values = self.slice(first, None, limit)
            return Rows([prefix + key for key in keys], values)
        if keys[-1] < first:
            return new_tuple(Rows, ([], []))
        near = len(keys) - 8
        is_few = near <= 0 or keys[near] < first
        start = bisect_left(keys, first, near if near > 0 and is_few else 0)
        stop = len(keys) if limit is None else start + limit
        if not is_few:
            return new_tuple(Rows, ([prefix + key for key in keys[start:stop]], self.values[start:stop]))
        found: list[bytes] = []
        for key in keys[start:stop]:
            # For so few rows, the call of a comprehension would be a tenth of a check.
            found.append(prefix + key)  # noqa: PERF401
        return new_tuple(Rows, (found, self.values[start:stop]))

    def everything(self) -> Rows:
        """Return all rows; the caller only reads them, and only until the next change."""
        return self.slice(b"", None) if self._fences else new_tuple(Rows, (self.keys, self.values))

    def count(self, first: bytes, last: bytes | None) -> int:
        """Return how many keys ``[first, last)`` holds.

        Cost:
            O(log n + leaves in the range).
        """
        total = 0
        for keys, _ in self._leaves_of(first, last):
            stop = len(keys) if last is None else bisect_left(keys, last)
            total += max(0, stop - bisect_left(keys, first))
        return total

    def sample(self, first: bytes, last: bytes | None, step: int) -> Iterator[tuple[bytes, int]]:
        """Yield about every ``step``-th key of ``[first, last)``, each with the number of rows that it stands for.

        Ensures:
            The numbers add up to the count of the range.

        Cost:
            O(log n + leaves in the range + keys yielded).
        """
        for keys, _ in self._leaves_of(first, last):
            stop = len(keys) if last is None else bisect_left(keys, last)
            for at in range(bisect_left(keys, first), stop, step):
                yield keys[at], min(step, stop - at)

    def leaves(self) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Yield the leaves in key order; they must not be changed."""
        yield from self._older
        yield self.keys, self.values

    def _leaf(self, key: bytes) -> tuple[list[bytes], list[bytes]]:
        at = bisect_right(self._fences, key)
        return self._older[at] if at < len(self._older) else (self.keys, self.values)

    def _leaves_of(self, first: bytes, last: bytes | None) -> Sequence[tuple[list[bytes], list[bytes]]]:
        start = bisect_right(self._fences, first)
        stop = len(self._fences) if last is None else bisect_left(self._fences, last)
        found = list(self._older[start : stop + 1])
        if stop >= len(self._older):
            found.append((self.keys, self.values))
        return found

    def _slice_leaves(self, first: bytes, last: bytes | None, limit: int | None, *, reverse: bool) -> Rows:
        rows = Rows([], [])
        leaves = self._leaves_of(first, last)
        for keys, values in reversed(leaves) if reverse else leaves:
            start = bisect_left(keys, first)
            stop = len(keys) if last is None else bisect_left(keys, last)
            piece_keys, piece_values = keys[start:stop], values[start:stop]
            if reverse:
                piece_keys.reverse()
                piece_values.reverse()
            rows.keys.extend(piece_keys)
            rows.values.extend(piece_values)
            if limit is not None and len(rows.keys) >= limit:
                del rows.keys[limit:], rows.values[limit:]
                break
        return rows

    def _split(self, key: bytes) -> None:
        at = bisect_right(self._fences, key)
        keys, values = self._leaf(key)
        half = LEAF_MAX // 2
        cuts = [*range(0, len(keys) - half, half), len(keys)]
        pieces = [(keys[a:b], values[a:b]) for a, b in pairwise(cuts)]
        fences = [piece_keys[0] for piece_keys, _ in pieces[1:]]
        self._fences = [*self._fences[:at], *fences, *self._fences[at:]]
        if at < len(self._older):
            self._older = [*self._older[:at], *pieces, *self._older[at + 1 :]]
        else:
            self._older = [*self._older, *pieces[:-1]]
            self.keys, self.values = pieces[-1]

    def _drop_empty(self) -> None:
        for at, (keys, _) in enumerate(self._older):
            if not keys:
                self._older = [*self._older[:at], *self._older[at + 1 :]]
                self._fences = [*self._fences[:at], *self._fences[at + 1 :]]
                return
        if self._older:
            self.keys, self.values = self._older[-1]
            self._older, self._fences = self._older[:-1], self._fences[:-1]

    def _check(self) -> None:
        leaves = list(self.leaves())
        everything = [key for keys, _ in leaves for key in keys]
        assert all(a < b for a, b in pairwise(everything)), "invariant 1"
        assert all(len(keys) == len(values) for keys, values in leaves), "invariant 1"
        assert len(self._fences) == len(self._older), "invariant 2"
        for fence, (older, _), (newer, _) in zip(self._fences, leaves, leaves[1:], strict=False):
            assert older, "invariant 3"
            assert older[-1] < fence, "invariant 2"
            assert not newer or fence <= newer[0], "invariant 2"


def set_leaf_max(count: int) -> int:
    """Split leaves that are longer from now on, as tests do early; return what the length was."""
    global LEAF_MAX
    before, LEAF_MAX = LEAF_MAX, count
    return before


#: The class in Python, whether or not rows are native ones.
PythonRows: Final = SortedRows

if not TYPE_CHECKING and core is not None:
    SortedRows, set_leaf_max = core.SortedRows, core.set_leaf_max


def merge_layers(layers: list[Rows], limit: int | None = None, *, reverse: bool = False) -> Rows:
    """Merge rows of one range into one order; if layers have the same key, the earlier layer's row stays.

    Cost:
        O(rows) if the layers do not interleave, else O(rows * log rows).
    """
    filled = [layer for layer in layers if layer.keys]
    if not filled:
        return Rows([], [])
    if len(filled) == 1:
        rows = filled[0]
    else:
        ordered = sorted(filled, key=_first_key, reverse=reverse)
        keys, values = [*ordered[0].keys], [*ordered[0].values]
        for layer in ordered[1:]:
            if keys[-1] <= layer.keys[0] if reverse else keys[-1] >= layer.keys[0]:
                keys, values = _interleave(filled, reverse=reverse)
                break
            keys += layer.keys
            values += layer.values
        rows = Rows(keys, values)
    return rows if limit is None or len(rows.keys) <= limit else Rows(rows.keys[:limit], rows.values[:limit])


def _interleave(layers: list[Rows], *, reverse: bool) -> tuple[list[bytes], list[bytes]]:
    merged: dict[bytes, bytes] = {}
    for layer in reversed(layers):
        merged.update(zip(layer.keys, layer.values, strict=True))
    keys = sorted(merged, reverse=reverse)
    return keys, [merged[key] for key in keys]


def _first_key(rows: Rows) -> bytes:
    return rows.keys[0]
