"""What the clients cost: calls and batches, one and many at once, from coroutines and from threads.

    AsyncClient   1 to 1,000 callers under asyncio.gather; calls of one turn of the loop share a message
    Client        call after call, from one thread and from several; batches of 1 to 256 commands, each waited for,
                  and four of them under way at once

The transports are the defaults; `pequod bench wire` has both. All read or write the same: posts, and timelines of three
rows.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, Literal

from pequod_workloads import twip as keys

from pequod.client import AsyncClient, Client, Results
from pequod_bench.report.printed import WrongAnswerError
from pequod_bench.report.progress import ProgressBars
from pequod_bench.settings import ClientsSettings
from pequod_bench.systems.server import listening_pid, loop_factory, started_server
from pequod_bench.wire.forms import Form, FormsReport, in_loop, measure

#: What is called: methods of this name of clients and of batches.
Call = Literal["get", "put", "scan"]
CALLS: Final[tuple[Call, ...]] = ("get", "put", "scan")

#: The number of timelines, all of one poster, and of the arguments of each call; and the posts in a timeline.
_USERS: Final = 1_000
_POSTER: Final = 1
_POSTS: Final = 3
_TWEET: Final = b"v" * 66
#: Batches that are under way at once.
_WINDOW: Final = 4
_TIMEOUT_S: Final = 60.0
_NEW_KEYS: Final = [b"x|%08d" % number for number in range(_USERS)]
#: What each call is called with; puts go beside the posts, so that no timeline grows.
_ARGUMENTS: Final[dict[Call, list[tuple[bytes, ...]]]] = {
    "get": [(keys.post_key(_POSTER, i % _POSTS),) for i in range(_USERS)],
    "put": [(key, _TWEET) for key in _NEW_KEYS],
    "scan": [keys.timeline(user) for user in range(_USERS)],
}


def run(settings: ClientsSettings, bars: ProgressBars) -> FormsReport:
    """Measure the forms against the server that the settings name, or one that is started for the run."""
    loop = loop_factory(settings.client_loop)
    with ExitStack() as stack:
        if settings.target is not None:
            target, pid = settings.target, listening_pid(settings.target)
        else:
            target, pid = stack.enter_context(started_server())
        with asyncio.Runner(loop_factory=loop) as runner:
            client = runner.run(_connect(target))
            try:
                figures = measure(list(_asyncio_forms(runner, client, pid)), settings, bars)
            finally:
                runner.run(client.close())
        # Not None, which would mean the quickest loop there is.
        with Client(target, timeout_s=_TIMEOUT_S, loop_factory=loop or asyncio.new_event_loop) as sync_client:
            figures += measure(list(_sync_forms(sync_client, pid)), settings, bars)
    return FormsReport(figures)


async def _connect(target: str) -> AsyncClient:
    """Connect, and write what is read."""
    client = AsyncClient(target, timeout_s=_TIMEOUT_S)
    await client.add_join(keys.PUSH_JOIN)
    rows = {keys.subscription_key(user, _POSTER): keys.FOLLOWS for user in range(_USERS)}
    await client.multi_put(rows | {keys.post_key(_POSTER, tick): _TWEET for tick in range(_POSTS)})
    return client


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


def _asyncio_forms(runner: asyncio.Runner, client: AsyncClient, pid: int | None) -> Iterator[Form]:
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
            yield Form(f"AsyncClient.{call}, {at_once:,} at once", at_once, in_loop(runner, work), pid)
    yield Form("AsyncClient.scan_iter, a row", _USERS * _POSTS, in_loop(runner, scan_all), pid)


def _sync_forms(client: Client, pid: int | None) -> Iterator[Form]:
    for call in CALLS:
        yield Form(f"Client.{call}", 1, partial(_one_by_one, client, call), pid)
    for threads in (4, 16):
        for call in CALLS:
            work = partial(_threads, client, call, threads)
            yield Form(f"Client.{call}, {threads} threads", threads, work, pid)
    for size, window in ((1, 1), (16, 1), (256, 1), (256, _WINDOW)):
        for call in CALLS:
            name = f"Client.batch of {size} {call}" + (f", {window} under way" if window > 1 else "")
            yield Form(name, size, partial(_batches, client, call, size, window), pid)


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
