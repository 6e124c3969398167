"""The calls of backfills, for a driver and its tasks.

status = client.backfills.begin("t")                 loaded rows follow from the sources at status.revision
page = client.backfills.read(status, first, last)    source rows as they were then
client.backfills.load(request)                       the rows that follow from them
client.backfills.end(status, "finished")
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, NamedTuple

from pequod_proto import pequod_pb2 as pb

from pequod.answers.rows import Rows
from pequod.calls import BackfillStatus, Data, to_range
from pequod.client import decode
from pequod.freshness import NO_TOKEN, Token


def _token_of(header: pb.Header) -> Token:
    return Token.parse(header.token) if header.token else NO_TOKEN


class SourcePage(NamedTuple):
    """Some source rows of the backfill's revision, and the first key of the next page; None after the last one."""

    rows: Rows
    resume_key: bytes | None


class SourceDigest(NamedTuple):
    """The count and checksum by which source rows are compared with a copy."""

    row_count: int
    #: Of each row's key, a zero byte and its value.
    crc32_sum: int


class LoadOutcome(NamedTuple):
    """The result of loading pieces."""

    ranges_loaded: int
    rows_loaded: int
    pieces_skipped: int


class AsyncBackfills:
    """The calls of backfills whose callers await."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[str, Any], Awaitable[Any]]) -> None:
        self._call = call

    async def begin(
        self,
        join: str,
        first: Data = b"",
        last: Data | None = None,
        *,
        level: int | None = None,
        lease_s: float = 0.0,
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
        start, stop = to_range(first, last)
        request = pb.BeginBackfillRequest(join=join, first=start, last=stop, level=level, lease_s=lease_s)
        reply = await self._call("BeginBackfill", request)
        return replace(decode.backfill(reply.backfill), token=_token_of(reply.header))

    async def read(self, backfill: BackfillStatus, first: bytes, last: bytes) -> SourcePage:
        """Return the first source rows of a range as they were when a backfill began.

        Raises:
            BackfillEndedError, UnknownBackfillError: The backfill has ended.
        """
        request = pb.ReadBackfillRequest(id=backfill.id, join=backfill.join, first=first, last=last)
        reply = await self._call("ReadBackfill", request)
        resume_key = reply.resume_key if reply.HasField("resume_key") else None
        return SourcePage(Rows(reply.keys[:], reply.values[:]), resume_key)

    async def digest(self, backfill: BackfillStatus, first: bytes, last: bytes) -> SourceDigest:
        """Return the number and the checksum of the source rows of a range as they were when a backfill began."""
        request = pb.ReadBackfillRequest(id=backfill.id, join=backfill.join, first=first, last=last, digest_only=True)
        row_count = crc32_sum = 0
        while True:
            reply = await self._call("ReadBackfill", request)
            row_count += reply.row_count
            crc32_sum += reply.crc32_sum
            if not reply.HasField("resume_key"):
                return SourceDigest(row_count, crc32_sum)
            request.first = reply.resume_key

    async def load(self, request: pb.LoadBackfillRequest) -> LoadOutcome:
        """Load computed rows; ranges that are materialised already are skipped.

        Raises:
            BackfillEndedError, UnknownBackfillError: The backfill is over.
            InvalidPieceError: The rows cannot follow from the sources.
        """
        reply = await self._call("LoadBackfill", request)
        return LoadOutcome(reply.ranges_loaded, reply.rows_loaded, reply.pieces_skipped)

    async def renew(self, backfill: BackfillStatus, stage: str, rows_expected: int = 0) -> BackfillStatus:
        """Report the present step, and keep a backfill from ending.

        Raises:
            BackfillEndedError, UnknownBackfillError: The backfill has ended.
        """
        request = pb.RenewBackfillRequest(id=backfill.id, join=backfill.join, stage=stage, rows_expected=rows_expected)
        reply = await self._call("RenewBackfill", request)
        return decode.backfill(reply.backfill)

    async def end(self, backfill: BackfillStatus, reason: str) -> BackfillStatus:
        """End a backfill; the rows that were loaded stay. Ending it twice is no error."""
        request = pb.EndBackfillRequest(id=backfill.id, join=backfill.join, reason=reason)
        reply = await self._call("EndBackfill", request)
        return decode.backfill(reply.backfill)

    async def list(self) -> list[BackfillStatus]:
        """Return the backfills under way, and then the latest that ended."""
        reply = await self._call("ListBackfills", pb.ListBackfillsRequest())
        return [decode.backfill(message) for message in reply.backfills]
