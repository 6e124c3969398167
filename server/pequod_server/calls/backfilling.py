"""The calls of backfills: what a driver computed is loaded in pieces."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Final
from zlib import crc32

from pequod_proto import pequod_pb2 as pb

from pequod.engine import Backfill, InvalidPieceError, LoadCounts, Piece
from pequod_server.calls.leases import Leased, LeasedBackfills
from pequod_server.calls.served import ServedEngine
from pequod_server.wire.bounds import last_of
from pequod_server.wire.fitting import ROW_BYTES
from pequod_server.wire.handlers import Context

#: How long pieces are loaded before other calls have their turn.
_TURN_S: Final = 0.005


class BackfillCalls:
    """Answers BeginBackfill, ReadBackfill, LoadBackfill, RenewBackfill, EndBackfill and ListBackfills."""

    def __init__(self, served: ServedEngine) -> None:
        self._served = served
        self._engine = served.engine
        self._backfills = LeasedBackfills(served.engine, served.config)

    async def begin(self, request: pb.BeginBackfillRequest, _context: Context) -> pb.BeginBackfillReply:
        """Begin a backfill, once all rows of its sources that databases own are loaded."""

        def begin(_now: float) -> Leased:
            return self._backfills.begin(request)

        leased = await self._served.read(begin, [(request.first, last_of(request))], None)
        # In the turn in which it began, so the token names the state that the backfill is of.
        return pb.BeginBackfillReply(header=self._served.header(), backfill=leased.message())

    async def read(self, request: pb.ReadBackfillRequest, _context: Context) -> pb.ReadBackfillReply:
        """Read source rows as they were when the backfill began."""
        leased = self._backfills.renew(request.id, request.join)
        reply = pb.ReadBackfillReply()
        first, size, bytes_max = request.first, 0, self._served.config.reply_bytes_max
        while size < bytes_max:
            rows = leased.backfill.source_rows(first, request.last, self._served.config.rows_max)
            if not rows.keys:
                reply.header.CopyFrom(self._served.header())
                return reply
            if not request.digest_only:
                reply.keys.extend(rows.keys)
                reply.values.extend(rows.values)
            reply.row_count += len(rows.keys)
            reply.crc32_sum += sum(map(crc32, map(b"\0".join, zip(rows.keys, rows.values, strict=True))))
            first = rows.keys[-1] + b"\0"
            size += sum(map(len, rows.keys)) + sum(map(len, rows.values)) + ROW_BYTES * len(rows.keys)
            await asyncio.sleep(0)
            leased.backfill.refuse_ended()
        reply.header.CopyFrom(self._served.header())
        reply.resume_key = first
        return reply

    async def load(self, request: pb.LoadBackfillRequest, _context: Context) -> pb.LoadBackfillReply:
        """Load pieces; other calls have their turn between two of them."""
        leased = self._backfills.renew(request.id, request.join)
        pieces = _pieces(leased.backfill, request)
        total = LoadCounts()
        turn_s = time.monotonic()
        for piece in pieces:
            total.add(self._engine.backfills.load(leased.backfill, [piece], now=time.monotonic()))
            if time.monotonic() - turn_s > _TURN_S:
                await asyncio.sleep(0)
                turn_s = time.monotonic()
        return pb.LoadBackfillReply(
            header=self._served.header(),
            ranges_loaded=total.range_count,
            rows_loaded=total.row_count,
            pieces_skipped=total.skipped_count,
        )

    async def renew(self, request: pb.RenewBackfillRequest, _context: Context) -> pb.RenewBackfillReply:
        """Note that the driver of a backfill lives, and what it says of its progress."""
        leased = self._backfills.renew(request.id, request.join)
        leased.stage, leased.rows_expected = request.stage, request.rows_expected
        return pb.RenewBackfillReply(header=self._served.header(), backfill=leased.message())

    async def end(self, request: pb.EndBackfillRequest, _context: Context) -> pb.EndBackfillReply:
        """End a backfill."""
        leased = self._backfills.end(request.id, request.join, request.reason)
        return pb.EndBackfillReply(header=self._served.header(), backfill=leased.message())

    async def list_all(self, _request: pb.ListBackfillsRequest, _context: Context) -> pb.ListBackfillsReply:
        """List the backfills: those under way, and those that ended lately."""
        return pb.ListBackfillsReply(
            header=self._served.header(), backfills=[leased.message() for leased in self._backfills]
        )


def _pieces(backfill: Backfill, request: pb.LoadBackfillRequest) -> Iterator[Piece]:
    """Check the columns of a load, and yield its pieces.

    Raises:
        InvalidPieceError: The columns do not fit together.
    """
    counts, total = request.row_counts[:], sum(request.row_counts)
    for name, column in (
        ("tail_at", request.tail_at),
        ("value_at", request.value_at),
        ("source_key_at", request.source_key_at),
        ("times", request.times),
    ):
        if len(column) not in ((total,) if name == "tail_at" else (0, total)):
            raise InvalidPieceError(backfill.first, backfill.last, f"{name} has {len(column)} entries for {total} rows")
    if not len(counts) == len(request.firsts) == len(request.lasts):
        raise InvalidPieceError(backfill.first, backfill.last, "firsts, lasts and row_counts are of different lengths")
    try:
        columns = (
            _spread(backfill.share(request.tails), request.tail_at[:]),
            _spread(backfill.share(request.values), request.value_at[:]),
            request.times[:],
            _spread(request.source_keys[:], request.source_key_at[:]),
        )
    except IndexError:
        reason = "a column refers to an entry that is not there"
        raise InvalidPieceError(backfill.first, backfill.last, reason) from None
    return _cut(request.firsts[:], request.lasts[:], counts, *columns)


def _cut(
    firsts: list[bytes],
    lasts: list[bytes],
    counts: list[int],
    tails: list[bytes],
    values: list[bytes],
    times: list[int],
    source_keys: list[bytes],
) -> Iterator[Piece]:
    at = 0
    for first, last, count in zip(firsts, lasts, counts, strict=True):
        stop = at + count
        yield Piece(first, last, tails[at:stop], values[at:stop], times[at:stop], source_keys[at:stop])
        at = stop


def _spread(entries: list[bytes], at: list[int]) -> list[bytes]:
    return list(map(entries.__getitem__, at))
