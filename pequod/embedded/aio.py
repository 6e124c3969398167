"""A store for callers that await."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Self

from pequod.calls import Data, Join, Page, Row, WatchEvent, Writes
from pequod.embedded.batch import AsyncEmbeddedBatch
from pequod.embedded.store import Embedded
from pequod.engine import JoinExplanation, RangeExplanation, Rows, Statistics


class AsyncEmbedded:
    """A store in the process for callers that await; the calls are those of `AsyncClient`.

    Nothing waits for anything: a call is done at once, in the event loop.

    Example:
        async with pequod.open_async() as client:
            await client.put("p|bob|0000000100", "Hi")
    """

    def __init__(self, store: Embedded) -> None:
        self._store = store

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def server_id(self) -> int:
        """Random, as that of a server."""
        return self._store.server_id

    @property
    def revision(self) -> int:
        """Grows with every change of base data and of joins."""
        return self._store.revision

    async def close(self) -> None:
        """Let go of everything; calls fail from now on. Closing twice is no error."""
        self._store.close()

    async def get(self, key: Data) -> bytes | None:
        """Return the value of ``key``, None if there is no such key."""
        return self._store.get(key)

    async def put(self, key: Data, value: Data) -> None:
        """Write a base key."""
        self._store.put(key, value)

    async def remove(self, key: Data) -> bool:
        """Remove a base key; tell whether it was there."""
        return self._store.remove(key)

    async def multi_get(self, keys: Iterable[Data]) -> list[bytes | None]:
        """Return the values of ``keys`` in their order, None for each that is absent; all are of one moment."""
        return self._store.multi_get(keys)

    async def multi_put(self, rows: Writes) -> None:
        """Write many base keys at one moment, all or none."""
        self._store.multi_put(rows)

    async def remove_range(self, first: Data | None = None, last: Data | None = None, *, prefix: Data = b"") -> int:
        """Remove the base keys of ``[first, last)`` that start with ``prefix``; return how many there were."""
        return self._store.remove_range(first, last, prefix=prefix)

    async def scan(
        self,
        first: Data = b"",
        last: Data | None = None,
        *,
        prefix: Data = b"",
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[Row]:
        """Return the rows of ``[first, last)`` that start with ``prefix``, in key order, all of one moment."""
        return self._store.scan(first, last, prefix=prefix, limit=limit, reverse=reverse)

    async def scan_iter(
        self,
        first: Data = b"",
        last: Data | None = None,
        *,
        prefix: Data = b"",
        limit: int | None = None,
        reverse: bool = False,
    ) -> AsyncGenerator[Row]:
        """Yield the rows of a range, taken some at a time, each time as they are then."""
        for row in self._store.scan_iter(first, last, prefix=prefix, limit=limit, reverse=reverse):
            yield row

    async def scan_chunks(
        self,
        first: Data = b"",
        last: Data | None = None,
        *,
        prefix: Data = b"",
        keys_only: bool = False,
    ) -> AsyncGenerator[Rows]:
        """Yield the rows of a range in chunks; see `Embedded.scan_chunks`."""
        for chunk in self._store.scan_chunks(first, last, prefix=prefix, keys_only=keys_only):
            yield chunk

    async def keys_iter(
        self,
        first: Data = b"",
        last: Data | None = None,
        *,
        prefix: Data = b"",
        limit: int | None = None,
        reverse: bool = False,
    ) -> AsyncGenerator[bytes]:
        """Yield the keys of a range as `scan_iter` does it."""
        for key in self._store.keys_iter(first, last, prefix=prefix, limit=limit, reverse=reverse):
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
        """Return the keys of a range."""
        return self._store.keys(first, last, prefix=prefix, limit=limit, reverse=reverse)

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
        """Return some rows of a range, a thousand at most, and the key to go on from."""
        return self._store.scan_page(first, last, prefix=prefix, limit=limit, reverse=reverse, resume_key=resume_key)

    async def count(self, first: Data = b"", last: Data | None = None, *, prefix: Data = b"") -> int:
        """Return how many keys of ``[first, last)`` start with ``prefix``; without both, how many there are."""
        return self._store.count(first, last, prefix=prefix)

    async def splits(
        self, count: int, first: Data = b"", last: Data | None = None, *, prefix: Data = b""
    ) -> list[bytes]:
        """Return keys that cut a range into parts of about equal numbers of rows; see `Embedded.splits`."""
        return self._store.splits(count, first, last, prefix=prefix)

    async def watch(
        self,
        first: Data,
        last: Data | None = None,
        *,
        rows: bool = False,
        reconnect_s: float = 30.0,  # noqa: ARG002 - there is no connection
        progress_s: float | None = None,
        after: WatchEvent | None = None,
    ) -> AsyncGenerator[WatchEvent]:
        """Yield what happens in ``[first, last)``, computed keys included; see `Embedded.watch`."""
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(news.set)

        watch, event = self._store.follow(first, last, wake, rows=rows, after=after)
        try:
            yield event
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(progress_s):
                        await news.wait()
                is_late = not news.is_set()
                news.clear()
                event = self._store.settle(watch)
                if event.changes or is_late:
                    yield event
        finally:
            self._store.unfollow(watch)

    def batch(self) -> AsyncEmbeddedBatch:
        """Return an empty batch of commands, to be run with nothing in between."""
        return AsyncEmbeddedBatch(self._store.run)

    async def add_join(self, text: str) -> list[Join]:
        """Install the joins of ``text``, all or none; those that are installed already stay as they are."""
        return self._store.add_join(text)

    async def drop_join(self, name: str) -> None:
        """Take out a join and its outputs."""
        self._store.drop_join(name)

    async def joins(self) -> list[Join]:
        """Return the installed joins, the earliest first."""
        return self._store.joins()

    async def explain_join(self, name: str) -> JoinExplanation:
        """Return how a join is evaluated and kept."""
        return self._store.explain_join(name)

    async def explain_range(self, first: Data, last: Data | None = None) -> RangeExplanation:
        """Return what a read of ``[first, last)`` would find and have to do."""
        return self._store.explain_range(first, last)

    async def invalidate_range(self, first: Data, last: Data | None = None) -> int:
        """Forget what is computed of ``[first, last)``, and what that was computed from; reads compute it anew."""
        return self._store.invalidate_range(first, last)

    async def invalidate_join(self, name: str) -> int:
        """Forget everything that a join computed, as `invalidate_range` does."""
        return self._store.invalidate_join(name)

    async def statistics(self) -> Statistics:
        """Return what the store holds and did."""
        return self._store.statistics()
