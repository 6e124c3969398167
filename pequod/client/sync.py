"""The synchronous client: an event loop with an `AsyncClient` in a thread of its own, for callers from any thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

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
)
from pequod.client.aio import DEFAULT_TARGET, SNAPSHOT_S, AsyncClient
from pequod.client.backfills import Backfills
from pequod.client.background import BackgroundLoop
from pequod.client.columns import Columns
from pequod.client.retry import RETRIES
from pequod.engine.base.rows import Rows
from pequod.engine.shown.explain import JoinExplanation, RangeExplanation
from pequod.errors import PequodError

T = TypeVar("T")

_WAIT_S: Final = 0.5


class Client:
    """A client of one server; safe to use from many threads.

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
        loop_factory: Makes the event loop of the client's thread; without it, uvloop's where that is installed.

    Raises:
        SettingError: A file cannot be read, or the token would be sent in plain text.

    Example:
        with Client() as client:
            client.put("p|bob|0000000100", "Hi")
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
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> None:
        self._async = AsyncClient(
            target,
            timeout_s=timeout_s,
            retries=retries,
            tls=tls,
            ca=ca,
            certificate=certificate,
            key=key,
            token=token,
            insecure=insecure,
        )
        self._background = BackgroundLoop(f"pequod {target}", loop_factory)
        self._wait, self._iterate = self._background.run, self._background.iterate
        #: The calls of backfills.
        self.backfills = Backfills(self._async.backfills, self._wait)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def target(self) -> str:
        """HOST:PORT of the server."""
        return self._async.target

    @property
    def server_id(self) -> int:
        """Of the latest reply; another one means that the server was started anew."""
        return self._async.server_id

    @property
    def revision(self) -> int:
        """Of the latest reply."""
        return self._async.revision

    def close(self) -> None:
        """Close the connection and end the thread; calls under way fail. Closing twice is no error."""
        self._background.close(self._async.close)

    def get(self, key: Data) -> bytes | None:
        """Return the value of ``key``, None if there is no such key."""
        return self._wait(self._async.get(key))

    def put(self, key: Data, value: Data) -> None:
        """Write a base key.

        Raises:
            ComputedKeyError: An installed join computes it.
        """
        self._wait(self._async.put(key, value))

    def remove(self, key: Data) -> bool:
        """Remove a base key; tell whether it was there."""
        return self._wait(self._async.remove(key))

    def multi_get(self, keys: Iterable[Data]) -> list[bytes | None]:
        """Return the values of ``keys`` in their order, None for each that is absent.

        All are of one moment, unless they do not fit into one reply: then they come in pieces, each of its own.
        """
        return self._wait(self._async.multi_get(keys))

    def multi_put(self, rows: Writes) -> None:
        """Write many base keys at one moment, all or none.

        Raises:
            ComputedKeyError, InvalidKeyError, LimitExceededError: One of them is refused, so nothing is written.
        """
        self._wait(self._async.multi_put(rows))

    def remove_range(self, first: Data | None = None, last: Data | None = None, *, prefix: Data = b"") -> int:
        """Remove the base keys of ``[first, last)`` that start with ``prefix``; return how many there were.

        Computed keys are left to their joins. It is done in pieces, between which others have their turn; when it
        takes longer than ``timeout_s``, what is removed by then stays so.
        """
        return self._wait(self._async.remove_range(first, last, prefix=prefix))

    def scan(
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
        return self._wait(self._async.scan(first, last, prefix=prefix, limit=limit, reverse=reverse))

    def scan_iter(
        self,
        first: Data = b"",
        last: Data | None = None,
        *,
        prefix: Data = b"",
        limit: int | None = None,
        reverse: bool = False,
    ) -> Generator[Row]:
        """Yield the rows of a large range as they come; each chunk is exact at its own revision.

        Each chunk has ``timeout_s`` to come; how long the caller takes between rows does not count.
        """
        return self._iterate(self._async.scan_iter(first, last, prefix=prefix, limit=limit, reverse=reverse))

    def scan_chunks(
        self,
        first: Data = b"",
        last: Data | None = None,
        *,
        prefix: Data = b"",
        keys_only: bool = False,
    ) -> Generator[Rows]:
        """Yield the rows of a large range in chunks, as columns: for those who have many and want them in bulk.

        Each chunk is exact at its own revision, and none is empty. With ``keys_only`` the values are not sent.
        """
        return self._iterate(self._async.scan_chunks(first, last, prefix=prefix, keys_only=keys_only), 1)

    def keys_iter(
        self,
        first: Data = b"",
        last: Data | None = None,
        *,
        prefix: Data = b"",
        limit: int | None = None,
        reverse: bool = False,
    ) -> Generator[bytes]:
        """Yield the keys of a range as `scan_iter` does it; their values are not sent."""
        return self._iterate(self._async.keys_iter(first, last, prefix=prefix, limit=limit, reverse=reverse))

    def keys(
        self,
        first: Data = b"",
        last: Data | None = None,
        *,
        prefix: Data = b"",
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[bytes]:
        """Return the keys of a range; their values are not sent."""
        return self._wait(self._async.keys(first, last, prefix=prefix, limit=limit, reverse=reverse))

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
        """Return some rows of a range and the key to go on from: no more than ``limit``, or than fit into a chunk.

        Args:
            resume_key: That of the page before, to get the next one of the same range.
        """
        page = self._async.scan_page(first, last, prefix=prefix, limit=limit, reverse=reverse, resume_key=resume_key)
        return self._wait(page)

    def watch(
        self,
        first: Data,
        last: Data | None = None,
        *,
        rows: bool = False,
        reconnect_s: float = 30.0,
        progress_s: float | None = None,
        after: WatchEvent | None = None,
    ) -> Generator[WatchEvent]:
        """Yield what happens in ``[first, last)``; see `AsyncClient.watch`.

        Waits for the next event; closing the client from another thread ends that with ClosedError.
        """
        events = self._async.watch(first, last, rows=rows, reconnect_s=reconnect_s, progress_s=progress_s, after=after)
        return self._iterate(events, 1)

    def count(self, first: Data = b"", last: Data | None = None, *, prefix: Data = b"") -> int:
        """Return how many keys of ``[first, last)`` start with ``prefix``; without both, how many there are."""
        return self._wait(self._async.count(first, last, prefix=prefix))

    def splits(self, count: int, first: Data = b"", last: Data | None = None, *, prefix: Data = b"") -> list[bytes]:
        """Return up to ``count - 1`` keys that cut a range into parts of about equal numbers of rows.

        They ascend. What the server holds counts: a computed range that nobody has read yet is one part.

        Raises:
            ValueError: ``count`` is below 1.
            LimitExceededError: There would be too many parts.
        """
        return self._wait(self._async.splits(count, first, last, prefix=prefix))

    def batch(self) -> SyncBatch:
        """Return an empty batch of commands, to be sent as one message."""
        return SyncBatch(self)

    def add_join(self, text: str) -> list[Join]:
        """Install the joins of ``text``, all or none; those that are installed already stay as they are.

        Raises:
            JoinError: With the place in ``text``, the reason and a hint.
        """
        return self._wait(self._async.add_join(text))

    def drop_join(self, name: str) -> None:
        """Take out a join and its outputs."""
        self._wait(self._async.drop_join(name))

    def joins(self) -> list[Join]:
        """Return the installed joins, the earliest first."""
        return self._wait(self._async.joins())

    def explain_join(self, name: str) -> JoinExplanation:
        """Return how a join is evaluated and kept."""
        return self._wait(self._async.explain_join(name))

    def explain_range(self, first: Data, last: Data | None = None) -> RangeExplanation:
        """Return what a read of ``[first, last)`` would find and have to do."""
        return self._wait(self._async.explain_range(first, last))

    def invalidate_range(self, first: Data, last: Data | None = None) -> int:
        """Have what is computed of ``[first, last)`` forgotten, and what that was computed from; reads compute it anew.

        Returns:
            How many contexts were forgotten; more may have gone that depend on them.
        """
        return self._wait(self._async.invalidate_range(first, last))

    def invalidate_join(self, name: str) -> int:
        """Have everything that a join computed forgotten, as `invalidate_range` does."""
        return self._wait(self._async.invalidate_join(name))

    def statistics(self) -> ServerStatistics:
        """Return what the server holds and did."""
        return self._wait(self._async.statistics())

    def save_snapshot(self, timeout_s: float = SNAPSHOT_S) -> SavedSnapshot:
        """Have the server write its base data into its `snapshot_file`."""
        return self._wait(self._async.save_snapshot(timeout_s))

    def restore_snapshot(self, timeout_s: float = SNAPSHOT_S) -> RestoredSnapshot:
        """Have the server put the keys of its `snapshot_file`, all or none."""
        return self._wait(self._async.restore_snapshot(timeout_s))

    def send(self, columns: Columns) -> Future[list[Result]]:
        """Send a batch without waiting; see `SyncBatch.send_nowait`."""
        future: Future[list[Result]] = Future()

        def deliver(results: list[Result] | PequodError) -> None:
            if not future.set_running_or_notify_cancel():
                return
            if isinstance(results, PequodError):
                future.set_exception(results)
            else:
                future.set_result(results)

        self._background.call(self._async.send, columns, deliver)
        return future


class SyncBatch(Columns):
    """Commands that go out as one message; results come in their order.

    Example:
        batch = client.batch()
        batch.put("s|ann|bob", "1")
        batch.scan("t|ann|", "t|ann}")
        _, rows = batch.send()
    """

    __slots__ = ("_client",)

    def __init__(self, client: Client) -> None:
        super().__init__()
        self._client = client

    def send(self) -> list[Result]:
        """Send the batch and return a result for each command, an exception object where one failed."""
        return self.send_nowait().result()

    def send_nowait(self) -> Future[list[Result]]:
        """Send the batch and return at once; batches run in the order of their sending.

        The batch is empty then and may be filled again.
        """
        return self._client.send(self.take())
