"""What the clients cost: calls and batches, one and many at once, from coroutines and from threads.

    AsyncClient   1 to 1,000 callers under asyncio.gather; calls of one turn of the loop share a message
    Client        call after call, from one thread and from several; batches of 1 to 256 commands, each waited for,
                  and four of them under way at once
    gRPC, native  unary calls by themselves, without a client of ours, one and 32 at once, and on 32 connections, by
                  each transport of servers; and by the native one on both sides
    AsyncClient by grpcio, native    gets of the asyncio client by each of its transports, one and 1,000 at once

Clients call the default transport of servers. All read or write the same: posts, and timelines of three rows. A sample
gives operations a second and the CPU of this process and of the server for each operation; the forms take turns, so
that a noisy machine disturbs all alike, and the medians are what counts.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, Final, Literal, TypeAlias

from grpc import aio
from pequod_proto.pequod_pb2 import GetRequest, MultiPutRequest, PutRequest, ScanRequest
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_workloads import twip as keys
from rich.console import Console

from pequod.client import AsyncClient, Client, Results
from pequod.native.http2 import why_absent
from pequod.wire.channel import NativeChannel
from pequod.wire.places import place_of
from pequod_bench.report.printed import Printed, WrongAnswerError, print_rows
from pequod_bench.report.progress import ProgressBars
from pequod_bench.settings import ClientsSettings
from pequod_bench.systems.server import listening_pid, loop_factory, started_server, usage
from pequod_bench.twip import Stopwatch

#: What is called: methods of this name of clients and of batches.
Call = Literal["get", "put", "scan"]
CALLS: Final[tuple[Call, ...]] = ("get", "put", "scan")

#: The number of timelines, all of one poster, and of the arguments of each call; and the posts in a timeline.
_USERS: Final = 1_000
_POSTER: Final = 1
_POSTS: Final = 3
_TWEET: Final = b"v" * 66
#: Batches, and unary calls, that are under way at once.
_WINDOW, _IN_FLIGHT = 4, 32
_TIMEOUT_S: Final = 60.0
#: gRPC's channels to one address share a connection otherwise.
_OWN_CONNECTION: Final = [("grpc.use_local_subchannel_pool", 1)]
#: The keys of a MultiPut, and those that are written.
_MULTI: Final = 10
_NEW_KEYS: Final = [b"x|%08d" % number for number in range(_USERS)]
#: What each call is called with; puts go beside the posts, so that no timeline grows.
_ARGUMENTS: Final[dict[Call, list[tuple[bytes, ...]]]] = {
    "get": [(keys.post_key(_POSTER, i % _POSTS),) for i in range(_USERS)],
    "put": [(key, _TWEET) for key in _NEW_KEYS],
    "scan": [keys.timeline(user) for user in range(_USERS)],
}


@dataclass(frozen=True, slots=True)
class Form:
    """One way to use a client: carries out a number of operations, a multiple of those that wait together."""

    name: str
    at_once: int
    work: Callable[[int], None]

    def sample(self, settings: ClientsSettings, pid: int | None) -> tuple[int, float, float, float]:
        """Return operations, seconds, and CPU seconds of client and server (0 if that is on another machine)."""
        wanted = settings.operations // 20 if self.at_once == 1 else settings.operations
        operations = max(1, wanted // self.at_once) * self.at_once
        server_s, watch = _server_s(pid), Stopwatch()
        self.work(operations)
        return operations, watch.seconds(), watch.cpu_seconds(), _server_s(pid) - server_s


def _server_s(pid: int | None) -> float:
    return 0.0 if pid is None else usage(pid).cpu_s


@dataclass(frozen=True, slots=True)
class FormFigures:
    """The figures of one form: medians of its samples, and for an operation."""

    name: str
    at_once: int
    operations_per_s: float
    client_cpu_us: float
    #: Of all samples together, since the system counts in steps of 10 ms; None if the server is on another machine.
    server_cpu_us: float | None


@dataclass(frozen=True, slots=True)
class ClientsReport(Printed):
    """All forms."""

    forms: list[FormFigures]

    def print_table(self, console: Console) -> None:
        columns = {"form": "{0.name}", "operations/s": "{0.operations_per_s:,.0f}"}
        columns |= {"client CPU an operation": "{0.client_cpu_us:.2f} µs", "server CPU": "{0.server_cpu_us:.1f} µs"}
        print_rows(console, self.forms, columns)


def run(settings: ClientsSettings, bars: ProgressBars) -> ClientsReport:
    """Measure the forms against the server that the settings name, or those that are started for the run."""
    loop = loop_factory(settings.client_loop)
    with ExitStack() as stack:
        servers: dict[str, tuple[str, int | None]] = {}
        if settings.target is not None:
            servers["gRPC"] = settings.target, listening_pid(settings.target)
        else:
            # The default is first.
            if why_absent() is None:
                servers["native"] = stack.enter_context(started_server("--transport", "native"))
            servers["gRPC"] = stack.enter_context(started_server("--transport", "grpcio"))
        target, pid = next(iter(servers.values()))
        with asyncio.Runner(loop_factory=loop) as runner:
            clients = {name: runner.run(_connect(address)) for name, (address, _) in servers.items()}
            try:
                own = () if settings.is_unary else _asyncio_forms(runner, next(iter(clients.values()))[0])
                forms = [(form, pid) for form in own]
                for name, (_, channels) in clients.items():
                    forms += [(form, servers[name][1]) for form in _unary_forms(runner, name, channels)]
                if why_absent() is None:
                    clients |= runner.run(_connect_by_each(target))
                    channels = clients["by native"][1]
                    forms += [(form, pid) for form in _unary_forms(runner, "native on both sides", channels)]
                    forms += [(form, pid) for form in _transport_forms(runner, clients)]
                figures = _measure(forms, settings, bars)
            finally:
                for client, channels in clients.values():
                    runner.run(client.close())
                    for channel in channels:
                        runner.run(channel.close())
        if settings.is_unary:
            return ClientsReport(figures)
        # Not None, which would mean the quickest loop there is.
        with Client(target, timeout_s=_TIMEOUT_S, loop_factory=loop or asyncio.new_event_loop) as sync_client:
            figures += _measure([(form, pid) for form in _sync_forms(sync_client)], settings, bars)
    return ClientsReport(figures)


def _measure(
    forms: Sequence[tuple[Form, int | None]], settings: ClientsSettings, bars: ProgressBars
) -> list[FormFigures]:
    """Take samples of forms, each with the process of its server."""
    forms = [(form, pid) for form, pid in forms if settings.only in form.name]
    samples: list[list[tuple[int, float, float, float]]] = [[] for _ in forms]
    with bars.bar("running", settings.samples * len(forms)) as advance:
        for _ in range(settings.samples):
            for (form, pid), taken in zip(forms, samples, strict=True):
                taken.append(form.sample(settings, pid))
                advance(1)
    figures = []
    for (form, pid), taken in zip(forms, samples, strict=True):
        rate = median(operations / seconds for operations, seconds, _, _ in taken)
        client_us = median(client_s / operations * 1e6 for operations, _, client_s, _ in taken)
        operations, server_s = (sum(one[at] for one in taken) for at in (0, 3))
        server_us = None if pid is None else server_s / operations * 1e6
        figures.append(FormFigures(form.name, form.at_once, rate, client_us, server_us))
    return figures


_Connected: TypeAlias = "tuple[AsyncClient, Sequence[aio.Channel | NativeChannel]]"


async def _connect_by_each(target: str) -> dict[str, _Connected]:
    """Connect by each transport of clients; by the native one without a client, too."""
    place = place_of(target)
    channels = [] if place is None else [NativeChannel(place) for _ in range(_IN_FLIGHT)]
    return {
        "by grpcio": (AsyncClient(target, timeout_s=_TIMEOUT_S, transport="grpcio"), []),
        "by native": (AsyncClient(target, timeout_s=_TIMEOUT_S, transport="native"), channels),
    }


async def _connect(target: str) -> _Connected:
    """Connect, with a client and by connections without one, and write what is read."""
    client = AsyncClient(target, timeout_s=_TIMEOUT_S)
    await client.add_join(keys.PUSH_JOIN)
    rows = {keys.subscription_key(user, _POSTER): keys.FOLLOWS for user in range(_USERS)}
    await client.multi_put(rows | {keys.post_key(_POSTER, tick): _TWEET for tick in range(_POSTS)})
    return client, [aio.insecure_channel(target, _OWN_CONNECTION) for _ in range(_IN_FLIGHT)]


def _expect(call: Call, result: Any) -> None:
    # Batches give columns, calls give pairs.
    found = len(getattr(result, "keys", result)) if call == "scan" else result
    if found != {"get": _TWEET, "put": None, "scan": _POSTS}[call]:
        raise WrongAnswerError(f"{call} returned {result!r:.200}")


def _some(call: Call, start: int, count: int) -> list[tuple[bytes, ...]]:
    """Return the arguments of ``count`` calls, the first of which is call number ``start``."""
    at = start % (_USERS - count + 1)
    return _ARGUMENTS[call][at : at + count]


async def _gather(client: AsyncClient, call: Call, at_once: int, operations: int) -> None:
    method = getattr(client, call)
    for start in range(0, operations, at_once):
        results = await asyncio.gather(*[method(*some) for some in _some(call, start, at_once)])
        _expect(call, results[-1])


def _transport_forms(runner: asyncio.Runner, clients: Mapping[str, _Connected]) -> Iterator[Form]:
    for at_once in (1, 1_000):
        for name in ("by grpcio", "by native"):
            work = partial(_gather, clients[name][0], "get", at_once)
            yield Form(f"AsyncClient {name}, get, {at_once:,} at once", at_once, _in(runner, work))


def _asyncio_forms(runner: asyncio.Runner, client: AsyncClient) -> Iterator[Form]:
    async def scan_all(operations: int) -> None:
        rows = 0
        while rows < operations:
            async for _ in client.scan_iter(*keys.TIMELINES):
                rows += 1
        if rows != operations:
            raise WrongAnswerError(f"scan_iter returned {rows} rows, not {operations}")

    for at_once in (1, 10, 100, 1_000):
        for call in CALLS:
            work = partial(_gather, client, call, at_once)
            yield Form(f"AsyncClient.{call}, {at_once:,} at once", at_once, _in(runner, work))
    yield Form("AsyncClient.scan_iter, a row", _USERS * _POSTS, _in(runner, scan_all))


def _in(runner: asyncio.Runner, work: Callable[[int], Any]) -> Callable[[int], None]:
    return lambda operations: runner.run(work(operations))


def _unary_forms(runner: asyncio.Runner, name: str, channels: Sequence[aio.Channel | NativeChannel]) -> Iterator[Form]:
    stubs: list[Any] = [PequodStub(channel) for channel in channels]  # type: ignore[no-untyped-call]
    stub = stubs[0]

    async def get(number: int, stub: Any = stub) -> None:
        _expect("get", (await stub.Get(GetRequest(key=keys.post_key(_POSTER, number % _POSTS)))).value)

    async def put(number: int) -> None:
        await stub.Put(PutRequest(key=_NEW_KEYS[number % _USERS], value=_TWEET))

    async def scan(number: int) -> None:
        first, last = keys.timeline(number % _USERS)
        _expect("scan", [key async for chunk in stub.Scan(ScanRequest(first=first, last=last)) for key in chunk.keys])

    async def multi_put(number: int) -> None:
        start = number % (_USERS - _MULTI)
        wanted = MultiPutRequest(keys=_NEW_KEYS[start : start + _MULTI], values=[_TWEET] * _MULTI)
        await stub.MultiPut(wanted)

    async def get_by_all(number: int) -> None:
        await get(number, stubs[number % _IN_FLIGHT])

    async def calls(call: Callable[[int], Awaitable[None]], at_once: int, operations: int) -> None:
        async def caller(begin: int) -> None:
            for number in range(begin, operations, at_once):
                await call(number)

        await asyncio.gather(*map(caller, range(at_once)))

    for call, of_call in ((get, "Get"), (put, "Put"), (multi_put, f"MultiPut of {_MULTI}"), (scan, "Scan of 3 rows")):
        for at_once, words in ((1, ""), (_IN_FLIGHT, f", {_IN_FLIGHT} at once")):
            title = f"{name}, unary {of_call}{words}"
            yield Form(title, at_once, _in(runner, partial(calls, call, at_once)))
    title = f"{name}, unary Get, {_IN_FLIGHT} connections"
    yield Form(title, _IN_FLIGHT, _in(runner, partial(calls, get_by_all, _IN_FLIGHT)))


def _sync_forms(client: Client) -> Iterator[Form]:
    for call in CALLS:
        yield Form(f"Client.{call}", 1, partial(_one_by_one, client, call))
    for threads in (4, 16):
        for call in CALLS:
            yield Form(f"Client.{call}, {threads} threads", threads, partial(_threads, client, call, threads))
    for size, window in ((1, 1), (16, 1), (256, 1), (256, _WINDOW)):
        for call in CALLS:
            name = f"Client.batch of {size} {call}" + (f", {window} under way" if window > 1 else "")
            yield Form(name, size, partial(_batches, client, call, size, window))


def _one_by_one(client: Client, call: Call, operations: int) -> None:
    method, arguments = getattr(client, call), _ARGUMENTS[call]
    for number in range(operations):
        result = method(*arguments[number % _USERS])
    _expect(call, result)


def _threads(client: Client, call: Call, threads: int, operations: int) -> None:
    with ThreadPoolExecutor(threads) as pool:
        done = [pool.submit(_one_by_one, client, call, operations // threads) for _ in range(threads)]
        for future in done:
            future.result()


def _batches(client: Client, call: Call, size: int, window: int, operations: int) -> None:
    under_way: deque[Future[Results]] = deque()
    for start in range(0, operations, size):
        if len(under_way) == window:
            _expect(call, under_way.popleft().result()[-1])
        batch = client.batch()
        command = getattr(batch, call)
        for some in _some(call, start, size):
            command(*some)
        under_way.append(batch.send_nowait())
    while under_way:
        _expect(call, under_way.popleft().result()[-1])
