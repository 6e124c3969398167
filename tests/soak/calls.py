"""Millions of calls of all kinds at one server: the memory that it takes stays what it was.

    python -m tests.soak.calls --calls 10000000

    stubs by both transports   on several connections, 32 calls at once; some end early, and connections end, too
    AsyncClient by both        gathers of 100
    Client                     two threads: single calls, and batches

All work on the same keys, of which there is a bounded number, and look at what they read. The resident size of the
server is taken after each round: the last quarter of the rounds must be what the second one was.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import grpc
from pequod_bench.systems.server import loop_factory, started_server, usage
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub

from pequod.client import AsyncClient, Client
from pequod.client.credentials import Channel, Credentials
from pequod.errors import PequodError

#: The last quarter may take this more than the second one.
GROWTH_MAX: Final = 0.03
_ROUNDS: Final = 400
_CALLS_A_ROUND_MIN: Final = 200
_KEYS: Final = 2_000
_IN_FLIGHT: Final = 32
#: A connection of stubs is closed after as many calls, and another one takes its place.
_CALLS_A_CONNECTION: Final = 5_000
_TIMEOUT_S: Final = 60.0
_JOIN: Final = "t|<user>|<time> = check s|<user> copy x|<time>"
#: The server forgets request ids soon, so that those that it remembers are as many in each round.
_FLAGS: Final = ("--request-ids-keep-s", "2", "--transport", "native")


@dataclass
class Report:
    """What was seen."""

    #: (seconds, calls so far, bytes of the server), after each round.
    samples: list[tuple[float, int, int]] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    @property
    def growth(self) -> float:
        """Return by how much the mean of the last quarter is above that of the second."""
        sizes = [rss for _, _, rss in self.samples]
        quarter = len(sizes) // 4
        return _mean(sizes[-quarter:]) / _mean(sizes[quarter : 2 * quarter]) - 1

    @property
    def faults(self) -> list[str]:
        """What is wrong, in words."""
        grown = [f"the server has grown by {self.growth:.1%}"] if self.growth > GROWTH_MAX else []
        return self.wrong + grown


class Calls:
    """Random calls, and what is wrong with their replies."""

    def __init__(self, seed: int, report: Report) -> None:
        self.random = Random(seed)
        self.report = report

    def key(self) -> bytes:
        """Return a key of a row."""
        return b"x|%06d" % self.random.randrange(_KEYS)

    def value(self, key: bytes) -> bytes:
        """Return a value that such a key may have."""
        return key + b"v" * self.random.randrange(200)

    def ends(self) -> tuple[bytes, bytes]:
        """Return the ends of a range of some rows."""
        first = self.random.randrange(_KEYS - 20)
        return b"x|%06d" % first, b"x|%06d" % (first + self.random.randrange(1, 20))

    def look(self, key: bytes, value: bytes | None) -> None:
        """Note a value that the key cannot have."""
        if value and not value.startswith(key):
            self.report.wrong.append(f"{key!r} has {value!r:.60}")

    def request(self) -> tuple[str, Any]:
        """Return a method and its request."""
        key, (first, last) = self.key(), self.ends()
        value, ttl_ms = self.value(key), self.random.choice([0, 0, 0, 50, 3_600_000])
        keys = [self.key() for _ in range(5)]
        number = b"n|%d" % self.random.randrange(100)
        made: dict[str, Callable[[], Any]] = {
            "Get": lambda: pb.GetRequest(key=key),
            "Put": lambda: pb.PutRequest(key=key, value=value, ttl_ms=ttl_ms),
            "Remove": lambda: pb.RemoveRequest(key=key),
            "Count": lambda: pb.CountRequest(first=first, last=last),
            "Scan": lambda: pb.ScanRequest(first=first, last=last),
            "MultiGet": lambda: pb.MultiGetRequest(keys=keys),
            "MultiPut": lambda: pb.MultiPutRequest(keys=keys, values=list(map(self.value, keys)), ttl_ms=ttl_ms),
            "WriteIf": lambda: pb.WriteIfRequest(
                key=key, value=value, condition=self.random.choice([1, 2]), request_id=self.random.randbytes(16)
            ),
            "Add": lambda: pb.AddRequest(key=number, delta=b"1", request_id=self.random.randbytes(16)),
            "Expire": lambda: pb.ExpireRequest(key=key, ttl_ms=ttl_ms),
            "Ttl": lambda: pb.TtlRequest(key=key),
            "Splits": lambda: pb.SplitsRequest(first=first, last=last, count=2),
            "Stats": pb.StatsRequest,
        }
        weights = [30, 20, 3, 4, 10, 6, 4, 4, 4, 3, 3, 0.05, 0.05]
        method = self.random.choices([*made], weights)[0]
        return method, made[method]()


class Stubs:
    """Single calls on connections of one transport, each of which ends after some time."""

    def __init__(self, target: str, transport: str, calls: Calls) -> None:
        self._open = Credentials(transport=transport).connector(target, [("grpc.use_local_subchannel_pool", 1)])
        self._calls = calls
        self._channel: Channel | None = None
        self._left = 0
        self._stub: Any = None

    async def make(self, count: int) -> None:
        """Make calls, 32 at once."""
        if self._left < count:
            await self.close()
            self._channel, self._left = self._open(), _CALLS_A_CONNECTION
            self._stub = PequodStub(self._channel)  # type: ignore[no-untyped-call]
        self._left -= count
        await asyncio.gather(*(self._caller(range(at, count, _IN_FLIGHT)) for at in range(_IN_FLIGHT)))

    async def _caller(self, numbers: range) -> None:
        for _ in numbers:
            method, request = self._calls.request()
            self._calls.report.kinds[method] += 1
            # Some clients do not wait for long.
            timeout_s = 0.0005 if self._calls.random.random() < 0.01 else _TIMEOUT_S
            try:
                await self._call(method, request, timeout_s)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    self._calls.report.wrong.append(f"{method}: {error.code()} {error.details()}")

    async def _call(self, method: str, request: Any, timeout_s: float) -> None:
        call = getattr(self._stub, method)(request, timeout=timeout_s)
        if method == "Scan":
            async for chunk in call:
                for key, value in zip(chunk.keys, chunk.values, strict=True):
                    self._calls.look(key, value)
            return
        reply = await call
        if method == "Get":
            self._calls.look(request.key, reply.value)
        elif method == "MultiGet":
            for key, value in zip(request.keys, reply.values, strict=True):
                self._calls.look(key, value)

    async def close(self) -> None:
        """Close the connection."""
        if self._channel is not None:
            await self._channel.close()


class Gatherings:
    """Calls of an asyncio client, a hundred at once."""

    def __init__(self, client: AsyncClient, calls: Calls) -> None:
        self._client = client
        self._calls = calls

    async def make(self, count: int) -> None:
        """Make calls."""
        for start in range(0, count, 100):
            await asyncio.gather(*(self._one() for _ in range(min(100, count - start))))

    async def _one(self) -> None:
        calls, client = self._calls, self._client
        key, (first, last) = calls.key(), calls.ends()
        kind = calls.random.choice(["get", "get", "put", "put", "scan", "count", "add", "remove", "timeline"])
        calls.report.kinds[f"AsyncClient.{kind}"] += 1
        match kind:
            case "get":
                calls.look(key, await client.get(key))
            case "put":
                await client.put(key, calls.value(key), ttl_s=calls.random.choice([None, None, 0.05]))
            case "scan":
                for found, value in await client.scan(first, last):
                    calls.look(found, value)
            case "timeline":
                await client.scan("t|1|", "t|1}", limit=5)
            case "count":
                await client.count(first, last)
            case "add":
                await client.add(b"n|%d" % calls.random.randrange(100), 1)
            case "remove":
                await client.remove(key)


def _wait_for_each(client: Client, calls: Calls, count: int) -> None:
    """Make calls of a client that waits: half of them by themselves, half in batches."""
    kinds = calls.report.kinds
    for _ in range(count // 2):
        key = calls.key()
        if calls.random.random() < 0.5:
            calls.look(key, client.get(key))
        else:
            client.put(key, calls.value(key))
    for _ in range(0, count // 2, 50):
        batch = client.batch()
        for _ in range(25):
            key = calls.key()
            batch.put(key, calls.value(key))
            batch.get(key)
        batch.send()
    kinds["Client"] += count


def soak(calls: int, *, seed: int = 1, flags: Sequence[str] = ()) -> Report:
    """Make as many calls at a server of this run, and report what it took."""
    report = Report()
    with started_server(*_FLAGS, *flags) as (target, pid), asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_soak(calls, seed, report, target, pid))
    return report


async def _soak(calls: int, seed: int, report: Report, target: str, pid: int) -> None:
    a_round = max(_CALLS_A_ROUND_MIN, calls // _ROUNDS)
    begun_s, made = time.monotonic(), 0
    mixed = [Calls(seed + number, report) for number in range(8)]
    stubs = [Stubs(target, transport, one) for transport, one in zip([*["native"] * 3, "grpcio"], mixed, strict=False)]
    with Client(target, timeout_s=_TIMEOUT_S) as waiting, ThreadPoolExecutor(2) as threads:
        waiting.add_join(_JOIN)
        waiting.put("s|1", "1")
        async with _client(target, "native") as own, _client(target, "grpcio") as other:
            loop = asyncio.get_running_loop()
            #: What a round is made of, in hundredths.
            shares: list[tuple[int, Callable[[int], Awaitable[None]]]] = [
                *zip((15, 15, 14, 4), (one.make for one in stubs), strict=True),
                (28, Gatherings(own, mixed[4]).make),
                (4, Gatherings(other, mixed[5]).make),
                *(
                    (10, lambda count, one=one: loop.run_in_executor(threads, _wait_for_each, waiting, one, count))
                    for one in mixed[6:]
                ),
            ]
            try:
                while made < calls:
                    try:
                        await asyncio.gather(*(make(a_round * share // 100) for share, make in shares))
                    except PequodError as error:
                        report.wrong.append(f"{type(error).__name__}: {error}")
                    made += sum(a_round * share // 100 for share, _ in shares)
                    report.samples.append((time.monotonic() - begun_s, made, usage(pid).rss_bytes))
            finally:
                for one in stubs:
                    await one.close()


def _client(target: str, transport: str) -> AsyncClient:
    return AsyncClient(target, timeout_s=_TIMEOUT_S, transport=transport)


def _mean(sizes: Sequence[float]) -> float:
    return sum(sizes) / len(sizes)


def main() -> int:
    """Run it, and print the sizes over time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    report = soak(options.calls, seed=options.seed)
    for elapsed_s, made, rss_bytes in report.samples[:: max(1, len(report.samples) // 24)]:
        print(f"{elapsed_s:7.0f} s {made:12,} calls  server {rss_bytes / 2**20:8.1f} MiB")
    print(", ".join(f"{kind} {count:,}" for kind, count in sorted(report.kinds.items())))
    print(f"{report.samples[-1][1]:,} calls; the last quarter against the second: {report.growth:+.2%}")
    for fault in report.faults[:20]:
        print(f"FAULT {fault}")
    return bool(report.faults)


if __name__ == "__main__":
    sys.exit(main())
