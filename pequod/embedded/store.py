"""The engine behind a lock, with the calls of `pequod.Client`."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Generator, Iterable
from types import TracebackType
from typing import Final, Self, TypeVar

from pequod_grammar import parse

from pequod.calls import (
    Data,
    Join,
    Page,
    Row,
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
from pequod.embedded.batch import EmbeddedBatch
from pequod.engine import Engine, JoinExplanation, RangeExplanation, Rows, Statistics
from pequod.engine.joins.watches import Watch
from pequod.errors import ClosedError, JoinError, WatchCompactedError

T = TypeVar("T")

#: Iterators and pages take so many rows at a time, so that other threads have their turn.
ROWS_MAX: Final = 1000


class Embedded:
    """A store in the process; safe to use from many threads.

    The calls are those of `Client`, where they are described. Each is done when it returns.

    Example:
        with pequod.open() as client:
            client.put("p|bob|0000000100", "Hi")
    """

    def __init__(self, *, key_bytes_max: int, value_bytes_max: int) -> None:
        self._engine = Engine(key_bytes_max=key_bytes_max, value_bytes_max=value_bytes_max)
        # An iterator that the garbage collector closes may do so in the middle of a call of the same thread.
        self._lock = threading.RLock()
        self._is_closed = False
        #: What wakes those who follow a watch.
        self._wakes: dict[Watch, Callable[[], None]] = {}
        #: Random, as that of a server.
        self.server_id = secrets.randbits(63)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def revision(self) -> int:
        """Grows with every change of base data and of joins."""
        return self._engine.revision

    def close(self) -> None:
        """Let go of everything; calls fail from now on. Closing twice is no error."""
        with self._lock:
            self._is_closed = True
            self._engine = Engine()
            for wake in self._wakes.values():
                wake()

    def run(self, ask: Callable[[Engine], T]) -> T:
        """Have the engine to oneself for one call.

        Raises:
            ClosedError: The store has been closed.
        """
        with self._lock:
            if self._is_closed:
                raise ClosedError
            self._engine.tell_time(time.monotonic())
            return ask(self._engine)

    # Data.

    def get(self, key: Data) -> bytes | None:
        """Return the value of ``key``, None if there is no such key."""
        wanted = to_bytes(key)
        return self.run(lambda engine: engine.get(wanted, now=time.monotonic()))

    def put(self, key: Data, value: Data) -> None:
        """Write a base key."""
        new_key, new_value = to_bytes(key), to_bytes(value)
        self.run(lambda engine: engine.put(new_key, new_value))

    def remove(self, key: Data) -> bool:
        """Remove a base key; tell whether it was there."""
        doomed = to_bytes(key)
        return self.run(lambda engine: engine.remove(doomed))

    def multi_get(self, keys: Iterable[Data]) -> list[bytes | None]:
        """Return the values of ``keys`` in their order, None for each that is absent; all are of one moment."""
        wanted = [to_bytes(key) for key in keys]
        now = time.monotonic()
        return self.run(lambda engine: [engine.get(key, now=now) for key in wanted])

    def multi_put(self, rows: Writes) -> None:
        """Write many base keys at one moment, all or none."""
        keys, values = to_columns(rows)
        self.run(lambda engine: engine.put_all(keys, values))

    def remove_range(self, first: Data | None = None, last: Data | None = None, *, prefix: Data = b"") -> int:
        """Remove the base keys of ``[first, last)`` that start with ``prefix``; return how many there were."""
        start, stop = to_doomed_range(first, last, prefix)
        return self.run(lambda engine: len(engine.remove_range(start, stop)))

    def scan(
        self,
        first: Data = b"",
        last: Data | None = None,
        *,
        prefix: Data = b"",
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[Row]:
        """Return the rows of ``[first, last)`` that start with ``prefix``, in key order, all of one moment."""
        rows = self._rows(*to_range(first, last, prefix), to_limit(limit), reverse=reverse)
        return list(zip(rows.keys, rows.values, strict=True))

    def scan_iter(
        self,
        first: Data = b"",
        last: Data | None = None,
        *,
        prefix: Data = b"",
        limit: int | None = None,
        reverse: bool = False,
    ) -> Generator[Row]:
        """Yield the rows of a range, taken some at a time, each time as they are then."""
        remaining, resume_key = to_limit(limit), None
        while remaining is None or remaining > 0:
            size = ROWS_MAX if remaining is None else min(remaining, ROWS_MAX)
            page = self.scan_page(first, last, prefix=prefix, limit=size, reverse=reverse, resume_key=resume_key)
            yield from page.rows
            if page.resume_key is None:
                return
            resume_key = page.resume_key
            if remaining is not None:
                remaining -= len(page.rows)

    def scan_chunks(
        self,
        first: Data = b"",
        last: Data | None = None,
        *,
        prefix: Data = b"",
        keys_only: bool = False,
    ) -> Generator[Rows]:
        """Yield the rows of a range in chunks, as columns, each as it is then; with ``keys_only`` without values."""
        resume_key, has_more = None, True
        while has_more:
            page = self.scan_page(first, last, prefix=prefix, resume_key=resume_key)
            if page.rows:
                keys, values = zip(*page.rows, strict=True)
                yield Rows(list(keys), [] if keys_only else list(values))
            resume_key, has_more = page.resume_key, page.resume_key is not None

    def keys_iter(
        self,
        first: Data = b"",
        last: Data | None = None,
        *,
        prefix: Data = b"",
        limit: int | None = None,
        reverse: bool = False,
    ) -> Generator[bytes]:
        """Yield the keys of a range as `scan_iter` does it."""
        for key, _ in self.scan_iter(first, last, prefix=prefix, limit=limit, reverse=reverse):
            yield key

    def keys(
        self,
        first: Data = b"",
        last: Data | None = None,
        *,
        prefix: Data = b"",
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[bytes]:
        """Return the keys of a range."""
        return self._rows(*to_range(first, last, prefix), to_limit(limit), reverse=reverse).keys

    def scan_page(
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
        start, stop = to_page_range(first, last, prefix, resume_key, reverse=reverse)
        size = min(to_page_limit(limit) or ROWS_MAX, ROWS_MAX)
        rows = self._rows(start, stop, size + 1, reverse=reverse)
        pairs = list(zip(rows.keys[:size], rows.values[:size], strict=True))
        if len(rows.keys) <= size:
            return Page(pairs, None)
        last_key, _ = pairs[-1]
        return Page(pairs, last_key if reverse else last_key + b"\0")

    def _rows(self, start: bytes, stop: bytes | None, limit: int | None, *, reverse: bool) -> Rows:
        return self.run(lambda engine: engine.scan(start, stop, limit=limit, reverse=reverse, now=time.monotonic()))

    def count(self, first: Data = b"", last: Data | None = None, *, prefix: Data = b"") -> int:
        """Return how many keys of ``[first, last)`` start with ``prefix``; without both, how many there are."""
        start, stop = to_range(first, last, prefix)
        return self.run(lambda engine: engine.count(start, stop, now=time.monotonic()))

    def splits(self, count: int, first: Data = b"", last: Data | None = None, *, prefix: Data = b"") -> list[bytes]:
        """Return up to ``count - 1`` keys that cut a range into parts of about equal numbers of rows.

        They ascend. What is held counts: a computed range that nobody has read yet is one part.

        Raises:
            ValueError: ``count`` is below 1.
        """
        start, stop = to_range(first, last, prefix)
        parts = to_part_count(count)
        return self.run(lambda engine: engine.splits(start, stop, parts))

    def watch(
        self,
        first: Data,
        last: Data | None = None,
        *,
        rows: bool = False,
        reconnect_s: float = 30.0,  # noqa: ARG002 - there is no connection
        progress_s: float | None = None,
        after: WatchEvent | None = None,
    ) -> Generator[WatchEvent]:
        """Yield what happens in ``[first, last)``, computed keys included, until the iterator is closed.

        Waits for the next event; closing the store from another thread ends that with ClosedError. What happens is
        kept until it is taken, however much it is.

        Raises:
            NotWatchableError: A join over the range is not push.
            WatchCompactedError: The joins of the range changed, or something did since ``after``: start again.
        """
        news = threading.Event()
        watch, event = self.follow(first, last, news.set, rows=rows, after=after)
        try:
            yield event
            while True:
                is_late = not news.wait(progress_s)
                news.clear()
                event = self.settle(watch)
                if event.changes or is_late:
                    yield event
        finally:
            self.unfollow(watch)

    def follow(
        self,
        first: Data,
        last: Data | None,
        wake: Callable[[], None],
        *,
        rows: bool,
        after: WatchEvent | None = None,
    ) -> tuple[Watch, WatchEvent]:
        """Begin to watch a range; ``wake`` is called from any thread when there is something to settle."""
        start, stop = to_range(first, last)
        now = time.monotonic()

        def begin(engine: Engine) -> tuple[Watch, WatchEvent]:
            if after is not None and (after.server_id, after.revision) != (self.server_id, engine.revision):
                raise WatchCompactedError("a store in the process keeps no changes for those who do not follow")
            watch = engine.watch(start, stop, wake, now=now)
            self._wakes[watch] = wake
            found = engine.scan(start, stop, now=now) if rows else None
            return watch, WatchEvent(engine.revision, [], found, self.server_id)

        return self.run(begin)

    def settle(self, watch: Watch) -> WatchEvent:
        """Return what happened in a watched range since the last time."""

        def take(engine: Engine) -> WatchEvent:
            changes = engine.settle(watch, now=time.monotonic())
            if watch.ended is not None:
                raise WatchCompactedError(watch.ended)
            return WatchEvent(engine.revision, changes, server_id=self.server_id)

        return self.run(take)

    def unfollow(self, watch: Watch) -> None:
        """Watch a range no more."""
        with self._lock:
            del self._wakes[watch]
            if not self._is_closed:
                self._engine.unwatch(watch)

    def batch(self) -> EmbeddedBatch:
        """Return an empty batch of commands, to be run with nothing in between."""
        return EmbeddedBatch(self.run)

    # Joins and state.

    def add_join(self, text: str) -> list[Join]:
        """Install the joins of ``text``, all or none; those that are installed already stay as they are."""
        try:
            joins = self.run(lambda engine: engine.add_joins(parse(text)))
        except JoinError as error:
            raise error.with_text(text) from None
        return [Join(join.name, str(join.spec), join.warnings) for join in joins]

    def drop_join(self, name: str) -> None:
        """Take out a join and its outputs."""
        self.run(lambda engine: engine.drop_join(name))

    def joins(self) -> list[Join]:
        """Return the installed joins, the earliest first."""
        return [Join(join.name, str(join.spec), join.warnings) for join in self.run(Engine.joins)]

    def explain_join(self, name: str) -> JoinExplanation:
        """Return how a join is evaluated and kept."""
        return self.run(lambda engine: engine.explain_join(name))

    def invalidate_range(self, first: Data, last: Data | None = None) -> int:
        """Forget what is computed of ``[first, last)``, and what that was computed from; reads compute it anew."""
        start, stop = to_range(first, last)
        return self.run(lambda engine: engine.invalidate(start, stop))

    def invalidate_join(self, name: str) -> int:
        """Forget everything that a join computed, as `invalidate_range` does."""
        return self.run(lambda engine: engine.invalidate_join(name))

    def explain_range(self, first: Data, last: Data | None = None) -> RangeExplanation:
        """Return what a read of ``[first, last)`` would find and have to do."""
        start, stop = to_range(first, last)
        return self.run(lambda engine: engine.explain_range(start, stop, now=time.monotonic()))

    def statistics(self) -> Statistics:
        """Return what the store holds and did."""
        return self.run(lambda engine: engine.statistics(now=time.monotonic()))
