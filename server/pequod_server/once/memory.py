"""The ids of the latest writes, with what these gave: a write that comes again gets the same.

    write with an id -> known? -> its outcome, and nothing changes
                               -> the engine -> remember, in the same turn of the event loop

What one turn has done of a batch is one *part*: the moment, the count, and the outcomes one behind the other. It is
known by the request id of its first command, in memory and on disk.

    batch id b, commands 0 to 255   first turn: 0 to 99   ->  part b0: 100 outcomes     counts {b: 2}
                                    then: 100 to 255      ->  part b100: 156 outcomes
    a single write, id c7                                 ->  part c7: 1 outcome        counts {c: 1}

So the ids of a batch cost one look-up and one part, as long as none of them is known. Parts are kept for some time, and
within some bytes: if there are more, the oldest are let go early. What is not on disk yet is in ``unsaved``, for the
disk to take with the changes of the writes.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from struct import Struct
from typing import Final, NamedTuple, TypeVar

from pequod_server.once.outcomes import BATCH_ID_BYTES, ID_BYTES, Once, in_order, with_head
from pequod_server.once.parts import PAGE_BYTES, IdPage, IdPart

T = TypeVar("T")

#: The moment of a part, in milliseconds of the wall clock, and how many outcomes it has.
_HEAD: Final = Struct(">QI")
#: Where the number of the first command stands in a part, and its outcome.
_FIRST_AT: Final = _HEAD.size
_OUTCOME_AT: Final = _FIRST_AT + 8
_NUMBER_BYTES: Final = ID_BYTES - BATCH_ID_BYTES
#: Where the number stands in `IdPage.next`; before it is what names this life of the server.
_LIFE_BYTES: Final = 8
#: The memory of a part beside its bytes: its id and that of its batch, and its place in two tables, or in three.
_PART_BYTES: Final = 300
_SHARED_PART_BYTES: Final = 400


class IdFigures(NamedTuple):
    """Figures of the ids that a server remembers."""

    id_count: int
    size_bytes: int
    #: Writes that came again, and ids that were let go before their time, since the start.
    repeated: int
    let_go_early: int


class _Read(NamedTuple):
    """The outcomes of the batch that was asked for last, but for those of parts with one outcome."""

    batch_id: bytes
    by_end: dict[bytes, bytes]


class RequestIds:
    """The ids of one server.

    Args:
        keep_s: How long an id is kept.
        bytes_max: The memory of all of them.
        clock: Returns the time of the wall clock in seconds: ids outlive a start of the server.

    Invariants:
        1. ``_parts`` has each part by the request id of its first command, in the order in which they came here.
        2. ``_counts`` has how many parts there are of each batch, and ``_shared`` those of several commands, in order.
        3. ``_id_count`` is the sum of their counts, and ``_size_bytes`` is what they take, at most ``bytes_max``.
    """

    __slots__ = (
        *("_bytes_max", "_clock", "_counts", "_due_ms", "_id_count", "_is_saved", "_keep_ms", "_let_go_early"),
        *("_kept_count", "_life", "_parts", "_read", "_repeated", "_shared", "_size_bytes", "unsaved"),
    )

    def __init__(self, keep_s: float = 600.0, bytes_max: int = 1 << 24, clock: Callable[[], float] = time.time) -> None:
        self._keep_ms = int(keep_s * 1000)
        self._bytes_max = bytes_max
        self._clock = clock
        self._parts: dict[bytes, bytes] = {}
        self._counts: dict[bytes, int] = {}
        self._shared: dict[bytes, list[bytes]] = {}
        self._read: _Read | None = None
        self._id_count = self._size_bytes = self._repeated = self._let_go_early = 0
        #: How many parts ever came, and what names this count: another life of the server has another one.
        self._kept_count = 0
        self._life = secrets.token_bytes(_LIFE_BYTES)
        #: The first part is not due before this moment.
        self._due_ms = 0
        #: Whether a disk keeps them.
        self._is_saved = False
        #: The parts that it does not have yet, None where one was let go.
        self.unsaved: dict[bytes, bytes | None] = {}

    @property
    def figures(self) -> IdFigures:
        """The present figures."""
        return IdFigures(self._id_count, self._size_bytes, self._repeated, self._let_go_early)

    def once(self, write: Once[T], do: Callable[[], T]) -> T:
        """Return what a write gave when it came before; do it, if it did not.

        Requires:
            ``do`` runs in one turn of the event loop.

        Raises:
            BadRequestError: It has the id of another write.
        """
        kept = self.known(write.request_id) if write.request_id else None
        if kept is not None:
            return write.outcome(kept)
        outcome = do()
        if write.request_id:
            self.remember(write.request_id, write.kept(outcome))
        return outcome

    def is_new(self, batch_id: bytes) -> bool:
        """Return whether no write with an id of this batch is remembered."""
        return batch_id not in self._counts

    def known(self, request_id: bytes) -> bytes | None:
        """Return the outcome of a write that came before with this id; None if it did not.

        Cost:
            0.2 µs; 0.3 µs for each id of its batch, once for those that are asked for one after another.
        """
        part = self._parts.get(request_id)
        if part is not None:
            size = int.from_bytes(part[_OUTCOME_AT - 4 : _OUTCOME_AT])
            outcome: bytes | None = part[_OUTCOME_AT : _OUTCOME_AT + size]
        else:
            outcome = self._shared_of(request_id[:BATCH_ID_BYTES]).get(request_id[BATCH_ID_BYTES:])
        self._repeated += outcome is not None
        return outcome

    def are_new(self, batch_id: bytes, request_ids: Iterable[bytes]) -> bool:
        """Return whether no write with one of some ids of a batch is remembered.

        Cost:
            0.1 µs for each; and what the first `known` costs, if others of the batch are remembered.
        """
        if batch_id not in self._counts:
            return True
        parts, by_end = self._parts, self._shared_of(batch_id)
        return not any(one in parts or one[BATCH_ID_BYTES:] in by_end for one in request_ids)

    def _shared_of(self, batch_id: bytes) -> Mapping[bytes, bytes]:
        """Return the outcomes of the parts of several commands of a batch, by the ends of their request ids."""
        shared = self._shared.get(batch_id)
        if shared is None:
            return {}
        if self._read is None or self._read.batch_id != batch_id:
            self._read = _Read(batch_id, {})
            for one in shared:
                self._read.by_end.update(in_order(one, _FIRST_AT))
        return self._read.by_end

    def remember(self, request_id: bytes, outcome: bytes) -> None:
        """Keep what a write has given first; see `remember_all`."""
        self.remember_all(request_id[:BATCH_ID_BYTES], with_head(request_id, outcome), 1)

    def remember_all(self, batch_id: bytes, outcomes: bytes, count: int) -> None:
        """Keep what writes with ids of one batch have given first, in the same turn of the event loop.

        Args:
            outcomes: Of each of them, one behind the other; see `with_head`.

        Cost:
            2 µs.
        """
        now_ms = int(self._clock() * 1000)
        part = _HEAD.pack(now_ms, count) + outcomes
        part_id = batch_id + outcomes[:_NUMBER_BYTES]
        self._keep(batch_id, part_id, part, count)
        if self._is_saved:
            self.unsaved[part_id] = part
        if now_ms > self._due_ms or self._size_bytes > self._bytes_max:
            self._let_go_due(now_ms)

    def _keep(self, batch_id: bytes, part_id: bytes, part: bytes, count: int) -> None:
        self._parts[part_id] = part
        self._kept_count += 1
        self._counts[batch_id] = self._counts.get(batch_id, 0) + 1
        if count > 1:
            self._shared.setdefault(batch_id, []).append(part)
            if self._read is not None and self._read.batch_id == batch_id:
                self._read.by_end.update(in_order(part, _FIRST_AT))
        self._id_count += count
        self._size_bytes += len(part) + (_PART_BYTES if count == 1 else _SHARED_PART_BYTES)

    def _let_go_due(self, now_ms: int) -> None:
        """Let go what is due, and the oldest of the others while there is no room for all."""
        while self._parts:
            oldest = next(iter(self._parts))
            part = self._parts[oldest]
            self._due_ms = _moment_of(part) + self._keep_ms
            is_due = now_ms > self._due_ms
            if not is_due and self._size_bytes <= self._bytes_max:
                return
            if not is_due:
                self._let_go_early += _count_of(part)
            self._let_go(oldest)

    def _let_go(self, part_id: bytes) -> None:
        self._forget(part_id)
        if self._is_saved:
            self.unsaved[part_id] = None

    def _forget(self, part_id: bytes) -> None:
        part = self._parts.pop(part_id, None)
        if part is None:
            return
        batch_id, count = part_id[:BATCH_ID_BYTES], _count_of(part)
        if self._counts[batch_id] > 1:
            self._counts[batch_id] -= 1
        else:
            del self._counts[batch_id]
        if count > 1:
            shared = self._shared[batch_id]
            shared.remove(part)
            if not shared:
                del self._shared[batch_id]
            if self._read is not None and self._read.batch_id == batch_id:
                self._read = None
        self._id_count -= count
        self._size_bytes -= _size_of(part)

    # On the way to another home.

    async def page(self, since: bytes) -> IdPage:
        """Return a page of ids; see `Remembered.page`.

        Cost:
            0.2 µs for each part that was not told before.
        """
        life, number = since[:_LIFE_BYTES], int.from_bytes(since[_LIFE_BYTES:])
        # What was let go was at the front: numbers count from the end, where none is missing. After an undo some of
        # those that are left have greater numbers than before, and are told again.
        untold = min(self._kept_count - (number if life == self._life else 0), len(self._parts))
        now_ms, found, size = int(self._clock() * 1000), list[IdPart](), 0
        for part_id in reversed([*islice(reversed(self._parts), untold)]):
            if size > PAGE_BYTES:
                break
            part = self._parts[part_id]
            found.append(IdPart(part_id, part[_FIRST_AT:], max(0, now_ms - _moment_of(part))))
            size += len(part_id) + len(part)
        told = self._kept_count - untold + len(found)
        return IdPage(found, self._life + told.to_bytes(8), len(found) < untold)

    async def take(self, parts: Sequence[IdPart]) -> None:
        """Remember ids of another home; those that are too old, or known, stay as they are."""
        now_ms = int(self._clock() * 1000)
        for part_id, outcomes, age_ms in parts:
            if age_ms > self._keep_ms:
                continue
            count = sum(1 for _ in in_order(outcomes))
            part = _HEAD.pack(max(0, now_ms - age_ms), count) + outcomes
            known = self._parts.get(part_id)
            if known is not None:
                if known[_FIRST_AT:] == outcomes:
                    continue
                # The other home has it from the write itself.
                self._forget(part_id)
            self._keep(part_id[:BATCH_ID_BYTES], part_id, part, count)
            if self._is_saved:
                self.unsaved[part_id] = part
        if self._size_bytes > self._bytes_max:
            self._let_go_due(now_ms)

    # With a disk.

    def begin(self, saved: Iterable[tuple[bytes, bytes]]) -> None:
        """Take in what a disk has, and keep for it what it does not have from now on."""
        self._is_saved = True
        for part_id, part in sorted(saved, key=lambda one: _moment_of(one[1])):
            self._keep(part_id[:BATCH_ID_BYTES], part_id, part, _count_of(part))
            while self._size_bytes > self._bytes_max:
                self._let_go(next(iter(self._parts)))

    def undo(self) -> None:
        """Forget what the disk could not take: these writes are undone."""
        for part_id in self.unsaved:
            self._forget(part_id)
        self.unsaved.clear()

    def _check(self) -> None:
        """Check the invariants."""
        shared: dict[bytes, list[bytes]] = {}
        counts: dict[bytes, int] = {}
        for part_id, part in self._parts.items():
            batch_id = part_id[:BATCH_ID_BYTES]
            assert len(part_id) == ID_BYTES, "1: a request id"
            assert batch_id + part[_FIRST_AT:][:_NUMBER_BYTES] == part_id, "1: that of its first command"
            assert len(list(in_order(part, _FIRST_AT))) == _count_of(part) > 0, "1: as many outcomes as it says"
            counts[batch_id] = counts.get(batch_id, 0) + 1
            if _count_of(part) > 1:
                shared.setdefault(batch_id, []).append(part)
        assert (counts, shared) == (self._counts, self._shared), "2: the parts of each batch"
        assert self._id_count == sum(map(_count_of, self._parts.values())), "3: the sum of ids"
        assert self._size_bytes == sum(map(_size_of, self._parts.values())), "3: the sum of bytes"
        assert self._size_bytes <= max(self._bytes_max, 0), "3: the bound"


def _moment_of(part: bytes) -> int:
    return int.from_bytes(part[:8])


def _count_of(part: bytes) -> int:
    return int.from_bytes(part[8:_FIRST_AT])


def _size_of(part: bytes) -> int:
    """Return the memory that a part takes."""
    return len(part) + (_PART_BYTES if _count_of(part) == 1 else _SHARED_PART_BYTES)
