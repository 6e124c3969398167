"""The asyncio client.

Calls of one turn of the event loop share one message: a thousand `get` under `asyncio.gather` are one batch or two,
with nothing for the caller to do. `AsyncClient.batch` is the same by hand, without a future for each command.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from pequod_proto import pequod_pb2 as pb

from pequod.calls import (
    Data,
    Join,
    Page,
    RestoredSnapshot,
    Result,
    Row,
    SavedSnapshot,
    ServerStatistics,
    WatchEvent,
    Writes,
    to_bytes,
    to_columns,
    to_doomed_range,
    to_limit,
    to_page_limit,
    to_page_range,
    to_part_count,
    to_range,
)
from pequod.client import decode
from pequod.client.backfills import AsyncBackfills
from pequod.client.columns import Columns
from pequod.client.connection import Connection
from pequod.client.credentials import Credentials
from pequod.client.gathering import Deliver, Gathering
from pequod.client.retry import RETRIES
from pequod.client.watch import follow
from pequod.engine.base.rows import Rows
from pequod.engine.shown.explain import JoinExplanation, RangeExplanation
from pequod.errors import PequodError

DEFAULT_TARGET = "127.0.0.1:7744"
#: How long a snapshot may take, if the caller does not say: ten million rows and more.
SNAPSHOT_S: Final = 600.0


class AsyncClient:
    """A client of one server, for one event loop.

    Args:
        target: HOST:PORT.
        timeout_s: How long a call may take, all tries together.
        retries: How often a call is tried again when the server is not there or goes away, with growing pauses:
            reads, and writes that certainly were not applied. 0 for never.
        tls: Use TLS; ``ca`` and ``certificate`` mean it too.
        ca: PEM file of the authority that signed the server's certificate; without it, the public ones.
        certificate: PEM file of the client's certificate, and ``key`` that of its key.
        token: Who calls, as `pequod token new` printed it.
        insecure: Send the token in plain text, not only inside this machine.

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
        self._connection = Connection(target, credentials, timeout_s, retries)
        self._gathering = Gathering(self._connection)
        self._unary = self._connection.unary
        #: The calls of backfills.
        self.backfills = AsyncBackfills(self._unary)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; calls under way fail. Closing twice is no error."""
        self._connection.refuse_calls()
        await self._gathering.close()
        await self._connection.close()

    @property
    def target(self) -> str:
        """Where the server is, HOST:PORT."""
        return self._connection.target

    @property
    def server_id(self) -> int:
        """Which server the latest reply came from; 0 before the first."""
        return self._connection.server_id

    @property
    def revision(self) -> int:
        """The server's revision in the latest reply."""
        return self._connection.revision

    @property
    def batches_sent(self) -> int:
        """How many batches were sent."""
        return self._gathering.batches_sent

    # Data.

    async def get(self, key: Data) -> bytes | None:
        """Return the value of ``key``, None if there is no such key."""
        self._gathering.open().get(key)
        value: bytes | None = _outcome(await self._gathering.turn(len(key)))
        return value

    async def put(self, key: Data, value: Data) -> None:
        """Write a base key.

        Raises:
            ComputedKeyError: An installed join computes it.
        """
        self._gathering.open().put(key, value)
        _outcome(await self._gathering.turn(len(key) + len(value)))

    async def remove(self, key: Data) -> bool:
        """Remove a base key; tell whether it was there."""
        self._gathering.open().remove(key)
        removed: bool = _outcome(await self._gathering.turn(len(key)))
        return removed

    async def multi_get(self, keys: Iterable[Data]) -> list[bytes | None]:
        """Return the values of ``keys`` in their order, None for each that is absent.

        All are of one moment, unless they do not fit into one reply: then they come in pieces, each of its own.
        """
        wanted = [to_bytes(key) for key in keys]
        found: list[bytes | None] = []
        while len(found) < len(wanted):
            reply = await self._unary("MultiGet", pb.MultiGetRequest(keys=wanted[len(found) :]))
            found += [value if there else None for value, there in zip(reply.values, reply.present, strict=True)]
        return found

    async def multi_put(self, rows: Writes) -> None:
        """Write many base keys at one moment, all or none.

        Raises:
            ComputedKeyError, InvalidKeyError, LimitExceededError: One of them is refused, so nothing is written.
        """
        keys, values = to_columns(rows)
        await self._unary("MultiPut", pb.MultiPutRequest(keys=keys, values=values))

    async def remove_range(self, first: Data | None = None, last: Data | None = None, *, prefix: Data = b"") -> int:
        """Remove the base keys of ``[first, last)`` that start with ``prefix``; return how many there were.

        Computed keys are left to their joins. It is done in pieces, between which others have their turn; when it
        takes longer than ``timeout_s``, what is removed by then stays so.
        """
        start, stop = to_doomed_range(first, last, prefix)
        reply = await self._unary("RemoveRange", pb.RemoveRangeRequest(first=start, last=stop))
        removed: int = reply.removed
        return removed

    async def scan(
        self,
        first: Data = b"",
        last: Data | None = None,
        *,
        prefix: Data = b"",
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[Row]:
        """Return the rows of ``[first, last)`` that start with ``prefix``, in key order; without ``last`` to the end.

        More rows than fit into one reply (some thousands) are fetched in pieces, each exact at its own revision.
        """
        self._gathering.open().scan(first, last, prefix=prefix, limit=limit, reverse=reverse)
        rows: Rows = _outcome(await self._gathering.turn(len(first) + len(last or b"") + len(prefix)))
        return list(zip(rows.keys, rows.values, strict=True))

    async def scan_iter(
        self,
        first: Data = b"",
        last: Data | None = None,
        *,
        prefix: Data = b"",
        limit: int | None = None,
        reverse: bool = False,
    ) -> AsyncGenerator[Row]:
        """Yield the rows of a large range as they come; each chunk is exact at its own revision.

        Each chunk has ``timeout_s`` to come; how long the caller takes between rows does not count.
        """
        start, stop = to_range(first, last, prefix)
        request = pb.ScanRequest(first=start, last=stop, limit=to_limit(limit), reverse=reverse)
        async with aclosing(self._connection.chunks(request)) as chunks:
            async for chunk in chunks:
                for row in zip(chunk.keys, chunk.values, strict=True):
                    yield row

    async def scan_chunks(
        self,
        first: Data = b"",
        last: Data | None = None,
        *,
        prefix: Data = b"",
        keys_only: bool = False,
    ) -> AsyncGenerator[Rows]:
        """Yield the rows of a large range in chunks, as columns: for those who have many and want them in bulk.

        Each chunk is exact at its own revision, and none is empty. With ``keys_only`` the values are not sent.
        """
        start, stop = to_range(first, last, prefix)
        request = pb.ScanRequest(first=start, last=stop, keys_only=keys_only)
        async with aclosing(self._connection.chunks(request)) as chunks:
            async for chunk in chunks:
                if chunk.keys:
                    yield Rows(chunk.keys[:], chunk.values[:])

    async def keys_iter(
        self,
        first: Data = b"",
        last: Data | None = None,
        *,
        prefix: Data = b"",
        limit: int | None = None,
        reverse: bool = False,
    ) -> AsyncGenerator[bytes]:
        """Yield the keys of a range as `scan_iter` does it; their values are not sent."""
        start, stop = to_range(first, last, prefix)
        request = pb.ScanRequest(first=start, last=stop, limit=to_limit(limit), reverse=reverse, keys_only=True)
        async with aclosing(self._connection.chunks(request)) as chunks:
            async for chunk in chunks:
                for key in chunk.keys:
                    yield key

    async def keys(
        self,
        first: Data = b"",
        last: Data | None = None,
        *,
        prefix: Data = b"",
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[bytes]:
        """Return the keys of a range; their values are not sent."""
        return [key async for key in self.keys_iter(first, last, prefix=prefix, limit=limit, reverse=reverse)]

    async def scan_page(
        self,
        first: Data = b"",
        last: Data | None = None,
        *,
        prefix: Data = b"",
        limit: int | None = None,
        reverse: bool = False,
        resume_key: bytes | None = None,
    ) -> Page:
        """Return some rows of a range and the key to go on from: no more than ``limit``, or than fit into a chunk.

        Args:
            resume_key: That of the page before, to get the next one of the same range.
        """
        start, stop = to_page_range(first, last, prefix, resume_key, reverse=reverse)
        request = pb.ScanRequest(first=start, last=stop, limit=to_page_limit(limit), reverse=reverse, one_chunk=True)
        (chunk,) = [chunk async for chunk in self._connection.chunks(request)]
        rows = list(zip(chunk.keys, chunk.values, strict=True))
        return Page(rows, chunk.resume_key if chunk.HasField("resume_key") else None)

    async def count(self, first: Data = b"", last: Data | None = None, *, prefix: Data = b"") -> int:
        """Return how many keys of ``[first, last)`` start with ``prefix``; without both, how many there are."""
        self._gathering.open().count(first, last, prefix=prefix)
        count: int = _outcome(await self._gathering.turn(len(first) + len(last or b"") + len(prefix)))
        return count

    async def splits(
        self, count: int, first: Data = b"", last: Data | None = None, *, prefix: Data = b""
    ) -> list[bytes]:
        """Return up to ``count - 1`` keys that cut a range into parts of about equal numbers of rows.

        They ascend. What the server holds counts: a computed range that nobody has read yet is one part.

        Raises:
            ValueError: ``count`` is below 1.
            LimitExceededError: There would be too many parts.
        """
        start, stop = to_range(first, last, prefix)
        request = pb.SplitsRequest(first=start, last=stop, count=to_part_count(count))
        return list((await self._unary("Splits", request)).keys)

    async def watch(
        self,
        first: Data,
        last: Data | None = None,
        *,
        rows: bool = False,
        reconnect_s: float = 30.0,
        progress_s: float | None = None,
        after: WatchEvent | None = None,
    ) -> AsyncGenerator[WatchEvent]:
        """Yield what happens in ``[first, last)``, computed keys included, until the iterator is closed.

        The first event comes as soon as the watch stands; with ``rows`` it holds the rows of the range, and each later
        one the changes since the one before. A broken connection is made anew, and nothing is missed.

        Args:
            rows: Give the rows first.
            reconnect_s: How long to try to reach a server that went away.
            after: Go on behind this event, which an earlier watch of the very same range gave: its changes are not
                given again, and none is missed.
            progress_s: After so long without a change, give an event without changes: nothing is missing up to its
                revision.

        Raises:
            NotWatchableError: A join over the range is not push.
            WatchCompactedError: Some changes are not kept any more, or the joins of the range changed: start again.
            UnavailableError: The server cannot be reached.
        """
        request = pb.WatchRequest(
            first=to_bytes(first),
            last=None if last is None else to_bytes(last),
            rows=rows,
            progress_ms=0 if progress_s is None else max(1, round(progress_s * 1000)),
        )
        if after is not None:
            request.after.CopyFrom(pb.Header(server_id=after.server_id, revision=after.revision))
        events = follow(self._connection, request, reconnect_s)
        async with aclosing(events):
            async for event in events:
                yield event

    def send(self, columns: Columns, deliver: Deliver) -> None:
        """Send a batch; ``deliver`` is called once, with all results or with what went wrong instead.

        Reads that the server cuts short are continued before. The columns must not change any more.
        """
        self._gathering.send(columns, deliver)

    def batch(self) -> AsyncBatch:
        """Return an empty batch of commands, to be sent as one message."""
        return AsyncBatch(self)

    # Joins and state.

    async def add_join(self, text: str) -> list[Join]:
        """Install the joins of ``text``, all or none; those that are installed already stay as they are.

        Raises:
            JoinError: With the place in ``text``, the reason and a hint.
        """
        reply = await self._unary("AddJoin", pb.AddJoinRequest(text=text), text)
        return decode.joins(reply.joins)

    async def drop_join(self, name: str) -> None:
        """Take out a join and its outputs."""
        await self._unary("DropJoin", pb.DropJoinRequest(name=name))

    async def joins(self) -> list[Join]:
        """Return the installed joins, the earliest first."""
        return decode.joins((await self._unary("ListJoins", pb.ListJoinsRequest())).joins)

    async def explain_join(self, name: str) -> JoinExplanation:
        """Return how a join is evaluated and kept."""
        return decode.join_explanation((await self._unary("Explain", pb.ExplainRequest(join=name))).join)

    async def explain_range(self, first: Data, last: Data | None = None) -> RangeExplanation:
        """Return what a read of ``[first, last)`` would find and have to do."""
        start, stop = to_bytes(first), None if last is None else to_bytes(last)
        reply = await self._unary("Explain", pb.ExplainRequest(range=pb.Range(first=start, last=stop)))
        return decode.range_explanation(start, stop, reply.range)

    async def invalidate_range(self, first: Data, last: Data | None = None) -> int:
        """Have what is computed of ``[first, last)`` forgotten, and what that was computed from; reads compute it anew.

        Returns:
            How many contexts were forgotten; more may have gone that depend on them.
        """
        start, stop = to_range(first, last)
        reply = await self._unary("Invalidate", pb.InvalidateRequest(range=pb.Range(first=start, last=stop)))
        count: int = reply.contexts
        return count

    async def invalidate_join(self, name: str) -> int:
        """Have everything that a join computed forgotten, as `invalidate_range` does."""
        count: int = (await self._unary("Invalidate", pb.InvalidateRequest(join=name))).contexts
        return count

    async def statistics(self) -> ServerStatistics:
        """Return what the server holds and did."""
        return decode.statistics(await self._unary("Stats", pb.StatsRequest()))

    async def save_snapshot(self, timeout_s: float = SNAPSHOT_S) -> SavedSnapshot:
        """Have the server write its base data into its `snapshot_file`."""
        reply = await self._unary("SaveSnapshot", pb.SaveSnapshotRequest(), timeout_s=timeout_s)
        return SavedSnapshot(reply.path, reply.key_count, reply.range_count, reply.backed_key_count, reply.file_bytes)

    async def restore_snapshot(self, timeout_s: float = SNAPSHOT_S) -> RestoredSnapshot:
        """Have the server put the keys of its `snapshot_file`, all or none."""
        reply = await self._unary("RestoreSnapshot", pb.RestoreSnapshotRequest(), timeout_s=timeout_s)
        return RestoredSnapshot(reply.path, reply.key_count, reply.saved_s)


class AsyncBatch(Columns):
    """Commands that go out as one message; results come in their order.

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
        """Send the batch now; the future gives a result for each command, an exception object where one failed.

        The batch is empty then and may be filled again.

        Raises:
            UnavailableError, DeadlineExceededError: From the future; nothing is known of the batch's writes, unless the
                error ``is_unapplied``. A batch with writes is only sent again if it certainly was not applied.
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


def _outcome(result: Result) -> Any:
    """Return the result of a call, or raise it."""
    if isinstance(result, PequodError):
        # All calls of a failed batch share the exception; each starts its own traceback.
        raise result.with_traceback(None)
    return result
