"""What a call takes of the server by each transport: Gets, Puts and short scans, one at a time and many in flight."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from grpc import aio
from pequod_proto import pequod_pb2 as pb
from rich.console import Console

from pequod_bench.report.printed import Printed, print_rows
from pequod_bench.settings import WireSettings
from pequod_bench.systems.server import started_server, usage

_SERVICE: Final = "/pequod.v1.Pequod/"
_KEY: Final = b"u|0000000042"
_ROWS: Final = 100
_IN_FLIGHT: Final = (1, 32)

_Call = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class WireCost:
    """What one kind of call takes of the server by each transport: CPU for each call, in microseconds."""

    call: str
    in_flight: int
    grpcio_us: float
    native_us: float


@dataclass(frozen=True, slots=True)
class WireReport(Printed):
    """All kinds of calls."""

    costs: list[WireCost]

    def print_table(self, console: Console) -> None:
        rows = [(cost, cost.grpcio_us / cost.native_us) for cost in self.costs]
        columns = {"call": "{0[0].call}", "in flight": "{0[0].in_flight}"}
        columns |= {"grpcio": "{0[0].grpcio_us:.0f} µs", "native": "{0[0].native_us:.0f} µs", "times": "{0[1]:.1f}"}
        print_rows(console, rows, columns)


class _Asked(NamedTuple):
    """A server with one transport, and the calls that it is asked."""

    pid: int
    calls: dict[str, _Call]


def run(settings: WireSettings) -> WireReport:
    """Measure each kind of call by both transports: the least of some rounds."""
    return WireReport(asyncio.run(_measure(settings)))


async def _measure(settings: WireSettings) -> list[WireCost]:
    costs = []
    async with _started("grpcio") as grpcio, _started("native") as native:
        for name in grpcio.calls:
            for in_flight in _IN_FLIGHT:
                # In turns, so that a busy moment of the machine meets both.
                rounds = [
                    [
                        await _server_us(asked, asked.calls[name], settings.calls, in_flight)
                        for asked in (grpcio, native)
                    ]
                    for _ in range(settings.rounds)
                ]
                grpcio_us, native_us = map(min, zip(*rounds, strict=True))
                costs.append(WireCost(name, in_flight, grpcio_us, native_us))
    return costs


@asynccontextmanager
async def _started(transport: str) -> AsyncIterator[_Asked]:
    async with AsyncExitStack() as stack:
        target, pid = stack.enter_context(started_server("--transport", transport, "--slow-ms", "0"))
        channel = await stack.enter_async_context(aio.insecure_channel(target))
        put: Any = channel.unary_unary(_SERVICE + "Put")
        for number in range(_ROWS):
            await put(pb.PutRequest(key=b"u|%010d" % number, value=b"v" * 32).SerializeToString())
        yield _Asked(pid, _calls(channel))


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
