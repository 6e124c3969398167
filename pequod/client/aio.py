"""The asyncio client.

Calls of one turn of the event loop share one message: a thousand `get` under `asyncio.gather` are one batch or two,
with nothing for the caller to do. `AsyncClient.batch` is the same by hand, without a future for each command.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Final

from pequod_proto import pequod_pb2 as pb

from pequod.calls import (
    Join,
    Page,
    RangeRead,
    RestoredSnapshot,
    Result,
    SavedSnapshot,
    ServerStatistics,
    WatchEvent,
)
from pequod.client import decode
from pequod.client.backfills import AsyncBackfills
from pequod.client.columns import Columns
from pequod.client.connection import ServerConnection
from pequod.client.credentials import Credentials
from pequod.client.gathering import Deliver, Gathering
from pequod.client.retry import RETRIES
from pequod.client.watch import follow
from pequod.engine.base.rows import Rows
from pequod.engine.shown.explain import JoinExplanation, RangeExplanation
from pequod.errors import PequodError
from pequod.interface import AsyncCalls

DEFAULT_TARGET = "127.0.0.1:7744"
#: The timeout of a snapshot, if the caller gives none: enough for ten million rows and more.
SNAPSHOT_S: Final = 600.0


class AsyncClient(AsyncCalls):
    """A client of one server, for one event loop.

    Args:
        target: HOST:PORT.
        timeout_s: How long a call may take, all attempts together.
        retries: How often a call is tried again when the server is not reachable, with growing pauses: reads, and
            writes that certainly were not applied. 0 for never.
        tls: Use TLS; implied by ``ca`` and ``certificate``.
        ca: PEM file of the authority that signed the server's certificate; without it, the public ones.
        certificate: PEM file of the client's certificate, and ``key`` that of its key.
        token: The caller's token, as `pequod token new` printed it.
        insecure: Allow to send the token in plain text to other machines.

    Raises:
        SettingError: A file cannot be read, or the token would be sent in plain text.

    Example:
        async with AsyncClient() as client:
            await client.put("p|bob|0000000100", "Hi")
    """

    def __init__(
        self,
        target: str = DEFAULT_TARGET,
        *,
        timeout_s: float = 10.0,
        retries: int = RETRIES,
        tls: bool = False,
        ca: str | Path | None = None,
        certificate: str | Path | None = None,
        key: str | Path | None = None,
        token: str | None = None,
        insecure: bool = False,
    ) -> None:
        credentials = Credentials(tls=tls, ca=ca, certificate=certificate, key=key, token=token, insecure=insecure)
        self._connection = ServerConnection(target, credentials, timeout_s, retries)
        self._gathering = Gathering(self._connection)
        self._turn = self._gathering.open
        self._unary = self._connection.unary
        #: The calls of backfills.
        self.backfills = AsyncBackfills(self._unary)

    async def close(self) -> None:
        """Close the client; calls under way fail, and so do those that follow. Closing twice is no error."""
        self._connection.refuse_calls()
        await self._gathering.close()
        await self._connection.close()

    @property
    def target(self) -> str:
        """HOST:PORT of the server."""
        return self._connection.target

    @property
    def server_id(self) -> int:
        """The id of the server in the latest reply, 0 before the first; of a store in the process a random one."""
        return self._connection.server_id

    @property
    def revision(self) -> int:
        """The revision in the latest reply; it grows with every change of base data and of joins."""
        return self._connection.revision

    @property
    def batches_sent(self) -> int:
        """The number of batches sent."""
        return self._gathering.batches_sent

    def send(self, columns: Columns, deliver: Deliver) -> None:
        """Send a batch; ``deliver`` is called once, with all results or with the error.

        Reads that the server cuts short are continued first. The columns must not change any more.
        """
        self._gathering.send(columns, deliver)

    def batch(self) -> AsyncBatch:
        """Return an empty batch of commands, to be sent together."""
        return AsyncBatch(self)

    # Calls that only a server has.

    async def statistics(self) -> ServerStatistics:
        """Return counts of what the server holds and has done."""
        return decode.statistics(await self._unary("Stats", pb.StatsRequest()))

    async def save_snapshot(self, timeout_s: float = SNAPSHOT_S) -> SavedSnapshot:
        """Have the server write its base data into its `snapshot_file`."""
        reply = await self._unary("SaveSnapshot", pb.SaveSnapshotRequest(), timeout_s=timeout_s)
        return SavedSnapshot(reply.path, reply.key_count, reply.range_count, reply.backed_key_count, reply.file_bytes)

    async def restore_snapshot(self, timeout_s: float = SNAPSHOT_S) -> RestoredSnapshot:
        """Have the server put the keys of its `snapshot_file`, all or none."""
        reply = await self._unary("RestoreSnapshot", pb.RestoreSnapshotRequest(), timeout_s=timeout_s)
        return RestoredSnapshot(reply.path, reply.key_count, reply.saved_s)

    # The calls of `AsyncCalls` as requests to a server.

    async def _multi_get(self, keys: list[bytes]) -> list[bytes | None]:
        found: list[bytes | None] = []
        while len(found) < len(keys):
            reply = await self._unary("MultiGet", pb.MultiGetRequest(keys=keys[len(found) :]))
            found += [value if there else None for value, there in zip(reply.values, reply.present, strict=True)]
        return found

    async def _multi_put(self, keys: list[bytes], values: list[bytes]) -> None:
        await self._unary("MultiPut", pb.MultiPutRequest(keys=keys, values=values))

    async def _remove_range(self, first: bytes, last: bytes | None) -> int:
        removed: int = (await self._unary("RemoveRange", pb.RemoveRangeRequest(first=first, last=last))).removed
        return removed

    async def _chunks(self, read: RangeRead) -> AsyncGenerator[Rows]:
        async with aclosing(self._connection.chunks(_scan_request(read))) as chunks:
            async for chunk in chunks:
                yield Rows(chunk.keys[:], chunk.values[:])

    async def _keys(self, read: RangeRead) -> list[bytes]:
        return [key async for rows in self._chunks(read) for key in rows.keys]

    async def _page(self, read: RangeRead) -> Page:
        request = _scan_request(read)
        request.one_chunk = True
        (chunk,) = [chunk async for chunk in self._connection.chunks(request)]
        rows = list(zip(chunk.keys, chunk.values, strict=True))
        return Page(rows, chunk.resume_key if chunk.HasField("resume_key") else None)

    async def _splits(self, first: bytes, last: bytes | None, count: int) -> list[bytes]:
        return list((await self._unary("Splits", pb.SplitsRequest(first=first, last=last, count=count))).keys)

    def _watch(
        self,
        first: bytes,
        last: bytes | None,
        *,
        rows: bool,
        reconnect_s: float,
        progress_s: float | None,
        after: WatchEvent | None,
    ) -> AsyncGenerator[WatchEvent]:
        progress_ms = 0 if progress_s is None else max(1, round(progress_s * 1000))
        request = pb.WatchRequest(first=first, last=last, rows=rows, progress_ms=progress_ms)
        if after is not None:
            request.after.CopyFrom(pb.Header(server_id=after.server_id, revision=after.revision))
        return follow(self._connection, request, reconnect_s)

    async def _add_join(self, text: str) -> list[Join]:
        return decode.joins((await self._unary("AddJoin", pb.AddJoinRequest(text=text), text)).joins)

    async def _drop_join(self, name: str) -> None:
        await self._unary("DropJoin", pb.DropJoinRequest(name=name))

    async def _joins(self) -> list[Join]:
        return decode.joins((await self._unary("ListJoins", pb.ListJoinsRequest())).joins)

    async def _explain_join(self, name: str) -> JoinExplanation:
        return decode.join_explanation((await self._unary("Explain", pb.ExplainRequest(join=name))).join)

    async def _explain_range(self, first: bytes, last: bytes | None) -> RangeExplanation:
        reply = await self._unary("Explain", pb.ExplainRequest(range=pb.Range(first=first, last=last)))
        return decode.range_explanation(first, last, reply.range)

    async def _invalidate_range(self, first: bytes, last: bytes | None) -> int:
        return await self._invalidate(pb.InvalidateRequest(range=pb.Range(first=first, last=last)))

    async def _invalidate_join(self, name: str) -> int:
        return await self._invalidate(pb.InvalidateRequest(join=name))

    async def _invalidate(self, request: pb.InvalidateRequest) -> int:
        count: int = (await self._unary("Invalidate", request)).contexts
        return count


class AsyncBatch(Columns):
    """Commands that are sent as one message; results come in the order of the commands.

    Several batches may be under way at once: they run in the order of their sending.

    Example:
        batch = client.batch()
        batch.put("s|ann|bob", "1")
        batch.scan("t|ann|", "t|ann}")
        _, rows = await batch.send()
    """

    __slots__ = ("_client",)

    def __init__(self, client: AsyncClient) -> None:
        super().__init__()
        self._client = client

    def send(self) -> asyncio.Future[list[Result]]:
        """Send the batch now; the future gives a result for each command, an exception object for a failed one.

        The batch is empty afterwards and may be filled again.

        Raises:
            UnavailableError, DeadlineExceededError: From the future; the fate of the batch's writes is unknown, unless
                the error ``is_unapplied``. A batch with writes is only sent again if it certainly was not applied.
        """
        future: asyncio.Future[list[Result]] = asyncio.get_running_loop().create_future()

        def deliver(results: list[Result] | PequodError) -> None:
            if future.done():
                return
            if isinstance(results, PequodError):
                future.set_exception(results)
            else:
                future.set_result(results)

        self._client.send(self.take(), deliver)
        return future


def _scan_request(read: RangeRead) -> pb.ScanRequest:
    return pb.ScanRequest(
        first=read.first, last=read.last, limit=read.limit, reverse=read.reverse, keys_only=read.keys_only
    )
