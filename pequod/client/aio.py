"""The asyncio client.

Calls of one turn of the event loop share one message: a thousand `get` under `asyncio.gather` are one batch or two,
with nothing for the caller to do. `AsyncClient.batch` is the same by hand, without a future for each command.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final, TypeVar

from pequod_proto import pequod_pb2 as pb

from pequod.calls import AnyToken, RestoredSnapshot, SavedSnapshot
from pequod.client.backfills import AsyncBackfills
from pequod.client.cluster.address import ClusterTarget
from pequod.client.columns import Columns
from pequod.client.connection import ServerConnection
from pequod.client.credentials import Credentials
from pequod.client.gathering import Gathering
from pequod.client.link import Link
from pequod.client.requests import ServerCalls
from pequod.client.retry import RETRIES
from pequod.client.sessions import AsyncServerSession
from pequod.client.stream import Deliver
from pequod.client.watch_ranges import RangesEvent, WatchedRange
from pequod.freshness import WAIT_S

T = TypeVar("T")

DEFAULT_TARGET = "127.0.0.1:7744"
#: The timeout of a snapshot, if the caller gives none: enough for ten million rows and more.
SNAPSHOT_S: Final = 600.0


class AsyncClient(ServerCalls):
    """A client of a server or of a cluster, for one event loop.

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

    Raises:
        SettingError: A file cannot be read, the token would be sent in plain text, or the transport is not there.

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
        transport: str = "",
    ) -> None:
        credentials = Credentials(
            tls=tls,
            ca=ca,
            certificate=certificate,
            key=key,
            token=token,
            insecure=insecure,
            transport=transport,
        )
        self._link = _link(target, credentials, timeout_s, retries)
        self._gathering = Gathering(self._link)
        self._writing = self._reading = self._gathering.open
        self._unary = self._link.unary
        #: The calls of backfills.
        self.backfills = AsyncBackfills(self._unary)

    def __repr__(self) -> str:
        """Return the target, and the transport of calls to it."""
        return f"<AsyncClient of {self.target} by {self._link.transport}>"

    async def close(self) -> None:
        """Close the client; calls under way fail, and so do those that follow. Closing twice is no error."""
        self._link.refuse_calls()
        await self._gathering.close()
        await self._link.close()

    @property
    def target(self) -> str:
        """HOST:PORT of the server, or the cluster."""
        return self._link.target

    @property
    def batches_sent(self) -> int:
        """The number of batches sent."""
        return self._gathering.batches_sent

    def send(self, columns: Columns, deliver: Deliver) -> None:
        """Send a batch, in the event loop; ``deliver`` is called once, with the reply or with the error.

        Reads that the server cuts short are continued first. The columns must not change any more.
        """
        self._gathering.send(columns, deliver)

    def session(self, token: AnyToken | None = None, *, wait_s: float = WAIT_S) -> AsyncServerSession:
        """Return a view of this client whose reads never go back: they show what calls of the session have shown.

        A read shows what the session has written and read by the calls that ended before it, whichever server beside
        the same database it asks; otherwise it fails with StaleError after ``wait_s``.

        Args:
            token: What an earlier session has seen; this one goes on from there.
        """
        return AsyncServerSession(self, token, wait_s)

    # Calls that only a server has.

    async def watch_ranges(
        self, ranges: Sequence[WatchedRange], *, progress_s: float | None = None
    ) -> AsyncGenerator[RangesEvent]:
        """Yield the changes in many ranges as one stream, until the iterator is closed.

        The first event comes when the watch is established, with the rows of the ranges that ask for them. A range that
        cannot be followed, or not any more, ends alone (`RangesEvent.ended`). The iterator ends when the connection
        breaks: call again, with ``after`` of the last event.

        Args:
            progress_s: After this time without a change, give an event without any: nothing is missing so far.

        Raises:
            WatchCompactedError: Some changes are not kept any more: start again with rows.
            UnavailableError: The server cannot be reached, or not any more.
        """
        progress_ms = 0 if progress_s is None else max(1, round(progress_s * 1000))
        async with aclosing(self._link.watch_ranges(ranges, progress_ms, self._note)) as events:
            async for event in events:
                yield event

    async def save_snapshot(self, timeout_s: float = SNAPSHOT_S) -> SavedSnapshot:
        """Have the server write its base data into its `snapshot_file`."""
        reply = await self._unary("SaveSnapshot", pb.SaveSnapshotRequest(), timeout_s=timeout_s)
        return SavedSnapshot(reply.path, reply.key_count, reply.range_count, reply.backed_key_count, reply.file_bytes)

    async def restore_snapshot(self, timeout_s: float = SNAPSHOT_S) -> RestoredSnapshot:
        """Have the server put the keys of its `snapshot_file`, all or none."""
        reply = await self._unary("RestoreSnapshot", pb.RestoreSnapshotRequest(), timeout_s=timeout_s)
        return RestoredSnapshot(reply.path, reply.key_count, reply.saved_s)

    async def _in_loop(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return await coroutine


def _link(target: str, credentials: Credentials, timeout_s: float, retries: int) -> Link:
    """Return what reaches a server, or a cluster."""
    if not ClusterTarget.is_one(target):
        return ServerConnection(target, credentials, timeout_s, retries)
    from pequod.client.cluster.connection import ClusterConnection  # noqa: PLC0415 - 10 ms that most clients save

    return ClusterConnection(target, credentials, timeout_s, retries)
