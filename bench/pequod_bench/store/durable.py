"""Single puts of many connections, each on the disk before its answer: Pequod, and etcd on the same disk in turns.

The client is this process, for both, and takes a core by itself: beside a server that has few of them, its ratios are
nearer to 1 than those of the servers' own CPU.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from pequod_proto import etcd_pb2 as etcd
from pequod_server.cluster.etcd_calls import EtcdCalls

from pequod.client import AsyncClient
from pequod_bench.systems.server import listening_pid, started_server, usage
from pequod_bench.systems.site import started_etcd

_VALUE: Final = b"v" * 100
#: Puts a key and a value.
_Put = Callable[[bytes, bytes], Awaitable[object]]


class Puts(NamedTuple):
    """What one system did in its time."""

    puts_per_s: float
    server_cpu_us: float


def pequod_puts(scratch: Path, connections: int, seconds: float) -> Puts:
    """Measure a server that syncs before each answer."""
    with started_server("--data", str(scratch), "--fsync", "always") as (target, pid):
        return asyncio.run(_measured(lambda: _pequod(target), pid, connections, seconds))


def etcd_puts(scratch: Path, connections: int, seconds: float) -> Puts:
    """Measure one node of etcd, which does so as well.

    Raises:
        NoEtcdError: There is no etcd on this machine.
    """
    with started_etcd(scratch, 1) as (target,):
        pid = listening_pid(target)
        assert pid is not None, "it listens on this machine"
        return asyncio.run(_measured(lambda: _etcd(target), pid, connections, seconds))


@asynccontextmanager
async def _pequod(target: str) -> AsyncIterator[_Put]:
    async with AsyncClient(target) as client:
        yield client.put


@asynccontextmanager
async def _etcd(target: str) -> AsyncIterator[_Put]:
    calls = EtcdCalls([target])

    async def put(key: bytes, value: bytes) -> None:
        change = etcd.Operation(put=etcd.PutRequest(key=key, value=value))
        await calls.transact(etcd.TransactionRequest(success=[change]))

    try:
        yield put
    finally:
        await calls.close()


async def _measured(
    connect: Callable[[], AbstractAsyncContextManager[_Put]], pid: int, connections: int, seconds: float
) -> Puts:
    async with AsyncExitStack() as stack:
        puts = [await stack.enter_async_context(connect()) for _ in range(connections)]
        await asyncio.gather(*(put(b"warm|%d" % number, _VALUE) for number, put in enumerate(puts)))
        before, begun_s = usage(pid), time.perf_counter()
        end_s = begun_s + seconds

        async def write(number: int, put: _Put) -> int:
            count = 0
            while time.perf_counter() < end_s:
                await put(b"k|%03d|%08d" % (number, count), _VALUE)
                count += 1
            return count

        total = sum(await asyncio.gather(*(write(number, put) for number, put in enumerate(puts))))
        taken_s, after = time.perf_counter() - begun_s, usage(pid)
    return Puts(total / taken_s, (after.cpu_s - before.cpu_s) / total * 1e6)
