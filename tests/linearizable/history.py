"""Histories of concurrent clients over a server that is killed and started again, as the judge reads them.

    clients -> relay -> pequod serve --data DIR --fsync always     replies are cut off, the server is killed

    {"name": "7.3", "operations": [{"client": 1, "kind": "add", "key": 0, "number": 2, "call": 17, "return": 29,
                                    "outcome": {"values": ["5"]}}]}

Each history has keys of its own, so that many are recorded at a time. Keys 0 and 1 have numbers, keys 2 and 3 texts. An
empty value stands for an absent key; times are nanoseconds. The outcome of a put whose fate is unknown is ``unknown``.
Those of several servers, which are stopped for a while, are in `stopped`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import pequod
from pequod import Add, AsyncClient, Get, value_of
from pequod.errors import BackingUnavailableError, StaleError, UnavailableError
from pequod.freshness import Freshness
from tests.client.relay import Relay
from tests.forked import ForkedServer

CLIENTS: Final = 3
OPERATIONS: Final = 8
_CONNECTIONS: Final = 4
_CALL_S_MAX: Final = 90.0

Operation = dict[str, Any]


class Server(NamedTuple):
    """The connections to a server. Calls of one go together, so that a read there would wait for the writes."""

    reads: AsyncClient
    writes: AsyncClient


def text(value: bytes | None) -> str:
    return "" if value is None else value.decode()


class History:
    """One history, which grows while clients call.

    Args:
        name: Of its keys; no other history has it.
        random: Draws what they call.
        freshness: Of all reads; None: what a server has.
        kinds: From how many an operation is drawn; there are five of writes, and all others are reads.
    """

    def __init__(self, name: str, random: Random, freshness: Freshness | None = None, kinds: int = 6) -> None:
        self.name = name
        self.operations: list[Operation] = []
        self._random = random
        self._freshness = freshness
        self._kinds = kinds

    def _key(self, number: int) -> str:
        return f"h|{self.name}|{number}"

    async def run(self, number: int, servers: Sequence[Server], begun: Callable[[], None]) -> None:
        """Call one operation after another, each at one of some servers."""
        for _ in range(OPERATIONS):
            given, call = self._drawn(self._random.choice(servers))
            begun()
            operation = {"client": number, **given, "call": time.monotonic_ns()}
            try:
                outcome = await call()
            except (UnavailableError, BackingUnavailableError, StaleError):
                outcome = {"unknown": True}
            self.operations.append({**operation, "return": time.monotonic_ns(), "outcome": outcome})

    def _drawn(self, server: Server) -> tuple[Operation, Callable[[], Awaitable[Operation]]]:
        """Return the next operation, and what calls it."""
        random = self._random
        number, word = random.randrange(2), f"v{random.randrange(1000)}"
        match random.randrange(self._kinds):
            case 1:
                return self._put(server.writes, number, str(random.randrange(9)))
            case 2:
                return self._put(server.writes, 2 + number, word)
            case 3:
                return self._put_if(server.writes, 2 + number, word)
            case 4:
                return self._add(server.writes, number, random.randrange(1, 9))
            case 5:
                return self._transfer(server.writes, number, random.randrange(1, 4))
            case _:
                return self._get(server.reads, random.randrange(4))

    def _get(self, client: AsyncClient, key: int) -> tuple[Operation, Callable[[], Awaitable[Operation]]]:
        async def call() -> Operation:
            return {"values": [text(await client.get(self._key(key), freshness=self._freshness))]}

        return {"kind": "get", "key": key}, call

    def _put(self, client: AsyncClient, key: int, value: str) -> tuple[Operation, Callable[[], Awaitable[Operation]]]:
        async def call() -> Operation:
            await client.put(self._key(key), value)
            return {}

        return {"kind": "put", "key": key, "value": value}, call

    def _put_if(
        self, client: AsyncClient, key: int, value: str
    ) -> tuple[Operation, Callable[[], Awaitable[Operation]]]:
        known = [one["value"] for one in self.operations if one["key"] == key and "value" in one]
        expected = self._random.choice([*known, ""])

        async def call() -> Operation:
            condition = pequod.if_value(expected) if expected else pequod.IF_ABSENT
            outcome = await client.put(self._key(key), value, condition=condition)
            return {"met": True} if outcome else {"values": [text(outcome.value)]}

        return {"kind": "put_if", "key": key, "value": value, "expected": expected}, call

    def _add(self, client: AsyncClient, key: int, number: int) -> tuple[Operation, Callable[[], Awaitable[Operation]]]:
        async def call() -> Operation:
            return {"values": [text(await client.add(self._key(key), number))]}

        return {"kind": "add", "key": key, "number": number}, call

    def _transfer(
        self, client: AsyncClient, key: int, number: int
    ) -> tuple[Operation, Callable[[], Awaitable[Operation]]]:
        one, other = self._key(key), self._key(1 - key)

        async def call() -> Operation:
            moves = [Add(one, -number), Add(other, number)]
            done = await client.transaction([value_of(one) > number], moves, [Get(one)])
            values = [text(outcome) for outcome in done.outcomes]  # type: ignore[arg-type]
            return {"met": done.held, "values": values}

        return {"kind": "transfer", "key": key, "other": 1 - key, "number": number}, call

    def as_json(self) -> dict[str, Any]:
        """Return what the judge reads."""
        return {"name": self.name, "operations": self.operations}


async def recorded(folder: Path, count: int, random: Random, serve: Callable[..., None] | None = None) -> list[History]:
    """Return histories of clients of one server, which loses replies, and is killed and started again meanwhile.

    Args:
        folder: Its base data.
        serve: As `ForkedServer` takes it.
    """
    start = partial(
        ForkedServer,
        *("--listen", "127.0.0.1:0", "--data", str(folder), "--fsync", "always", "--slow-ms", "0"),
        serve=serve,
    )
    histories = [History(f"{random.randrange(1 << 40):x}.{number}", random) for number in range(count)]
    all_count, begun_count = count * CLIENTS * OPERATIONS, 0
    #: Set when so many operations have begun.
    due = [(all_count * part // 4, asyncio.Event()) for part in (1, 2, 3)]

    def begun() -> None:
        nonlocal begun_count
        begun_count += 1
        for when, event in due:
            if begun_count >= when:
                event.set()

    server = await asyncio.to_thread(start)
    try:
        async with Relay(server.target) as relay:
            clients = [AsyncClient(relay.target, timeout_s=_CALL_S_MAX, retries=1000) for _ in range(_CONNECTIONS)]
            servers = [Server(client, client) for client in clients]
            tasks = [
                asyncio.create_task(one.run(number, [random.choice(servers)], begun))
                for one in histories
                for number in range(CLIENTS)
            ]
            for (_, event), is_killed in zip(due, (False, True, random.random() < 0.5), strict=True):
                await event.wait()
                relay.passing.clear()
                # The server writes what it has got, and nobody hears of it.
                await asyncio.sleep(random.uniform(0.0, 0.1))
                if is_killed:
                    await asyncio.to_thread(server.kill)
                    relay.cut()
                    server = await asyncio.to_thread(start)
                    relay.lead_to(server.target)
                relay.cut()
                relay.passing.set()
            await asyncio.gather(*tasks)
            for client in clients:
                with suppress(UnavailableError):
                    await client.close()
    finally:
        await asyncio.to_thread(server.kill)
    return histories
