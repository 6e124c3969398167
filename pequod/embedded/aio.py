"""A store for callers that await: all calls, carried out on an engine in the process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from functools import partial
from typing import Final, Protocol, TypeVar

from pequod_grammar import parse_some

from pequod.answers.joins import Join, ReplacementStatus
from pequod.answers.transacted import Transacted
from pequod.calls import AnyToken, Page, RangeRead, Result, Results, WatchEvent, to_token
from pequod.embedded.batch import AsyncEmbeddedBatch
from pequod.embedded.shared import SharedEngine
from pequod.engine import Engine, JoinExplanation, RangeExplanation, Rows, Statistics
from pequod.engine.transacting import refuse, transact
from pequod.errors import JoinError
from pequod.freshness import WAIT_S, Freshness, Token
from pequod.interface import AsyncCalls, AsyncSession
from pequod.interface.commands import Turn
from pequod.interface.seen import Seen
from pequod.language.transactions import COMMANDS_MAX, Transaction

T = TypeVar("T")

#: Iterators and pages take this many rows at a time, so that other threads have their turn.
ROWS_MAX: Final = 1000


class News(Protocol):
    """Wakes a watch."""

    def set(self) -> None:
        """Wake it, from any thread."""

    async def wait(self, timeout_s: float | None) -> bool:
        """Wait for news since the last wait; False if there was none for ``timeout_s``."""


class LoopNews:
    """Wakes a watch in the event loop in which it was made."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wake it, from any thread."""
        self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, timeout_s: float | None) -> bool:
        """Wait for news since the last wait; False if there was none for ``timeout_s``."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        is_set = self._event.is_set()
        self._event.clear()
        return is_set


class AsyncEmbedded(AsyncCalls):
    """A store in the process for callers that await.

    Only a watch ever waits: any other call is done at once, in the event loop.

    Args:
        make_news: Makes the object that wakes a watch.

    Example:
        async with pequod.open_async() as client:
            await client.put("p|bob|0000000100", "Hi")
    """

    def __init__(self, shared: SharedEngine, make_news: Callable[[], News] = LoopNews) -> None:
        self._shared = shared
        self._make_news = make_news
        self._writing = self._reading = partial(_Turn, shared)

    @property
    def server_id(self) -> int:
        """The id of the server in the latest reply, 0 before the first; of a store in the process a random one."""
        return self._shared.server_id

    @property
    def revision(self) -> int:
        """The revision in the latest reply; it grows with every change of base data and of joins."""
        return self._shared.revision

    async def close(self) -> None:
        """Close the client; calls under way fail, and so do those that follow. Closing twice is no error."""
        self._shared.close()

    @property
    def last_token(self) -> Token:
        """The token in the latest reply: it names the state that answered, after a write one that has the write."""
        return self._shared.token

    @property
    def last_age_s(self) -> float | None:
        """The age in the latest reply: the state that answered lacks nothing older; None if it is not known."""
        return 0.0

    def batch(self, freshness: Freshness | None = None) -> AsyncEmbeddedBatch:
        """Return an empty batch of commands, to be sent together.

        Args:
            freshness: How fresh the answers of its reads have to be, but for those that say it themselves.
        """
        return AsyncEmbeddedBatch(self._run_batch, self._meet, freshness)

    def session(self, token: AnyToken | None = None, *, wait_s: float = WAIT_S) -> AsyncEmbeddedSession:
        """Return a view of this client whose reads never go back: they show what calls of the session have shown.

        A read shows what the session has written and read by the calls that ended before it, whichever server beside
        the same database it asks; otherwise it fails with StaleError after ``wait_s``.

        Args:
            token: What an earlier session has seen; this one goes on from there.
        """
        return AsyncEmbeddedSession(self._shared, self._make_news, to_token(token), wait_s)

    async def statistics(self) -> Statistics:
        """Return counts of what the server holds and has done."""
        return self._run(lambda engine: engine.statistics(now=time.monotonic()))

    # How fresh reads are, and who notes it.

    def _meet(self, freshness: Freshness | None) -> None:
        """See that an answer is as fresh as a read asks for; see `SharedEngine.meet`."""
        self._shared.meet(freshness)

    def _run_batch(self, commands: Callable[[Engine], list[Result]]) -> Results:
        """Return the results of a batch."""
        return Results(self._run(commands), bytes(self._shared.token), 0, self.server_id, self.revision)

    def _note(self, token: Token) -> None:
        """Note what a watch has shown; only sessions do."""

    def _run(self, ask: Callable[[Engine], T]) -> T:
        return self._shared.run(ask)

    # The calls of `AsyncCalls`, carried out on the engine.

    async def _multi_get(self, keys: list[bytes], freshness: Freshness | None) -> list[bytes | None]:
        self._meet(freshness)
        now = time.monotonic()
        return self._run(lambda engine: [engine.get(key, now=now) for key in keys])

    async def _multi_put(self, keys: list[bytes], values: list[bytes], ttl_ms: int) -> None:
        self._run(lambda engine: engine.put_all(keys, values, ttl_ms))

    async def _transact(self, transaction: Transaction, freshness: Freshness | None) -> Transacted:
        refuse(transaction, COMMANDS_MAX)
        self._meet(freshness)
        return self._run(lambda engine: transact(engine, transaction, time.monotonic()))

    async def _remove_range(self, first: bytes, last: bytes | None) -> int:
        return self._run(lambda engine: len(engine.remove_range(first, last)))

    async def _chunks(self, read: RangeRead) -> AsyncGenerator[Rows]:
        remaining = read.limit
        while remaining is None or remaining > 0:
            rows, resume_key = await self._chunk(read._replace(limit=remaining))
            yield Rows(rows.keys, []) if read.keys_only else rows
            if resume_key is None:
                return
            read = read.resumed(resume_key)
            if remaining is not None:
                remaining -= len(rows.keys)

    async def _keys(self, read: RangeRead) -> list[bytes]:
        return (await self._rows(read)).keys

    async def _page(self, read: RangeRead) -> Page:
        rows, resume_key = await self._chunk(read)
        return Page(list(zip(rows.keys, rows.values, strict=True)), resume_key)

    async def _chunk(self, read: RangeRead) -> tuple[Rows, bytes | None]:
        """Return some rows of a range and the key of the next ones; None after the last."""
        size = min(read.limit or ROWS_MAX, ROWS_MAX)
        rows = await self._rows(read._replace(limit=size + 1))
        if len(rows.keys) <= size:
            return rows, None
        last_key = rows.keys[size - 1]
        return Rows(rows.keys[:size], rows.values[:size]), last_key if read.reverse else last_key + b"\0"

    async def _rows(self, read: RangeRead) -> Rows:
        turn = self._reading(read.freshness)
        turn.scan(read.first, read.last, limit=read.limit, reverse=read.reverse)
        rows = await turn.last_result(0)
        assert isinstance(rows, Rows), "scans give rows"
        return rows

    async def _splits(self, first: bytes, last: bytes | None, count: int) -> list[bytes]:
        return self._run(lambda engine: engine.splits(first, last, count))

    async def _watch(
        self,
        first: bytes,
        last: bytes | None,
        *,
        rows: bool,
        reconnect_s: float,  # noqa: ARG002 - there is no connection
        progress_s: float | None,
        after: WatchEvent | None,
        freshness: Freshness | None,
    ) -> AsyncGenerator[WatchEvent]:
        self._meet(freshness)
        news = self._make_news()
        watch, event = self._shared.follow(first, last, news.set, rows=rows, after=after)
        try:
            self._note(event.token)
            yield event
            while True:
                is_late = not await news.wait(progress_s)
                event = self._shared.settle(watch)
                if event.changes or is_late:
                    self._note(event.token)
                    yield event
        finally:
            self._shared.unfollow(watch)

    async def _add_join(self, text: str) -> list[Join]:
        try:
            joins = self._run(lambda engine: engine.add_joins(parse_some(text)))
        except JoinError as error:
            raise error.with_text(text) from None
        return [
            Join(join.name, str(join.spec), (*join.warnings, *(note.text for note in join.notes))) for join in joins
        ]

    async def _drop_join(self, name: str) -> None:
        self._run(lambda engine: engine.drop_join(name))

    async def _replace_join(self, name: str, text: str | None) -> ReplacementStatus:
        return self._shared.replacing.replace(name, text)

    async def _replacements(self) -> list[ReplacementStatus]:
        return self._shared.replacing.statuses()

    async def _cancel_replacement(self, name: str) -> None:
        self._shared.replacing.cancel(name)

    async def _joins(self) -> list[Join]:
        return [Join(join.name, str(join.spec), join.warnings) for join in self._run(Engine.joins)]

    async def _explain_join(self, name: str) -> JoinExplanation:
        return self._run(lambda engine: engine.explain_join(name))

    async def _explain_range(self, first: bytes, last: bytes | None) -> RangeExplanation:
        return self._run(lambda engine: engine.explain_range(first, last, now=time.monotonic()))

    async def _invalidate_range(self, first: bytes, last: bytes | None) -> int:
        return self._run(lambda engine: engine.invalidate(first, last))

    async def _invalidate_join(self, name: str) -> int:
        return self._run(lambda engine: engine.invalidate_join(name))


class AsyncEmbeddedSession(AsyncEmbedded, AsyncSession):
    """A view of a store in the process, with a token."""

    def __init__(self, shared: SharedEngine, make_news: Callable[[], News], token: Token, wait_s: float) -> None:
        super().__init__(shared, make_news)
        self._seen = Seen(token, wait_s)
        self._writing, self._reading = self._write_turn, self._read_turn

    @property
    def token(self) -> Token:
        """The state that the session has seen; as text, in a cookie or a message, it goes to another session."""
        return self._seen.token

    async def close(self) -> None:
        """End the session; the client, which others may use, stays open."""

    def _write_turn(self) -> _Turn:
        return _SessionTurn(self._shared, self._seen, None)

    def _read_turn(self, freshness: Freshness | None) -> _Turn:
        return _SessionTurn(self._shared, self._seen, self._seen.level(freshness))

    def _meet(self, freshness: Freshness | None) -> None:
        """See that an answer is as fresh as a read of the session asks for."""
        super()._meet(self._seen.level(freshness))

    def _note(self, token: Token) -> None:
        """Note what a call or a watch has shown."""
        self._seen.note(bytes(token))

    def _run(self, ask: Callable[[Engine], T]) -> T:
        try:
            return super()._run(ask)
        finally:
            self._note(self._shared.token)


class _Turn(Turn):
    """The command of one call, which is as fresh as all of the turn if it is a read."""

    __slots__ = ("_shared",)

    def __init__(self, shared: SharedEngine, freshness: Freshness | None = None) -> None:
        # Not by `Commands`, whose overrides it has no use for: each call makes a turn, and a get takes 2 µs.
        self.kinds, self.arguments, self.numbers = bytearray(), [], []
        self.freshness = freshness
        self._shared = shared

    async def last_result(self, _argument_bytes: int) -> Result:
        """Run the command; its error is raised."""
        if self.freshness is not None:
            self._shared.meet(self.freshness)
        return self._shared.answer(self)

    def tell(self, session: Seen) -> None:
        """Have a session note the state that the command shows: here it has turns of its own."""


class _SessionTurn(_Turn):
    """The command of one call of a session."""

    __slots__ = ("_seen",)

    def __init__(self, shared: SharedEngine, seen: Seen, freshness: Freshness | None) -> None:
        super().__init__(shared, freshness)
        self._seen = seen

    async def last_result(self, argument_bytes: int) -> Result:
        """Run the command; its error is raised."""
        try:
            return await super().last_result(argument_bytes)
        finally:
            self._seen.note(bytes(self._shared.token))
