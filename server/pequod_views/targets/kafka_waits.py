"""Waits for clients of Kafka, which end, whatever becomes of the brokers.

    within     a call has some seconds; then it is left behind, and the caller goes on
    started    a client that is started, or an error. A start is never cut short: its connection would be lost
    let_go     a client is closed beside the caller: in order, or by force if the brokers do not answer
    ended      what was left behind and let go is over

aiokafka tries again for ever inside of its calls, may swallow a cancellation while it closes, and may raise one that
nobody has asked for. So each call is a task of its own, and no caller waits for more than its end or the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, TypeAlias, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaConnectionError

KafkaClient: TypeAlias = AIOKafkaProducer | AIOKafkaConsumer | AIOKafkaAdminClient

#: One call of a client.
_CALL_S: Final = 60.0
#: A start asks brokers one after another, each for as long as a request may take.
_START_S: Final = 30.0
#: A client that is let go has this time to end in order, though the brokers do not answer.
_ORDER_S: Final = 15.0
#: Each step by force.
_FORCE_S: Final = 0.5
#: The last close waits so long for clients to end in order.
_CLOSE_S: Final = 2.0

T = TypeVar("T")


class KafkaWaits:
    """Calls of clients, and what was left behind of them."""

    def __init__(self) -> None:
        #: A task that is cancelled comes to its end within a few steps by force.
        self._left: set[asyncio.Task[None]] = set()

    async def within(self, call: Coroutine[Any, Any, T], wait_s: float | None = None) -> T:
        """Return what a call comes to.

        Raises:
            TimeoutError: It has not ended in time.
            KafkaConnectionError: It has ended by a cancellation from inside.
        """
        wait_s = _CALL_S if wait_s is None else wait_s
        task = asyncio.create_task(call)
        try:
            await asyncio.wait([task], timeout=wait_s)
        finally:
            if not task.done():
                task.cancel()
                self._leave(_over(task))
        return _outcome(task, wait_s)

    async def started(self, client: KafkaClient) -> None:
        """Start a client; one that cannot be started is let go.

        Raises:
            TimeoutError: It has not started in time.
        """
        start = asyncio.create_task(client.start())
        try:
            await asyncio.wait([start], timeout=_START_S)
            _outcome(start, _START_S)
        except BaseException:
            self.let_go(client, start)
            raise

    def let_go(self, client: KafkaClient, start: asyncio.Task[None] | None = None) -> None:
        """Close a client beside the caller, after its start if that is under way."""
        self._leave(_closed(client, start))

    def _leave(self, ending: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(ending)
        self._left.add(task)
        task.add_done_callback(self._left.discard)

    async def ended(self) -> None:
        """Wait until all is over that was left behind or let go; what takes too long is ended by force."""
        if self._left:
            await asyncio.wait(self._left, timeout=_CLOSE_S)
        for task in self._left:
            task.cancel()
        if self._left:
            await asyncio.wait(self._left, timeout=10 * _FORCE_S)


def _outcome(task: asyncio.Task[T], wait_s: float) -> T:
    if not task.done():
        raise TimeoutError(f"nothing came for {wait_s:g} s")
    if task.cancelled():
        raise KafkaConnectionError("the client was closed")
    return task.result()


async def _over(task: asyncio.Task[Any], wait_s: float = _ORDER_S) -> None:
    """Wait for the end of a task, and have its error seen."""
    await asyncio.wait([task], timeout=wait_s)
    if task.done():
        with suppress(asyncio.CancelledError):
            task.exception()


async def _closed(client: KafkaClient, start: asyncio.Task[None] | None) -> None:
    """Close a client in order; when this is cancelled, or takes too long, by force."""
    stop: asyncio.Task[None] | None = None
    try:
        if start is not None:
            await _over(start)
            start.cancel()
            await _over(start, _FORCE_S)
        stop = asyncio.create_task(_stopped(client))
        await _over(stop)
    finally:
        if start is not None and not start.done():
            start.cancel()
            await _over(start, _FORCE_S)
        await _forced(client, stop or asyncio.create_task(_stopped(client)))


async def _stopped(client: KafkaClient) -> None:
    await (client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop())


async def _forced(client: KafkaClient, stop: asyncio.Task[None]) -> None:
    """Cut the connections of a client, and end its tasks; of one that was closed in order nothing is left."""
    await _over(stop, _FORCE_S)
    if not stop.done() and isinstance(client, AIOKafkaProducer):
        # Two times: the first one has the task wait for requests that are under way.
        client._message_accumulator.fail_all(KafkaConnectionError("the client was closed"))
        for _ in range(2):
            if (sender := client._sender.sender_task) is not None:
                sender.cancel()
                await asyncio.wait([sender], timeout=_FORCE_S)
    if not stop.done():
        stop.cancel()
        await _over(stop, _FORCE_S)
    inner = client.client if isinstance(client, AIOKafkaProducer) else client._client
    writers = [one._writer for one in inner._conns.values() if one._writer is not None]
    await _over(asyncio.create_task(inner.close()), _FORCE_S)
    for writer in writers:
        writer.transport.abort()
    if isinstance(client, AIOKafkaProducer):
        _see_errors(client)


def _see_errors(producer: AIOKafkaProducer) -> None:
    """Have errors seen that nobody else asks for: of one that was fenced off, these are told of by the next call."""
    batches = [batch for some in producer._message_accumulator._batches.values() for batch in some]
    outcomes = [batch._drain_waiter for batch in batches]
    if producer._txn_manager is not None:
        outcomes.append(producer._txn_manager.wait_for_transaction_end())
    for outcome in outcomes:
        if outcome is not None and outcome.done() and not outcome.cancelled():
            outcome.exception()
