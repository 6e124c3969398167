"""YCSB on Pequod and, beside it, on Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Final, Protocol, cast

from pequod.client import AsyncClient, Result
from pequod_bench.paper.measure import RunOutcome, Trials, timed
from pequod_bench.systems.pequod_results import count_rows, empty
from pequod_bench.systems.pequod_system import PEQUOD, TIMEOUT_S
from pequod_bench.systems.pipe import Pipe, connected
from pequod_bench.systems.redis_system import RedisSystem, pack, parser
from pequod_bench.systems.system import BATCH, Message, Server, System, Work, in_messages
from pequod_bench.workloads import ycsb
from pequod_bench.workloads.verify import Differs, Same, Verdict
from pequod_bench.workloads.ycsb import INSERT, READ_THEN_WRITE, SCAN, UPDATE, Operations

_LOAD_BATCH: Final = 500
#: How many scans are in a batch; of 100 records each, their reply has 1.6 MB. Replies above 3 MiB come in pieces, and
#: the later ones are read later, with what was inserted meanwhile: no rows to count on.
_SCAN_BATCH: Final = 16


class YcsbMessage(Message, Protocol):
    """Commands that go out together, carried out in their order; the number of rows that reads returned comes later."""

    def read(self, key: bytes) -> None:
        """Read a record."""

    def scan(self, key: bytes, row_count: int) -> None:
        """Read records from a key on."""

    def write(self, key: bytes, value: bytes) -> None:
        """Write a record that is there."""

    def insert(self, key: bytes, value: bytes) -> None:
        """Write a record that is not there."""

    def send(self) -> Awaitable[int]:
        """Send it."""


class YcsbStore(Protocol):
    """A connected store."""

    def message(self) -> YcsbMessage:
        """Return an empty message."""

    async def whole(self) -> dict[bytes, bytes]:
        """Return all records."""

    async def clear(self) -> None:
        """Remove all records."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A system that can run YCSB."""

    system: System
    tuning: str
    connected: Callable[[Server], AbstractAsyncContextManager[YcsbStore]]


class YcsbRun:
    """One workload on one store."""

    def __init__(self, store: YcsbStore, operations: Operations) -> None:
        self._store = store
        self._operations = operations
        self._row_count = 0

    async def load(self) -> None:
        rows = list(ycsb.initial(self._operations))
        for i in range(0, len(rows), _LOAD_BATCH):
            message = self._store.message()
            for key, value in rows[i : i + _LOAD_BATCH]:
                message.insert(key, value)
            await message.send()

    async def run(self) -> Work:
        """Carry out all operations; a write that waits for a read goes out when that is answered."""
        o = self._operations
        rows = list(zip(o.kinds.tolist(), o.records.tolist(), o.lengths.tolist(), strict=True))
        batch = _SCAN_BATCH if bool((o.kinds == SCAN).any()) else BATCH

        def fill(message: YcsbMessage, start: int, stop: int) -> list[tuple[bytes, bytes]]:
            later: list[tuple[bytes, bytes]] = []
            for number, (kind, record, length) in enumerate(rows[start:stop], start):
                key = ycsb.key(record)
                if kind == SCAN:
                    message.scan(key, length)
                elif kind == UPDATE:
                    message.write(key, ycsb.value(number))
                elif kind == INSERT:
                    message.insert(key, ycsb.value(number))
                else:
                    message.read(key)
                    if kind == READ_THEN_WRITE:
                        later.append((key, ycsb.value(number)))
            return later

        def settle(message: YcsbMessage, row_count: int, later: list[tuple[bytes, bytes]]) -> int:
            for key, value in later:
                message.write(key, value)
            return row_count

        work = await in_messages(self._store.message, fill, settle, len(rows), batch)
        self._row_count = work.row_count
        return work

    async def verify(self) -> Verdict:
        wanted, row_count = ycsb.expected(self._operations)
        found = await self._store.whole()
        if found != wanted:
            key = next(key for key in sorted(wanted.keys() | found.keys()) if wanted.get(key) != found.get(key))
            return Differs(f"the record {key!r} must be {wanted.get(key)!r:.60}, and is {found.get(key)!r:.60}")
        if self._row_count != row_count:
            return Differs(f"reads must return {row_count} rows, and returned {self._row_count}")
        return Same(1, len(found))


class _PequodStore:
    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    def message(self) -> YcsbMessage:
        return _PequodYcsb(self._client)

    async def whole(self) -> dict[bytes, bytes]:
        return {key: value async for key, value in self._client.scan_iter(b"user|", b"user}")}

    async def clear(self) -> None:
        await empty(self._client)


class _PequodYcsb:
    def __init__(self, client: AsyncClient) -> None:
        self._batch = client.batch()
        self.read = self._batch.get
        self.write = self._batch.put
        self.insert = self._batch.put

    def __len__(self) -> int:
        return len(self._batch)

    def scan(self, key: bytes, row_count: int) -> None:
        self._batch.scan(key, b"user}", limit=row_count)

    def send(self) -> Awaitable[int]:
        return self._rows(self._batch.send())

    async def _rows(self, coming: Awaitable[list[Result]]) -> int:
        return count_rows(await coming)


@asynccontextmanager
async def _pequod(server: Server) -> AsyncIterator[YcsbStore]:
    async with AsyncClient(f"127.0.0.1:{server.port}", timeout_s=TIMEOUT_S) as client:
        yield _PequodStore(client)


#: A scan in one command: the index tells the keys, MGET their values.
_SCAN_SCRIPT: Final = (
    b"return redis.call('MGET', unpack(redis.call('ZRANGE', 'index', ARGV[1], '+', 'BYLEX', 'LIMIT', 0, ARGV[2])))"
)


class _RedisStore:
    def __init__(self, pipe: Pipe, scan_sha: bytes) -> None:
        self._pipe = pipe
        self._scan_sha = scan_sha

    def message(self) -> YcsbMessage:
        return _RedisYcsb(self._pipe, self._scan_sha)

    async def whole(self) -> dict[bytes, bytes]:
        (index,) = await self._pipe.send(pack(b"ZRANGE", b"index", 0, -1), 1)
        found: dict[bytes, bytes] = {}
        keys = cast("list[bytes]", index)
        for some in (keys[i : i + _LOAD_BATCH] for i in range(0, len(keys), _LOAD_BATCH)):
            (values,) = await self._pipe.send(pack(b"MGET", *some), 1)
            found |= dict(zip(some, cast("Iterable[bytes]", values), strict=True))
        return found

    async def clear(self) -> None:
        await self._pipe.send(pack(b"FLUSHALL", b"SYNC"), 1)


class _RedisYcsb:
    """Commands; ``_parts`` counts them, and one insert is two."""

    def __init__(self, pipe: Pipe, scan_sha: bytes) -> None:
        self._pipe = pipe
        self._scan_sha = scan_sha
        self._parts: list[bytes] = []

    def __len__(self) -> int:
        return len(self._parts)

    def read(self, key: bytes) -> None:
        self._parts.append(pack(b"GET", key))

    def scan(self, key: bytes, row_count: int) -> None:
        self._parts.append(pack(b"EVALSHA", self._scan_sha, 0, b"[" + key, row_count))

    def write(self, key: bytes, value: bytes) -> None:
        self._parts.append(pack(b"SET", key, value))

    def insert(self, key: bytes, value: bytes) -> None:
        self._parts += (pack(b"SET", key, value), pack(b"ZADD", b"index", 0, key))

    def send(self) -> Awaitable[int]:
        return self._rows(self._pipe.send(b"".join(self._parts), len(self._parts)))

    async def _rows(self, coming: Awaitable[list[object]]) -> int:
        replies = await coming
        # Writes are answered with OK or a number, reads with a value, scans with a list of them.
        return sum(
            len(reply) if isinstance(reply, list) else isinstance(reply, bytes) and reply != b"OK" for reply in replies
        )


@asynccontextmanager
async def _redis(server: Server) -> AsyncIterator[YcsbStore]:
    async with connected(server.port, parser) as pipe:
        (sha,) = await pipe.send(pack(b"SCRIPT", b"LOAD", _SCAN_SCRIPT), 1)
        yield _RedisStore(pipe, cast("bytes", sha))


CONTENDERS: Final = (
    Contender(PEQUOD, "The ordered store itself; no join. A scan is one command with a limit.", _pequod),
    Contender(
        RedisSystem(),
        "A string a record, and a sorted set of all keys as the index that scans need; a scan is one EVALSHA, whose "
        "script reads the index (ZRANGE ... BYLEX) and the values (MGET). hiredis, pipelined.",
        _redis,
    ),
)


def run_ycsb(contender: Contender, operations: Operations, trials: Trials) -> RunOutcome:
    """Run a workload on a fresh server."""

    async def run(server: Server) -> RunOutcome:
        async with contender.connected(server) as store:
            small = YcsbRun(store, _warm_up())
            await small.load()
            await small.run()
            await store.clear()
            whole = YcsbRun(store, operations)
            return await timed(server, whole, whole.verify)

    return trials.on_server(contender.system, run)


@cache
def _warm_up() -> Operations:
    everything = ycsb.Mix("", "", (0.2, 0.2, 0.2, 0.2, 0.2))
    return ycsb.make_operations(everything, record_count=200, operation_count=2_000, seed=0)
