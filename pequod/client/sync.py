"""The synchronous client: an event loop with an `AsyncClient` in a thread of its own, for callers from any thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from pequod.calls import RestoredSnapshot, Result, SavedSnapshot, ServerStatistics
from pequod.client.aio import DEFAULT_TARGET, SNAPSHOT_S
from pequod.client.background import BackgroundLoop
from pequod.client.columns import Columns
from pequod.client.posting import InCaller, PostingClient
from pequod.client.retry import RETRIES
from pequod.client.sync_backfills import Backfills
from pequod.errors import PequodError
from pequod.interface import Calls


class Client(Calls):
    """A client of one server; safe to use from many threads.

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
        loop_factory: Makes the event loop of the client's thread; without it, uvloop's loop if it is installed.

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
        self._async = PostingClient(
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
        self._async.post_to(self._background)
        waiter = InCaller(self._background)
        super().__init__(self._async, waiter)
        #: The calls of backfills.
        self.backfills = Backfills(self._async.backfills, waiter)

    @property
    def target(self) -> str:
        """HOST:PORT of the server."""
        return self._async.target

    def close(self) -> None:
        """Close the client; calls under way fail, and so do those that follow. Closing twice is no error."""
        self._background.close(self._async.close)

    def batch(self) -> SyncBatch:
        """Return an empty batch of commands, to be sent together."""
        return SyncBatch(self)

    def statistics(self) -> ServerStatistics:
        """Return counts of what the server holds and has done."""
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
    """Commands that are sent as one message; results come in the order of the commands.

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
        """Send the batch and return a result for each command, an exception object for a failed one."""
        return self.send_nowait().result()

    def send_nowait(self) -> Future[list[Result]]:
        """Send the batch and return at once; batches run in the order of their sending.

        The batch is empty afterwards and may be filled again.
        """
        return self._client.send(self.take())
