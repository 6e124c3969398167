r"""Who wants the changes of which keys, as a step function from keys to sets of feeds.

    feed 1 wants [p|bob|, p|bob})   feed 2 wants [p|bob|500, p|c)

    bounds   b""   p|bob|   p|bob|500   p|bob}   p|c
    masks     0      1         1 + 2       2      0       one bit for each feed: a key has the mask of the bound at
                                                          or before it

One look-up finds all feeds that want a key, whatever the shapes of the ranges. The alternatives were measured or
counted: a dictionary from groups to feeds has to try the prefixes of each key and cannot release a part of a group, and
an interval tree takes 9 µs a look-up.

>>> wants = Subscriptions()
>>> wants.add(b"p|bob|", b"p|bob}", 1); wants.add(b"p|bob|500", b"p|c", 2)
>>> [wants.mask_of(key) for key in (b"p|bob|1", b"p|bob|7", b"p|bob}", b"p|c")]
[1, 3, 2, 0]
>>> wants.remove(b"p|bob|", b"p|bob|600", 1)
>>> [(one.first, one.last) for one in wants.ranges_of(1)]
[(b'p|bob|600', b'p|bob}')]
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from itertools import pairwise

from pequod_server.backing.store import KeyRange

#: Bounds in a chunk, at most twice as many. Tests make it small.
CHUNK_BOUNDS = 512


class Subscriptions:
    """Ranges of keys and the feeds that want them, each feed as one bit.

    Invariants:
        1. Bounds ascend, over all chunks; the first is the empty key.
        2. No chunk is empty or has more than twice `CHUNK_BOUNDS`; ``_heads`` are their first bounds.
        3. Neighbouring masks differ.
    """

    __slots__ = ("_bounds", "_heads", "_masks")

    def __init__(self) -> None:
        #: In chunks, so that an insertion moves a few hundred bounds; a chunk's masks are in a list of their own.
        self._heads: list[bytes] = [b""]
        self._bounds: list[list[bytes]] = [[b""]]
        self._masks: list[list[int]] = [[0]]

    def __len__(self) -> int:
        """Return the number of bounds."""
        return sum(map(len, self._bounds))

    def mask_of(self, key: bytes) -> int:
        """Return the bits of the feeds that want a key.

        Cost:
            O(log ranges): 0.4 µs with 100,000 ranges.
        """
        at = bisect_right(self._heads, key) - 1
        return self._masks[at][bisect_right(self._bounds[at], key) - 1]

    def masks_of(self, keys: Sequence[bytes]) -> list[int]:
        """Return `mask_of` for each key."""
        heads, bounds, masks = self._heads, self._bounds, self._masks
        if len(heads) == 1:
            (only,), (theirs,) = bounds, masks
            return [theirs[bisect_right(only, key) - 1] for key in keys]
        return [masks[at][bisect_right(bounds[at], key) - 1] for key in keys for at in (bisect_right(heads, key) - 1,)]

    def touches(self, first: bytes, last: bytes | None, bit: int) -> bool:
        """Return whether a feed wants a key of a range.

        Cost:
            O(log ranges), and the bounds within the range.
        """
        at = bisect_right(self._heads, first) - 1
        start = bisect_right(self._bounds[at], first) - 1
        while at < len(self._bounds):
            bounds, masks = self._bounds[at], self._masks[at]
            stop = len(bounds) if last is None else bisect_left(bounds, last, start)
            if any(mask & bit for mask in masks[start:stop]):
                return True
            if stop < len(bounds):
                return False
            at, start = at + 1, 0
        return False

    def parts(self, first: bytes, last: bytes | None, bits: int) -> Iterator[tuple[KeyRange, int]]:
        """Yield the parts of a range with those of some bits that their feeds have; neighbours differ.

        Requires:
            Nothing changes while the iterator is live.

        Cost:
            As `touches`.
        """
        at = bisect_right(self._heads, first) - 1
        start = bisect_right(self._bounds[at], first) - 1
        since, mask = first, self._masks[at][start] & bits
        while at < len(self._bounds):
            bounds, masks = self._bounds[at], self._masks[at]
            stop = len(bounds) if last is None else bisect_left(bounds, last, start)
            for number in range(start, stop):
                other = masks[number] & bits
                if other != mask:
                    yield KeyRange(since, bounds[number]), mask
                    since, mask = bounds[number], other
            if stop < len(bounds):
                break
            at, start = at + 1, 0
        if last is None or since < last:
            yield KeyRange(since, last), mask

    def covers(self, first: bytes, last: bytes | None, bits: int) -> bool:
        """Return whether feeds want all keys of a range; ``bits`` are those of all these feeds."""
        return all(mask == bits for _, mask in self.parts(first, last, bits))

    def add(self, first: bytes, last: bytes | None, bit: int) -> None:
        """Have a feed want a range.

        Cost:
            O(log ranges + CHUNK_BOUNDS), and the ranges that it overlaps.
        """
        self._update(first, last, -1, bit)

    def remove(self, first: bytes, last: bytes | None, bit: int) -> None:
        """Have a feed want no key of a range any more.

        Cost:
            As `add`.
        """
        self._update(first, last, ~bit, 0)

    def clear_in_steps(self, bits: int) -> Generator[list[KeyRange], None, None]:
        """Have feeds want nothing any more; between the steps everything else may change.

        Yields:
            What they have wanted, after each step of some hundred bounds.
        """
        first: bytes | None = b""
        while first is not None:
            at = bisect_right(self._heads, first)
            last = self._heads[at] if at < len(self._heads) else None
            wanted = [one for one, mask in self.parts(first, last, bits) if mask]
            self.remove(first, last, bits)
            first = last
            yield wanted

    def counts_in_steps(self) -> Generator[None, None, dict[int, int]]:
        """Count the ranges that each feed wants; between the steps everything else may change.

        Yields:
            None, after each step of some hundred bounds.

        Returns:
            The counts by the bits of feeds that want anything; ranges of a feed that touch are one.

        Cost:
            0.1 µs a bound, however many feeds there are.
        """
        beginnings: Counter[int] = Counter()
        before = 0
        first: bytes | None = b""
        while first is not None:
            at = bisect_right(self._heads, first) - 1
            masks = self._masks[at][bisect_left(self._bounds[at], first) :]
            beginnings.update([mask & ~other for other, mask in pairwise([before, *masks])])
            before = masks[-1] if masks else before
            first = self._heads[at + 1] if at + 1 < len(self._heads) else None
            yield
        counts: Counter[int] = Counter()
        for bits, count in beginnings.items():
            left = bits
            while left:
                counts[left & -left] += count
                left &= left - 1
        return dict(counts)

    def ranges_of(self, bits: int) -> Iterator[KeyRange]:
        """Yield the ranges that any of some feeds want, in order; those that touch are one.

        Requires:
            Nothing changes while the iterator is live.
        """
        first: bytes | None = None
        for bounds, masks in zip(self._bounds, self._masks, strict=True):
            for bound, mask in zip(bounds, masks, strict=True):
                if mask & bits and first is None:
                    first = bound
                elif not mask & bits and first is not None:
                    yield KeyRange(first, bound)
                    first = None
        if first is not None:
            yield KeyRange(first, None)

    def _update(self, first: bytes, last: bytes | None, keep: int, more: int) -> None:
        """Change the masks of a range: keep some bits, and set others."""
        if last is not None and last <= first:
            return
        self._cut(first)
        if last is not None:
            self._cut(last)
        begin = at = bisect_right(self._heads, first) - 1
        start = bisect_left(self._bounds[at], first)
        before = self._mask_before(at, start)
        while at < len(self._bounds):
            bounds, masks = self._bounds[at], self._masks[at]
            stop = len(bounds) if last is None else bisect_left(bounds, last, start)
            fresh_bounds: list[bytes] = []
            fresh_masks: list[int] = []
            for bound, old in zip(bounds[start:stop], masks[start:stop], strict=True):
                mask = old & keep | more
                if mask != before:
                    fresh_bounds.append(bound)
                    fresh_masks.append(mask)
                    before = mask
            is_end = stop < len(bounds)
            stop += is_end and masks[stop] == before
            bounds[start:stop], masks[start:stop] = fresh_bounds, fresh_masks
            if is_end:
                break
            at, start = at + 1, 0
        self._balance(begin, min(at, len(self._bounds) - 1))

    def _cut(self, key: bytes) -> None:
        """Have a key be a bound; its mask may be that of the one before for a moment."""
        at = bisect_right(self._heads, key) - 1
        bounds = self._bounds[at]
        where = bisect_right(bounds, key)
        if bounds[where - 1] != key:
            bounds.insert(where, key)
            self._masks[at].insert(where, self._masks[at][where - 1])

    def _mask_before(self, at: int, start: int) -> int:
        """Return the mask before a bound, and before the very first one a mask that no bound has."""
        if start > 0:
            return self._masks[at][start - 1]
        return self._masks[at - 1][-1] if at > 0 else -1

    def _balance(self, begin: int, end: int) -> None:
        """Remove the empty chunks, and halve the large ones, of some that were changed."""
        for at in range(end, begin - 1, -1):
            bounds, masks = self._bounds[at], self._masks[at]
            if not bounds:
                del self._bounds[at], self._masks[at], self._heads[at]
                continue
            self._heads[at] = bounds[0]
            if len(bounds) > 2 * CHUNK_BOUNDS:
                half = len(bounds) // 2
                self._bounds[at : at + 1] = [bounds[:half], bounds[half:]]
                self._masks[at : at + 1] = [masks[:half], masks[half:]]
                self._heads.insert(at + 1, bounds[half])

    def _check(self) -> None:
        bounds = [bound for chunk in self._bounds for bound in chunk]
        masks = [mask for chunk in self._masks for mask in chunk]
        assert bounds[0] == b"", "invariant 1"
        assert all(one < other for one, other in pairwise(bounds)), "invariant 1"
        assert all(0 < len(chunk) <= 2 * CHUNK_BOUNDS for chunk in self._bounds), "invariant 2"
        assert self._heads == [chunk[0] for chunk in self._bounds], "invariant 2"
        assert list(map(len, self._bounds)) == list(map(len, self._masks)), "invariant 2"
        assert all(one != other for one, other in pairwise(masks)), "invariant 3"
