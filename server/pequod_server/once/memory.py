"""The ids of the latest writes, with what these gave: a write that comes again gets the same.

    write with an id -> known? -> its outcome, and nothing changes
                               -> the engine -> remember, in the same turn of the event loop

Ids are kept for some time, and within some bytes: if there are more, the oldest are let go early. What is not on disk
yet is in ``unsaved``, for the disk to take with the changes of the writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeVar

from pequod_server.once.outcomes import Once

T = TypeVar("T")

#: The memory of an id beside the bytes of its outcome: two objects of bytes, and its place in the table.
_ID_BYTES: Final = 250
_STAMP_BYTES: Final = 8


class IdFigures(NamedTuple):
    """Figures of the ids that a server remembers."""

    id_count: int
    size_bytes: int
    #: Writes that came again, and ids that were let go before their time, since the start.
    repeated: int
    let_go_early: int


class RequestIds:
    """The ids of one server.

    Args:
        keep_s: How long an id is kept.
        bytes_max: The memory of all of them.
        clock: Returns the time of the wall clock in seconds: ids outlive a start of the server.

    Invariants:
        1. ``_kept`` has an outcome for each id, behind the millisecond at which it was remembered, the earliest first.
        2. ``_size_bytes`` is what they take, at most ``bytes_max``.
    """

    __slots__ = (
        *("_bytes_max", "_clock", "_due_ms", "_is_saved", "_keep_ms", "_kept", "_let_go_early", "_repeated"),
        *("_size_bytes", "unsaved"),
    )

    def __init__(self, keep_s: float = 600.0, bytes_max: int = 1 << 24, clock: Callable[[], float] = time.time) -> None:
        self._keep_ms = int(keep_s * 1000)
        self._bytes_max = bytes_max
        self._clock = clock
        self._kept: dict[bytes, bytes] = {}
        self._size_bytes = self._repeated = self._let_go_early = 0
        #: No id is due before this moment.
        self._due_ms = 0
        #: Whether a disk keeps them.
        self._is_saved = False
        #: The ids that it does not have yet, each with its stamp and its outcome, or None if it was let go.
        self.unsaved: dict[bytes, bytes | None] = {}

    @property
    def figures(self) -> IdFigures:
        """The present figures."""
        return IdFigures(len(self._kept), self._size_bytes, self._repeated, self._let_go_early)

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

    def known(self, request_id: bytes) -> bytes | None:
        """Return the outcome of a write that came before with this id; None if it did not."""
        kept = self._kept.get(request_id)
        if kept is None:
            return None
        self._repeated += 1
        return kept[_STAMP_BYTES:]

    def remember(self, request_id: bytes, outcome: bytes) -> None:
        """Keep what a write has given first, in the same turn of the event loop in which it was done.

        Cost:
            2 µs.
        """
        if request_id in self._kept:
            return
        now_ms = int(self._clock() * 1000)
        kept = self._kept[request_id] = now_ms.to_bytes(_STAMP_BYTES) + outcome
        self._size_bytes += _ID_BYTES + len(kept)
        if self._is_saved:
            self.unsaved[request_id] = kept
        if now_ms > self._due_ms or self._size_bytes > self._bytes_max:
            self._let_go_due(now_ms)

    def _let_go_due(self, now_ms: int) -> None:
        """Let go what is due, and the oldest of the others while there is no room for all."""
        while self._kept:
            oldest = next(iter(self._kept))
            self._due_ms = int.from_bytes(self._kept[oldest][:_STAMP_BYTES]) + self._keep_ms
            is_due = now_ms > self._due_ms
            if not is_due and self._size_bytes <= self._bytes_max:
                return
            self._let_go_early += not is_due
            self._let_go(oldest)

    def _let_go(self, request_id: bytes) -> None:
        self._forget(request_id)
        if self._is_saved:
            self.unsaved[request_id] = None

    def _forget(self, request_id: bytes) -> None:
        kept = self._kept.pop(request_id, None)
        if kept is not None:
            self._size_bytes -= _ID_BYTES + len(kept)

    # With a disk.

    def begin(self, saved: Iterable[tuple[bytes, bytes]]) -> None:
        """Take in what a disk has, and keep for it what it does not have from now on."""
        self._is_saved = True
        for request_id, kept in sorted(saved, key=lambda one: one[1][:_STAMP_BYTES]):
            self._kept[request_id] = kept
            self._size_bytes += _ID_BYTES + len(kept)
            if self._size_bytes > self._bytes_max:
                self._let_go(next(iter(self._kept)))

    def undo(self) -> None:
        """Forget what the disk could not take: these writes are undone."""
        for request_id in self.unsaved:
            self._forget(request_id)
        self.unsaved.clear()

    def _check(self) -> None:
        """Check the invariants."""
        stamps = [kept[:_STAMP_BYTES] for kept in self._kept.values()]
        assert all(len(stamp) == _STAMP_BYTES for stamp in stamps), "1: each has a stamp"
        assert self._size_bytes == sum(_ID_BYTES + len(kept) for kept in self._kept.values()), "2: the sum"
        assert self._size_bytes <= max(self._bytes_max, 0), "2: the bound"
