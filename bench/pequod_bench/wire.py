"""What a call takes of the server by each transport: Gets, Puts and short scans, one at a time and many in flight."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, NamedTuple

from grpc import aio
from pequod_proto import pequod_pb2 as pb

from pequod_bench.process import started_server, usage

TRANSPORTS: Final = ("grpcio", "native")
_SERVICE: Final = "/pequod.v1.Pequod/"
_KEY: Final = b"u|0000000042"
_ROUNDS: Final = 3

_Call = Callable[[], Awaitable[object]]


class WireCost(NamedTuple):
    """What one kind of call takes by one transport."""

    call: str
    in_flight: int
    transport: str
    #: The server's CPU for each call, in microseconds.
    server_us: float


class _Asked(NamedTuple):
    transport: str
    pid: int
    calls: dict[str, _Call]


@asynccontextmanager
async def _both() -> AsyncIterator[list[_Asked]]:
    async with AsyncExitStack() as stack:
        asked = []
        for transport in TRANSPORTS:
            target, pid = stack.enter_context(started_server("--transport", transport, "--slow-ms", "0"))
            channel = await stack.enter_async_context(aio.insecure_channel(target))
            calls = _calls(channel)
            for number in range(100):
                row = pb.PutRequest(key=b"u|%010d" % number, value=b"v" * 32).SerializeToString()
                put: Any = channel.unary_unary(_SERVICE + "Put")
                await put(row)
            asked.append(_Asked(transport, pid, calls))
        yield asked


def _calls(channel: aio.Channel) -> dict[str, _Call]:
    get: Any = channel.unary_unary(_SERVICE + "Get")
    put: Any = channel.unary_unary(_SERVICE + "Put")
    scan: Any = channel.unary_stream(_SERVICE + "Scan")
    get_request = pb.GetRequest(key=_KEY).SerializeToString()
    put_request = pb.PutRequest(key=_KEY, value=b"v" * 32).SerializeToString()
    scan_request = pb.ScanRequest(first=b"u|0000000040", last=b"u}", limit=10).SerializeToString()

    async def scanned() -> None:
        async for _ in scan(scan_request):
            pass

    return {"Get": lambda: get(get_request), "Put": lambda: put(put_request), "Scan of 10 rows": scanned}


async def _server_us(asked: _Asked, call: _Call, count: int, in_flight: int) -> float:
    async def caller() -> None:
        for _ in range(count // in_flight):
            await call()

    before_s = usage(asked.pid).cpu_s
    await asyncio.gather(*(caller() for _ in range(in_flight)))
    return (usage(asked.pid).cpu_s - before_s) / (count // in_flight * in_flight) * 1e6


async def _measure(count: int) -> list[WireCost]:
    costs = []
    async with _both() as both:
        for name in both[0].calls:
            for in_flight in (1, 32):
                least = dict.fromkeys(TRANSPORTS, float("inf"))
                # In turns, so that a busy moment of the machine meets both.
                for _ in range(_ROUNDS):
                    for asked in both:
                        taken_us = await _server_us(asked, asked.calls[name], count, in_flight)
                        least[asked.transport] = min(least[asked.transport], taken_us)
                costs += [WireCost(name, in_flight, transport, least[transport]) for transport in TRANSPORTS]
    return costs


def run(count: int) -> list[WireCost]:
    """Measure each kind of call by both transports, the least of three rounds.

    Args:
        count: Calls in a round.
    """
    return asyncio.run(_measure(count))


def shown(costs: list[WireCost]) -> str:
    """Return the table of a run."""
    by_call: dict[tuple[str, int], dict[str, float]] = {}
    for cost in costs:
        by_call.setdefault((cost.call, cost.in_flight), {})[cost.transport] = cost.server_us
    lines = ["| call | in flight | grpcio, µs | native, µs | times |", "|---|---|---|---|---|"]
    for (call, in_flight), taken in by_call.items():
        times = taken["grpcio"] / taken["native"]
        lines.append(f"| {call} | {in_flight} | {taken['grpcio']:.0f} | {taken['native']:.0f} | {times:.1f} |")
    return "\n".join(lines)
