"""The calls of backfills, for callers that wait, from any thread.

Generated from pequod/client/backfills.py by `make interface`.
"""

from __future__ import annotations

from pequod_proto import pequod_pb2 as pb

from pequod.calls import BackfillStatus, Data
from pequod.client.backfills import AsyncBackfills, LoadOutcome, SourceDigest, SourcePage
from pequod.interface.waiting import Waiter


class Backfills:
    """The calls of backfills whose callers wait; they may be in any thread."""

    __slots__ = ("_calls", "_iterate", "_wait")

    def __init__(self, calls: AsyncBackfills, waiter: Waiter) -> None:
        self._calls = calls
        self._wait = waiter.run
        self._iterate = waiter.iterate

    def begin(
        self, join: str, first: Data = b"", last: Data | None = None, *, level: int | None = None, lease_s: float = 0.0
    ) -> BackfillStatus:
        """Begin a backfill of what a join computes in ``[first, last)``.

        Args:
            join: The join's name.
            first: The first key.
            last: The end of the range, None for no end.
            level: The number of the output's slots that a context fixes; None for the server's choice.
            lease_s: How long it continues after the last call that concerns it; 0 for the server's choice.

        Raises:
            UnknownJoinError, NotBackfillableError: There is no such join, or it cannot be backfilled.
            LimitExceededError: Too many backfills are under way.
        """
        return self._wait(self._calls.begin(join, first, last, level=level, lease_s=lease_s))

    def read(self, backfill: BackfillStatus, first: bytes, last: bytes) -> SourcePage:
        """Return the first source rows of a range as they were when a backfill began.

        Raises:
            BackfillEndedError, UnknownBackfillError: The backfill has ended.
        """
        return self._wait(self._calls.read(backfill, first, last))

    def digest(self, backfill: BackfillStatus, first: bytes, last: bytes) -> SourceDigest:
        """Return the number and the checksum of the source rows of a range as they were when a backfill began."""
        return self._wait(self._calls.digest(backfill, first, last))

    def load(self, request: pb.LoadBackfillRequest) -> LoadOutcome:
        """Load computed rows; ranges that are materialised already are skipped.

        Raises:
            BackfillEndedError, UnknownBackfillError: The backfill is over.
            InvalidPieceError: The rows cannot follow from the sources.
        """
        return self._wait(self._calls.load(request))

    def renew(self, backfill: BackfillStatus, stage: str, rows_expected: int = 0) -> BackfillStatus:
        """Report the present step, and keep a backfill from ending.

        Raises:
            BackfillEndedError, UnknownBackfillError: The backfill has ended.
        """
        return self._wait(self._calls.renew(backfill, stage, rows_expected))

    def end(self, backfill: BackfillStatus, reason: str) -> BackfillStatus:
        """End a backfill; the rows that were loaded stay. Ending it twice is no error."""
        return self._wait(self._calls.end(backfill, reason))

    def list(self) -> list[BackfillStatus]:
        """Return the backfills under way, and then the latest that ended."""
        return self._wait(self._calls.list())
