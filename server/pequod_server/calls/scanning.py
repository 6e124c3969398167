"""The call that reads a range in chunks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from pequod_proto import pequod_pb2 as pb

from pequod.commands.columns import range_arguments
from pequod.commands.kinds import SCAN_DOWN, SCAN_LIMIT, SCAN_SHRINK, SCAN_TRIES_MAX
from pequod.engine import LimitExceededError, Rows
from pequod_server.calls.served import ServedEngine
from pequod_server.freshness.demands import Demand
from pequod_server.memory.admission import Admission
from pequod_server.wire.bounds import Bounds, range_of
from pequod_server.wire.fitting import fitting, row_sizes
from pequod_server.wire.handlers import Context

#: Rows that a scan reads before it knows how large they are.
_FIRST_ROWS: Final = 1024


class ScanCalls:
    """Answers Scan."""

    def __init__(self, served: ServedEngine, admission: Admission) -> None:
        self._served = served
        self._admission = admission

    async def scan(self, request: pb.ScanRequest, _context: Context) -> AsyncIterator[pb.ScanReply]:
        """Read a range in chunks; other calls have their turn between them.

        A chunk is made when there is memory for it, and holds this memory until its client has taken the chunk.
        """
        config, bounds = self._served.config, range_of(request)
        demand = self._served.demand(request)
        # However much the request asks for: a chunk is in memory as a whole.
        chunk_bytes = min(request.chunk_bytes or config.chunk_bytes, config.reply_bytes_max)
        remaining = request.limit if request.HasField("limit") else None
        wanted = min(_FIRST_ROWS, config.rows_max)
        most, tries = config.rows_max, 0
        chunks = self._admission.chunks(chunk_bytes)
        while remaining is None or remaining > 0:
            async with chunks.room() as room_bytes:
                limit = wanted if remaining is None else min(remaining, wanted)
                try:
                    rows, count, size = await self._chunk(request, bounds, demand, limit, room_bytes)
                except LimitExceededError as error:
                    if tries == SCAN_TRIES_MAX or request.reverse or not error.is_of_memory:
                        raise
                    # What fewer rows are computed from may fit; a refusal lets go of what the parts before have used.
                    most = wanted = max(1, limit // SCAN_SHRINK)
                    tries += limit == 1
                    continue
                tries = 0
                if not chunks.has_room(size):
                    del rows
                    continue
                reply = pb.ScanReply(header=self._served.header(), keys=rows.keys[:count])
                if not request.keys_only:
                    reply.values.extend(rows.values[:count])
                resume_key = b""
                if count < len(rows.keys):
                    last = rows.keys[count - 1]
                    resume_key = reply.resume_key = last if request.reverse else last + b"\0"
                del rows
                yield reply
                # While the next chunk waits for memory, nothing holds this one.
                del reply
            if request.one_chunk or not resume_key:
                return
            bounds = (bounds[0], resume_key) if request.reverse else (resume_key, bounds[1])
            if remaining is not None:
                remaining -= count
            # As many rows fill a chunk if the next ones are as long as these: more would be read in vain.
            wanted = max(1, min(most, count * chunk_bytes // size))
            await asyncio.sleep(0)

    async def _chunk(
        self, request: pb.ScanRequest, bounds: Bounds, demand: Demand | None, limit: int, bytes_max: int
    ) -> tuple[Rows, int, int]:
        """Return the first rows of a range, one more than ``limit`` at most, how many fit, and their size on the wire.

        One row always fits. If there are rows behind those that fit, the range has more to read.
        """
        kind = SCAN_DOWN if request.reverse else SCAN_LIMIT
        found, _ = await self._served.executor.answer(kind, *range_arguments(*bounds), limit + 1, demand)
        assert isinstance(found, Rows), "scans give rows"
        sizes = row_sizes(found.keys[:limit], [] if request.keys_only else found.values[:limit])
        count, size = fitting(sizes, bytes_max)
        return found, count, size
