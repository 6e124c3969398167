"""Batches of commands that a caller puts together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future

from pequod.calls import Results
from pequod.client.columns import Columns, Reply
from pequod.client.stream import Deliver
from pequod.errors import PequodError
from pequod.freshness import Freshness


class AsyncBatch(Columns):
    """Commands that are sent as one message; results come in the order of the commands.

    Several batches may be under way at once: they run in the order of their sending.

    Example:
        batch = client.batch()
        batch.put("s|ann|bob", "1")
        batch.scan("t|ann|", "t|ann}")
        _, rows = await batch.send()
    """

    __slots__ = ("_send",)

    def __init__(self, send: Callable[[Columns, Deliver], None], freshness: Freshness | None = None) -> None:
        super().__init__(freshness)
        self._send = send

    def send(self) -> asyncio.Future[Results]:
        """Send the batch now; the future gives a result for each command, an exception object for a failed one.

        The batch is empty afterwards and may be filled again.

        Raises:
            UnavailableError, DeadlineExceededError: From the future; the fate of the batch's writes is unknown, unless
                the error ``is_unapplied``. A batch with a plain write is only sent again if it certainly was not
                applied; adds and writes under conditions are done once, however often they are sent.
        """
        future: asyncio.Future[Results] = asyncio.get_running_loop().create_future()

        def deliver(outcome: Reply | PequodError) -> None:
            if future.done():
                return
            if isinstance(outcome, PequodError):
                future.set_exception(outcome)
            else:
                future.set_result(results_of(outcome))

        self._send(self.take(), deliver)
        return future


class SyncBatch(Columns):
    """Commands that are sent as one message; results come in the order of the commands.

    Example:
        batch = client.batch()
        batch.put("s|ann|bob", "1")
        batch.scan("t|ann|", "t|ann}")
        _, rows = batch.send()
    """

    __slots__ = ("_send",)

    def __init__(self, send: Callable[[Columns], Future[Results]], freshness: Freshness | None = None) -> None:
        super().__init__(freshness)
        self._send = send

    def send(self) -> Results:
        """Send the batch and return a result for each command, an exception object for a failed one."""
        return self.send_nowait().result()

    def send_nowait(self) -> Future[Results]:
        """Send the batch and return at once; batches run in the order of their sending.

        The batch is empty afterwards and may be filled again.
        """
        return self._send(self.take())


def results_of(reply: Reply) -> Results:
    """Return the results in a reply, with the state that answered."""
    return Results(reply.results, reply.token, reply.age_ms, reply.server_id, reply.revision)
