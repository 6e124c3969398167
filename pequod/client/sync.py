"""The synchronous client: an event loop with an `AsyncClient` in a thread of its own, for callers from any thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from pequod.calls import AnyToken, RestoredSnapshot, Results, SavedSnapshot, ServerStatistics
from pequod.client.aio import DEFAULT_TARGET, SNAPSHOT_S
from pequod.client.background import BackgroundLoop
from pequod.client.batches import SyncBatch
from pequod.client.columns import Columns
from pequod.client.posting import InCaller, PostingClient, posted
from pequod.client.requests import ServerCalls
from pequod.client.retry import RETRIES
from pequod.client.sessions import AsyncServerSession
from pequod.client.sync_backfills import Backfills
from pequod.freshness import WAIT_S, Freshness
from pequod.interface import Calls, Session


class _ServerCalls(Calls):
    """The calls that a client and a session carry out in the same way."""

    _async: ServerCalls
    _background: BackgroundLoop

    def batch(self, freshness: Freshness | None = None) -> SyncBatch:
        """Return an empty batch of commands, to be sent together.

        Args:
            freshness: How fresh the answers of its reads have to be, but for those that say it themselves.
        """
        return SyncBatch(self.send, freshness)

    def statistics(self) -> ServerStatistics:
        """Return counts of what the server holds and has done."""
        return self._wait(self._async.statistics())

    def send(self, columns: Columns) -> Future[Results]:
        """Send a batch without waiting; see `SyncBatch.send_nowait`."""
        return posted(self._background, self._async, columns)


class Client(_ServerCalls):
    """A client of a server or of a cluster; safe to use from many threads.

    Args:
        target: HOST:PORT; or `pequod+cluster://HOST:PORT,HOST:PORT` with some servers of a cluster, from which the
            client learns the others.
        timeout_s: How long a call may take, all attempts together.
        retries: How often a call is tried again when the server is not reachable, with growing pauses: reads; adds,
            transactions and writes under conditions, which the server does once; and other writes if they certainly
            were not applied. 0 for never.
        tls: Use TLS; implied by ``ca`` and ``certificate``.
        ca: PEM file of the authority that signed the server's certificate; without it, the public ones.
        certificate: PEM file of the client's certificate, and ``key`` that of its key.
        token: The caller's token, as `pequod token new` printed it.
        insecure: Allow to send the token in plain text to other machines.
        transport: "native" (that of the native core, which takes less CPU), "grpcio" (gRPC's own), or "auto": the
            native one where it is there and does what the target and the environment ask for; without it, what the
            variable PEQUOD_CLIENT_TRANSPORT says, else "auto".
        loop_factory: Makes the event loop of the client's thread; without it, uvloop's loop if it is installed.

    Raises:
        SettingError: A file cannot be read, the token would be sent in plain text, or the transport is not there.

    Example:
        with Client() as client:
            client.put("p|bob|0000000100", "Hi")
    """

    _async: PostingClient

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
        transport: str = "",
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
            transport=transport,
        )
        self._background = BackgroundLoop(f"pequod {target}", loop_factory)
        self._async.post_to(self._background)
        self._waiter = InCaller(self._background)
        super().__init__(self._async, self._waiter)
        #: The calls of backfills.
        self.backfills = Backfills(self._async.backfills, self._waiter)

    def __repr__(self) -> str:
        """Return the target, and the transport of calls to it."""
        return f"<Client of {self.target} by {self._async._link.transport}>"

    @property
    def target(self) -> str:
        """HOST:PORT of the server, or the cluster."""
        return self._async.target

    def close(self) -> None:
        """Close the client; calls under way fail, and so do those that follow. Closing twice is no error."""
        self._background.close(self._async.close)

    def session(self, token: AnyToken | None = None, *, wait_s: float = WAIT_S) -> ServerSession:
        """Return a view of this client whose reads never go back: they show what calls of the session have shown.

        A read shows what the session has written and read by the calls that ended before it, whichever server beside
        the same database it asks; otherwise it fails with StaleError after ``wait_s``.

        Args:
            token: What an earlier session has seen; this one goes on from there.
        """
        return ServerSession(self, self._async.session(token, wait_s=wait_s))

    def save_snapshot(self, timeout_s: float = SNAPSHOT_S) -> SavedSnapshot:
        """Have the server write its base data into its `snapshot_file`."""
        return self._wait(self._async.save_snapshot(timeout_s))

    def restore_snapshot(self, timeout_s: float = SNAPSHOT_S) -> RestoredSnapshot:
        """Have the server put the keys of its `snapshot_file`, all or none."""
        return self._wait(self._async.restore_snapshot(timeout_s))


class ServerSession(_ServerCalls, Session):
    """A view of a client that never goes back: see `Calls.session`."""

    def __init__(self, client: Client, calls: AsyncServerSession) -> None:
        super().__init__(calls, client._waiter)
        self._client = client
        self._background = client._background
        self._async = calls

    def close(self) -> None:
        """End the session; the client, which others may use, stays open."""

    def session(self, token: AnyToken | None = None, *, wait_s: float = WAIT_S) -> ServerSession:
        """Return a view of this client whose reads never go back: they show what calls of the session have shown.

        A read shows what the session has written and read by the calls that ended before it, whichever server beside
        the same database it asks; otherwise it fails with StaleError after ``wait_s``.

        Args:
            token: What an earlier session has seen; this one goes on from there.
        """
        return self._client.session(token, wait_s=wait_s)
