"""The calls of all clients of a server, as requests: of `AsyncClient` and of its sessions."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from secrets import token_bytes
from typing import Any, Final, TypeVar

from pequod_proto import pequod_pb2 as pb

from pequod.answers.explanations import JoinExplanation, RangeExplanation
from pequod.answers.joins import Join, ReplacementStatus
from pequod.answers.rows import Rows
from pequod.answers.transacted import Transacted
from pequod.calls import Page, RangeRead, ServerStatistics, WatchEvent, to_age_s, token_of_reply
from pequod.client import decode
from pequod.client.batches import AsyncBatch
from pequod.client.columns import Columns
from pequod.client.levels import level_or_none
from pequod.client.link import Link
from pequod.client.retry import ID_BYTES
from pequod.client.stream import Deliver
from pequod.errors import ReplacementEndedError
from pequod.freshness import Freshness, Token
from pequod.interface import AsyncCalls
from pequod.language.deadlines import KEEP
from pequod.language.transactions import Transaction
from pequod.transaction_messages import transacted_of, transaction_request

T = TypeVar("T")

#: A caller that waits for a replacement looks at its progress after this time at the latest.
_LOOK_MAX_S: Final = 0.5


class ServerCalls(AsyncCalls):
    """The calls of `AsyncCalls`, carried out by a server."""

    _link: Link
    #: Makes a call that has one reply.
    _unary: Callable[..., Coroutine[Any, Any, Any]]

    @property
    def server_id(self) -> int:
        """The id of the server in the latest reply, 0 before the first; of a store in the process a random one."""
        return self._link.server_id

    @property
    def revision(self) -> int:
        """The revision in the latest reply; it grows with every change of base data and of joins."""
        return self._link.revision

    @property
    def last_token(self) -> Token:
        """The token in the latest reply: it names the state that answered, after a write one that has the write."""
        return token_of_reply(self._link.token)

    @property
    def last_age_s(self) -> float | None:
        """The age in the latest reply: the state that answered lacks nothing older; None if it is not known."""
        return to_age_s(self._link.age_ms)

    def batch(self, freshness: Freshness | None = None) -> AsyncBatch:
        """Return an empty batch of commands, to be sent together.

        Args:
            freshness: How fresh the answers of its reads have to be, but for those that say it themselves.
        """
        return AsyncBatch(self.send, freshness)

    async def statistics(self) -> ServerStatistics:
        """Return counts of what the server holds and has done."""
        return decode.statistics(await self._unary("Stats", pb.StatsRequest()))

    # What differs from client to client.

    @abstractmethod
    async def _in_loop(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the event loop of the client."""

    def _level(self, freshness: Freshness | None) -> Freshness | None:
        """Return what a read asks for, if its caller says this."""
        return freshness

    def _note(self, header: pb.Header) -> None:
        """Note the state that a part of a reply shows."""
        self._link.note_header(header)

    @abstractmethod
    def send(self, columns: Columns, deliver: Deliver) -> None:
        """Send a batch, in the event loop; ``deliver`` is called once, with the reply or with the error.

        Reads that the server cuts short are continued first. The columns must not change any more.
        """

    # The calls.

    async def _multi_get(self, keys: list[bytes], freshness: Freshness | None) -> list[bytes | None]:
        found: list[bytes | None] = []
        while len(found) < len(keys):
            request = pb.MultiGetRequest(keys=keys[len(found) :], freshness=level_or_none(self._level(freshness)))
            reply = await self._unary("MultiGet", request)
            found += [value if there else None for value, there in zip(reply.values, reply.present, strict=True)]
        return found

    async def _multi_put(self, keys: list[bytes], values: list[bytes], ttl_ms: int) -> None:
        request = pb.MultiPutRequest(keys=keys, values=values)
        if ttl_ms:
            request.MergeFrom(
                pb.MultiPutRequest(keep_ttl=True) if ttl_ms == KEEP else pb.MultiPutRequest(ttl_ms=ttl_ms)
            )
        await self._unary("MultiPut", request)

    async def _transact(self, transaction: Transaction, freshness: Freshness | None) -> Transacted:
        if self._link.retries and transaction.writes():
            transaction = transaction._replace(request_id=token_bytes(ID_BYTES))
        request = transaction_request(transaction)
        if transaction.ranges_read() and (level := level_or_none(self._level(freshness))) is not None:
            request.freshness.CopyFrom(level)
        return transacted_of(transaction, await self._unary("Transaction", request))

    async def _remove_range(self, first: bytes, last: bytes | None) -> int:
        removed: int = (await self._unary("RemoveRange", pb.RemoveRangeRequest(first=first, last=last))).removed
        return removed

    async def _chunks(self, read: RangeRead) -> AsyncGenerator[Rows]:
        async with aclosing(self._link.chunks(self._scan_request(read), self._note)) as chunks:
            async for chunk in chunks:
                yield Rows(chunk.keys[:], chunk.values[:])

    async def _keys(self, read: RangeRead) -> list[bytes]:
        return await self._in_loop(self._all_keys(read))

    async def _all_keys(self, read: RangeRead) -> list[bytes]:
        return [key async for rows in self._chunks(read) for key in rows.keys]

    async def _page(self, read: RangeRead) -> Page:
        return await self._in_loop(self._one_page(read))

    async def _one_page(self, read: RangeRead) -> Page:
        request = self._scan_request(read)
        request.one_chunk = True
        (chunk,) = [chunk async for chunk in self._link.chunks(request, self._note)]
        rows = list(zip(chunk.keys, chunk.values, strict=True))
        return Page(rows, chunk.resume_key if chunk.HasField("resume_key") else None)

    def _scan_request(self, read: RangeRead) -> pb.ScanRequest:
        return pb.ScanRequest(
            first=read.first,
            last=read.last,
            limit=read.limit,
            reverse=read.reverse,
            keys_only=read.keys_only,
            freshness=level_or_none(self._level(read.freshness)),
        )

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
        freshness: Freshness | None,
    ) -> AsyncGenerator[WatchEvent]:
        progress_ms = 0 if progress_s is None else max(1, round(progress_s * 1000))
        level = level_or_none(self._level(freshness))
        request = pb.WatchRequest(first=first, last=last, rows=rows, progress_ms=progress_ms, freshness=level)
        if after is not None:
            request.after.CopyFrom(pb.Header(server_id=after.server_id, revision=after.revision))
        return self._link.watch(request, reconnect_s, self._note)

    async def _add_join(self, text: str) -> list[Join]:
        return decode.joins((await self._unary("AddJoin", pb.AddJoinRequest(text=text), text)).joins)

    async def _drop_join(self, name: str) -> None:
        await self._unary("DropJoin", pb.DropJoinRequest(name=name))

    async def _replace_join(self, name: str, text: str | None) -> ReplacementStatus:
        request = pb.ReplaceJoinRequest(name=name, text=text, undo=text is None)
        begun = decode.replacement((await self._unary("ReplaceJoin", request, text)).replacement)
        status: ReplacementStatus | None = begun
        while status is not None and not status.ended:
            # Soon at first: often there is little to build.
            await self._in_loop(asyncio.sleep(min(_LOOK_MAX_S, 0.01 + status.age_s / 10)))
            status = next((one for one in await self._replacements() if one.id == begun.id), None)
        if status is None:
            raise ReplacementEndedError(begun.join, "the server does not know of it any more; look at `join list`")
        return status

    async def _replacements(self) -> list[ReplacementStatus]:
        reply = await self._unary("ListReplacements", pb.ListReplacementsRequest())
        return [decode.replacement(message) for message in reply.replacements]

    async def _cancel_replacement(self, name: str) -> None:
        await self._unary("EndReplacement", pb.EndReplacementRequest(name=name))

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
