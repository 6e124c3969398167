"""A store for callers that await: all calls, carried out on an engine in the process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from pequod_grammar import parse

from pequod.calls import Join, Page, RangeRead, Result, WatchEvent
from pequod.embedded.batch import AsyncEmbeddedBatch, Command, EngineCommands
from pequod.embedded.shared import SharedEngine
from pequod.engine import Engine, JoinExplanation, RangeExplanation, Rows, Statistics
from pequod.errors import JoinError
from pequod.interface import AsyncCalls

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
        self._turn = partial(_Turn, shared)

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

    def batch(self) -> AsyncEmbeddedBatch:
        """Return an empty batch of commands, to be sent together."""
        return AsyncEmbeddedBatch(self._shared.run)

    async def statistics(self) -> Statistics:
        """Return counts of what the server holds and has done."""
        return self._shared.run(lambda engine: engine.statistics(now=time.monotonic()))

    # The calls of `AsyncCalls`, carried out on the engine.

    async def _multi_get(self, keys: list[bytes]) -> list[bytes | None]:
        now = time.monotonic()
        return self._shared.run(lambda engine: [engine.get(key, now=now) for key in keys])

    async def _multi_put(self, keys: list[bytes], values: list[bytes]) -> None:
        self._shared.run(lambda engine: engine.put_all(keys, values))

    async def _remove_range(self, first: bytes, last: bytes | None) -> int:
        return self._shared.run(lambda engine: len(engine.remove_range(first, last)))

    async def _chunks(self, read: RangeRead) -> AsyncGenerator[Rows]:
        remaining = read.limit
        while remaining is None or remaining > 0:
            rows, resume_key = self._chunk(read._replace(limit=remaining))
            yield Rows(rows.keys, []) if read.keys_only else rows
            if resume_key is None:
                return
            read = read.resumed(resume_key)
            if remaining is not None:
                remaining -= len(rows.keys)

    async def _keys(self, read: RangeRead) -> list[bytes]:
        return self._rows(read).keys

    async def _page(self, read: RangeRead) -> Page:
        rows, resume_key = self._chunk(read)
        return Page(list(zip(rows.keys, rows.values, strict=True)), resume_key)

    def _chunk(self, read: RangeRead) -> tuple[Rows, bytes | None]:
        """Return some rows of a range and the key of the next ones; None after the last."""
        size = min(read.limit or ROWS_MAX, ROWS_MAX)
        rows = self._rows(read._replace(limit=size + 1))
        if len(rows.keys) <= size:
            return rows, None
        last_key = rows.keys[size - 1]
        return Rows(rows.keys[:size], rows.values[:size]), last_key if read.reverse else last_key + b"\0"

    def _rows(self, read: RangeRead) -> Rows:
        first, last, limit, reverse, _ = read
        return self._shared.run(
            lambda engine: engine.scan(first, last, limit=limit, reverse=reverse, now=time.monotonic())
        )

    async def _splits(self, first: bytes, last: bytes | None, count: int) -> list[bytes]:
        return self._shared.run(lambda engine: engine.splits(first, last, count))

    async def _watch(
        self,
        first: bytes,
        last: bytes | None,
        *,
        rows: bool,
        reconnect_s: float,  # noqa: ARG002 - there is no connection
        progress_s: float | None,
        after: WatchEvent | None,
    ) -> AsyncGenerator[WatchEvent]:
        news = self._make_news()
        watch, event = self._shared.follow(first, last, news.set, rows=rows, after=after)
        try:
            yield event
            while True:
                is_late = not await news.wait(progress_s)
                event = self._shared.settle(watch)
                if event.changes or is_late:
                    yield event
        finally:
            self._shared.unfollow(watch)

    async def _add_join(self, text: str) -> list[Join]:
        try:
            joins = self._shared.run(lambda engine: engine.add_joins(parse(text)))
        except JoinError as error:
            raise error.with_text(text) from None
        return [Join(join.name, str(join.spec), join.warnings) for join in joins]

    async def _drop_join(self, name: str) -> None:
        self._shared.run(lambda engine: engine.drop_join(name))

    async def _joins(self) -> list[Join]:
        return [Join(join.name, str(join.spec), join.warnings) for join in self._shared.run(Engine.joins)]

    async def _explain_join(self, name: str) -> JoinExplanation:
        return self._shared.run(lambda engine: engine.explain_join(name))

    async def _explain_range(self, first: bytes, last: bytes | None) -> RangeExplanation:
        return self._shared.run(lambda engine: engine.explain_range(first, last, now=time.monotonic()))

    async def _invalidate_range(self, first: bytes, last: bytes | None) -> int:
        return self._shared.run(lambda engine: engine.invalidate(first, last))

    async def _invalidate_join(self, name: str) -> int:
        return self._shared.run(lambda engine: engine.invalidate_join(name))


class _Turn(EngineCommands):
    """The command of one call."""

    __slots__ = ("_command", "_shared")
    _command: Command

    def __init__(self, shared: SharedEngine) -> None:
        self._shared = shared

    def _add(self, command: Command) -> None:
        self._command = command

    async def last_result(self, _argument_bytes: int) -> Result:
        """Run the command; its error is raised."""
        return self._shared.run(self._command)
