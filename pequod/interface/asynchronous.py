"""The calls that all clients have: the only place with their names, arguments and docstrings.

client.scan(prefix="p|") -> AsyncCalls.scan -> Turn.scan, Turn.last_result    scan, count; of one key: keys.py
client.keys(prefix="p|") -> AsyncCalls.keys -> _keys(RangeRead)               the others: carried.py

`Calls` in synchronous.py is generated from this file: `make interface`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from types import TracebackType
from typing import Self

from pequod.answers.explanations import JoinExplanation, RangeExplanation
from pequod.answers.joins import Join, JoinChanges, ReplacementStatus
from pequod.answers.rows import Rows
from pequod.answers.statistics import Statistics
from pequod.answers.transacted import Transacted
from pequod.calls import (
    AnyToken,
    Data,
    Page,
    Row,
    WatchEvent,
    Writes,
    to_bytes,
    to_columns,
    to_doomed_range,
    to_page_limit,
    to_part_count,
    to_range,
    to_range_read,
)
from pequod.freshness import WAIT_S, Freshness, Token
from pequod.interface.carried import in_place, logged, outcome_of
from pequod.interface.commands import Commands
from pequod.interface.declared import carry_out, plan_of
from pequod.interface.keys import AsyncKeyCalls
from pequod.interface.transaction_parts import TransactionCommand, transaction_of_parts
from pequod.language.deadlines import to_ttl_ms
from pequod.language.transactions import KeyCompare


class AsyncCalls(AsyncKeyCalls):
    """The calls of a client whose callers await.

    A read says by ``freshness`` how fresh its answer has to be: `pequod.ANY`, `pequod.after(token)`, `pequod.LATEST` or
    `pequod.max_age(age_s)`. If it says nothing, it takes what is there; in a session, what the session has seen. It
    raises StaleError if the answer cannot be as fresh in time, TokenLostError if the state of its token is lost.
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    @abstractmethod
    def server_id(self) -> int:
        """The id of the server in the latest reply, 0 before the first; of a store in the process a random one."""

    @property
    @abstractmethod
    def revision(self) -> int:
        """The revision in the latest reply; it grows with every change of base data and of joins."""

    @abstractmethod
    async def close(self) -> None:
        """Close the client; calls under way fail, and so do those that follow. Closing twice is no error."""

    @property
    @abstractmethod
    def last_token(self) -> Token:
        """The token in the latest reply: it names the state that answered, after a write one that has the write."""

    @property
    @abstractmethod
    def last_age_s(self) -> float | None:
        """The age in the latest reply: the state that answered lacks nothing older; None if it is not known."""

    @abstractmethod
    def batch(self, freshness: Freshness | None = None) -> Commands:
        """Return an empty batch of commands, to be sent together.

        Args:
            freshness: How fresh the answers of its reads have to be, but for those that say it themselves.
        """

    @abstractmethod
    def session(self, token: AnyToken | None = None, *, wait_s: float = WAIT_S) -> AsyncSession:
        """Return a view of this client whose reads never go back: they show what calls of the session have shown.

        A read shows what the session has written and read by the calls that ended before it, whichever server beside
        the same database it asks; otherwise it fails with StaleError after ``wait_s``.

        Args:
            token: What an earlier session has seen; this one goes on from there.
        """

    # Data.

    async def multi_get(self, keys: Iterable[Data], *, freshness: Freshness | None = None) -> list[bytes | None]:
        """Return the values of ``keys`` in order, None for absent ones; those of one reply are of one moment."""
        return await self._multi_get([to_bytes(key) for key in keys], freshness)

    async def multi_put(self, rows: Writes, *, ttl_s: float | None = None, keep_ttl: bool = False) -> None:
        """Write many base keys at one moment, all or none.

        Args:
            ttl_s: The seconds after which each of them expires, as `put` has it.
            keep_ttl: Instead: each expires when it would have without this write.

        Raises:
            ComputedKeyError, InvalidKeyError, LimitExceededError: One row is refused, so nothing is written.
            InvalidTtlError, NoDeadlineError: As `put`; nothing is written.
        """
        await self._multi_put(*to_columns(rows), to_ttl_ms(ttl_s, keep=keep_ttl))

    async def transaction(
        self,
        compares: Iterable[KeyCompare],
        then: Iterable[TransactionCommand],
        otherwise: Iterable[TransactionCommand] = (),
        freshness: Freshness | None = None,
    ) -> Transacted:
        """Run ``then`` if all compares of base keys hold, else ``otherwise``: at one revision, and all or none."""
        return await self._transact(transaction_of_parts(compares, then, otherwise), freshness)

    async def remove_range(self, first: Data | None = None, last: Data | None = None, *, prefix: Data = b"") -> int:
        """Remove the base keys of ``[first, last)`` that start with ``prefix``; return their number.

        Computed keys are left to their joins. A server removes the keys in pieces, between which other calls run; if
        this takes longer than ``timeout_s``, the keys that were removed by then stay removed.
        """
        return await self._remove_range(*to_doomed_range(first, last, prefix))

    async def scan(
        self,
        first: Data = b"",
        last: Data | None = None,
        *,
        prefix: Data = b"",
        limit: int | None = None,
        reverse: bool = False,
        freshness: Freshness | None = None,
    ) -> list[Row]:
        """Return the rows of ``[first, last)`` that start with ``prefix``, in key order; without ``last`` to the end.

        More rows than fit into one reply (some thousands) are fetched in pieces, each exact at its own revision.
        """
        turn = self._reading(freshness)
        turn.scan(first, last, prefix=prefix, limit=limit, reverse=reverse)
        rows: Rows = outcome_of(await turn.last_result(len(first) + len(last or b"") + len(prefix)))
        return list(zip(rows.keys, rows.values, strict=True))

    async def scan_iter(
        self,
        first: Data = b"",
        last: Data | None = None,
        *,
        prefix: Data = b"",
        limit: int | None = None,
        reverse: bool = False,
        freshness: Freshness | None = None,
    ) -> AsyncGenerator[Row]:
        """Yield the rows of a large range as they come; each chunk is exact at its own revision.

        Each chunk has ``timeout_s`` to come; the time that the caller takes between rows does not count.
        """
        read = to_range_read(first, last, prefix=prefix, limit=limit, reverse=reverse, freshness=freshness)
        async with aclosing(self._chunks(read)) as chunks:
            async for keys, values in chunks:
                for row in zip(keys, values, strict=True):
                    yield row

    async def scan_chunks(
        self,
        first: Data = b"",
        last: Data | None = None,
        *,
        prefix: Data = b"",
        keys_only: bool = False,
        freshness: Freshness | None = None,
    ) -> AsyncGenerator[Rows]:
        """Yield the rows of a large range in chunks, as columns, for bulk processing.

        Each chunk is exact at its own revision, and none is empty. With ``keys_only`` the values are not sent.
        """
        read = to_range_read(first, last, prefix=prefix, keys_only=keys_only, freshness=freshness)
        async with aclosing(self._chunks(read)) as chunks:
            async for rows in chunks:
                if rows.keys:
                    yield rows

    async def keys_iter(
        self,
        first: Data = b"",
        last: Data | None = None,
        *,
        prefix: Data = b"",
        limit: int | None = None,
        reverse: bool = False,
        freshness: Freshness | None = None,
    ) -> AsyncGenerator[bytes]:
        """Yield the keys of a range, as `scan_iter` yields rows; their values are not sent."""
        read = to_range_read(
            first, last, prefix=prefix, limit=limit, reverse=reverse, keys_only=True, freshness=freshness
        )
        async with aclosing(self._chunks(read)) as chunks:
            async for rows in chunks:
                for key in rows.keys:
                    yield key

    async def keys(
        self,
        first: Data = b"",
        last: Data | None = None,
        *,
        prefix: Data = b"",
        limit: int | None = None,
        reverse: bool = False,
        freshness: Freshness | None = None,
    ) -> list[bytes]:
        """Return the keys of a range; their values are not sent."""
        return await self._keys(
            to_range_read(first, last, prefix=prefix, limit=limit, reverse=reverse, keys_only=True, freshness=freshness)
        )

    async def scan_page(
        self,
        first: Data = b"",
        last: Data | None = None,
        *,
        prefix: Data = b"",
        limit: int | None = None,
        reverse: bool = False,
        resume_key: bytes | None = None,
        freshness: Freshness | None = None,
    ) -> Page:
        """Return some rows of a range and the key of the next page: at most ``limit``, and at most a chunk.

        With the ``resume_key`` of a page, they are the next ones of the same range.
        """
        most = to_page_limit(limit)
        read = to_range_read(first, last, prefix=prefix, limit=most, reverse=reverse, freshness=freshness)
        return await self._page(read if resume_key is None else read.resumed(resume_key))

    async def count(
        self, first: Data = b"", last: Data | None = None, *, prefix: Data = b"", freshness: Freshness | None = None
    ) -> int:
        """Return the number of keys of ``[first, last)`` that start with ``prefix``; without both, of all keys."""
        turn = self._reading(freshness)
        turn.count(first, last, prefix=prefix)
        return int(outcome_of(await turn.last_result(len(first) + len(last or b"") + len(prefix))))

    async def splits(
        self, count: int, first: Data = b"", last: Data | None = None, *, prefix: Data = b""
    ) -> list[bytes]:
        """Return up to ``count - 1`` ascending keys that cut a range into parts of about equal numbers of rows.

        Rows that are present count: a computed range that has not been read yet is one part.

        Raises:
            ValueError, LimitExceededError: ``count`` is below 1, or too high.
        """
        start, stop = to_range(first, last, prefix)
        return await self._splits(start, stop, to_part_count(count))

    async def watch(
        self,
        first: Data,
        last: Data | None = None,
        *,
        rows: bool = False,
        reconnect_s: float = 30.0,
        progress_s: float | None = None,
        after: WatchEvent | None = None,
        freshness: Freshness | None = None,
    ) -> AsyncGenerator[WatchEvent]:
        """Yield the changes in ``[first, last)``, computed keys included, until the iterator is closed.

        The first event comes when the watch is established; with ``rows`` it holds the rows of the range. Each later
        one has the changes since then. A broken connection is made again, and nothing is missed. Closing the client
        ends the iterator with ClosedError.

        Args:
            reconnect_s: How long to try to reach a server again.
            after: Continue after this event of an earlier watch of the same range.
            freshness: How fresh the state has to be at which the watch begins.
            progress_s: After this time without a change, give an event without any: nothing is missing so far.

        Raises:
            NotWatchableError: A join over the range is not push.
            WatchCompactedError: Some changes are not kept any more, or the joins of the range changed: start again.
            UnavailableError: The server cannot be reached.
        """
        start, stop = to_range(first, last)
        events = self._watch(
            start, stop, rows=rows, reconnect_s=reconnect_s, progress_s=progress_s, after=after, freshness=freshness
        )
        async with aclosing(events):
            async for event in events:
                yield event

    # Joins and state.

    async def add_join(self, text: str) -> list[Join]:
        """Install the joins of ``text``, all or none; joins that are installed already stay as they are.

        Raises:
            JoinError: With the place in ``text``, the reason and a hint.
        """
        # To the log, too: most callers do not look at what is returned.
        return logged(await self._add_join(text))

    async def set_joins(self, text: str, *, dry_run: bool = False) -> JoinChanges:
        """Make the joins of ``text`` the only ones: add the new ones, then drop all that are not in it.

        Installed joins stay with their rows, however they are written. One that has changed is added anew, then the old
        one is dropped. After a failure, the same call ends the work. With ``dry_run`` nothing changes.

        Raises:
            JoinError: A join is wrong, or another one of the text would hide it; nothing has changed.
        """
        plan = plan_of(text, await self._joins())
        if not dry_run and plan.changes:
            names = await carry_out(plan, text, self._add_join, self._drop_join)
            return plan.changes.with_added(logged([join for join in await self._joins() if join.name in names]))
        return plan.changes

    async def drop_join(self, name: str) -> None:
        """Drop a join and its outputs."""
        await self._drop_join(name)

    async def replace_join(self, name: str, text: str) -> ReplacementStatus:
        """Put a join in the place of the installed one of a name, and return once it is there.

        It is built beside the old one for the ranges that were read; reads see the old rows until all see the new ones,
        at one revision. A caller that gives up does not end it: `cancel_replacement` does.

        Raises:
            JoinError: It cannot be installed, or not in this place; nothing has changed.
            NotReplaceableError, ReplacementEndedError: Not now; or it was cancelled, or could not be built.
        """
        return in_place(await self._replace_join(name, text))

    async def undo_replacement(self, name: str) -> ReplacementStatus:
        """Put back what a join was before it was replaced the last time, as `replace_join` does."""
        return in_place(await self._replace_join(name, None))

    async def cancel_replacement(self, name: str) -> None:
        """End the replacement of a join that is not in its place yet; if there is none, nothing changes."""
        await self._cancel_replacement(name)

    async def replacements(self) -> list[ReplacementStatus]:
        """Return the replacement under way, and then the latest that ended."""
        return await self._replacements()

    async def joins(self) -> list[Join]:
        """Return the installed joins, the earliest first."""
        return await self._joins()

    async def explain_join(self, name: str) -> JoinExplanation:
        """Return how a join is evaluated and kept."""
        return await self._explain_join(name)

    async def explain_range(self, first: Data, last: Data | None = None) -> RangeExplanation:
        """Return what a read of ``[first, last)`` would find and would have to do."""
        return await self._explain_range(*to_range(first, last))

    async def invalidate_range(self, first: Data, last: Data | None = None) -> int:
        """Drop the computed rows of a range and those that they came from; return how many contexts went directly."""
        return await self._invalidate_range(*to_range(first, last))

    async def invalidate_join(self, name: str) -> int:
        """Drop everything that a join computed, as `invalidate_range` does."""
        return await self._invalidate_join(name)

    @abstractmethod
    async def statistics(self) -> Statistics:
        """Return counts of what the server holds and has done."""


class AsyncSession(AsyncCalls):
    """The calls of a session: see `AsyncCalls.session`."""

    @abstractmethod
    async def close(self) -> None:
        """End the session; the client, which others may use, stays open."""

    @property
    @abstractmethod
    def token(self) -> Token:
        """The state that the session has seen; as text, in a cookie or a message, it goes to another session."""
