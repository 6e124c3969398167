"""A server under clients that misbehave: exact meanwhile, nothing left of them afterwards.

    probed_server  <--- Honest: writes, reads and watches, all compared
                   <--- mischief, mischief, mischief: killed with SIGKILL and started anew

A third of the time warms up. Then everything is removed, and what the server holds is noted; the rest of the time
follows, everything is removed again, and the server must hold what it held.
"""

import asyncio
import gc
import random
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from grpc import aio
from pequod_proto import pequod_pb2 as pb

from pequod import AsyncClient
from pequod.engine.memory.story import STORY_MAX
from tests.forked import FORKS
from tests.soak.held import ANSWER_S_MAX, SETTLE_S_MAX, Held, Server, started_server
from tests.soak.honest import JOIN, Honest
from tests.soak.mischief import JOINS, misbehave

WATCHES_MAX = STREAMS_MAX = 100
CALLS_AT_ONCE = 5000
SETTINGS = ("--watch-linger-s=0.5", f"--watches-max={WATCHES_MAX}", f"--streams-max={STREAMS_MAX}", "--channelz")
#: How much more memory the process may take in the last quarter after the warm-up than in the second, by their medians.
#: Pools fill in the first: the clients start anew, and so do the threads that gRPC reads with.
GROWTH_MAX = 0.05
#: In runs shorter than this, the growth of memory pools hides everything else.
TREND_S_MIN = 45.0
#: What pools of gRPC, of threads and of Python may have more at the end than after the warm-up. The engine's story of
#: what it has dropped is one of them.
SLACK = {"fds": 8, "threads": 8, "objects": 500 + STORY_MAX}
_MARKS = ("UNFORESEEN", "Traceback", "Task exception", "Task was destroyed", "RuntimeWarning")
#: A traceback that ends in gRPC's own code.
_NOISE = re.compile(
    r"^Traceback .*\n(?:  .*\n)*"
    r"(?:grpc\._cython\.cygrpc\.ExecuteBatchError|google\.protobuf\.message\.DecodeError|RuntimeError: Event loop).*\n",
    re.MULTILINE,
)


@dataclass
class Report:
    """What a soak found; it went well if there are no ``faults``."""

    seconds: float = 0.0
    #: Of the honest client.
    rounds: int = 0
    reads: int = 0
    #: Processes of mischief.
    killed: int = 0
    #: Calls that gRPC handed over, and those of them that failed and that have not ended.
    calls: int = 0
    failed_calls: int = 0
    calls_left: int = 0
    #: Emptied, after the warm-up and at the end.
    before: Held | None = None
    after: Held | None = None
    #: Seconds since the warm-up, resident bytes.
    samples: list[tuple[float, int]] = field(default_factory=list)
    growth: float | None = None
    faults: list[str] = field(default_factory=list)


async def soak(seconds: float, seed: int, folder: Path, *, plant: str | None = None) -> Report:
    """Run it.

    Args:
        seconds: How long clients misbehave.
        seed: Of everything that is drawn; what processes do to each other is not repeated by it.
        folder: Where to keep what the processes say.
        plant: A fault that the server has: see `probed_server`.
    """
    report = Report()
    async with started_server(folder / "server.txt", *SETTINGS, plant=plant) as server:
        await server.meet_all_methods()
        fresh = await server.idle()
        errors = folder / "mischief.txt"
        await _misbehave(server, seconds / 3, seed, errors, report)
        report.before = await _emptied(server, fresh)
        report.samples.clear()
        await _misbehave(server, seconds * 2 / 3, seed + 1, errors, report)
        report.after = await _emptied(server, fresh)
        _compare(report, fresh, report.before, report.after)
        await _count_calls(server, report)
        await _call_at_once(server, report)
        await _ask_for_everything(server, report)
        await _stop_in_the_middle(server, seed, folder / "unheard.txt", report)
    _judge_trend(report, seconds)
    for file in (folder / "server.txt", errors):
        report.faults += [f"{file.name}: {text}" for text in _complaints(file)]
    return report


async def _misbehave(server: Server, seconds: float, seed: int, errors: Path, report: Report) -> None:
    """Let clients misbehave for a while, and an honest one check meanwhile."""
    async with AsyncClient(server.target, timeout_s=ANSWER_S_MAX) as client:
        await client.add_join(f"{JOIN}; {JOINS}")
        honest, until = Honest(client, seed), asyncio.Event()
        checking = asyncio.create_task(honest.run(until))
        crowds = [asyncio.create_task(_crowd(server, 10 * seed + number, errors, report)) for number in range(3)]
        started = time.monotonic()
        while (elapsed := time.monotonic() - started) < seconds and not checking.done():
            report.samples.append((elapsed, (await server.held()).rss_bytes))
            await asyncio.wait([checking], timeout=min(1.0, seconds / 5))
        until.set()
        for crowd in crowds:
            crowd.cancel()
        for result in await asyncio.gather(checking, *crowds, return_exceptions=True):
            if isinstance(result, Exception):
                report.faults.append(f"not exact, or a call failed: {result!r}")
        report.seconds += elapsed
        report.rounds += honest.rounds
        report.reads += honest.reads


async def _crowd(server: Server, seed: int, errors: Path, report: Report) -> None:
    """Keep a process of mischief running, and kill it again and again."""
    draw = random.Random(seed)
    while True:
        try:
            async with _mischief(server, draw.randrange(1 << 30), errors):
                await asyncio.sleep(draw.uniform(2, 8))
        finally:
            report.killed += 1


@asynccontextmanager
async def _mischief(server: Server, seed: int, errors: Path) -> AsyncIterator[None]:
    process = FORKS.Process(target=misbehave, args=(server.target, seed, errors), daemon=True)
    process.start()
    try:
        yield
        assert process.exitcode is None, f"a process of mischief ended by itself, with {process.exitcode}"
    finally:
        process.kill()
        process.join()


async def _emptied(server: Server, like: Held) -> Held:
    """Drop all joins, remove all keys, and wait for the end of all that clients left."""
    # Connections of clients of this process that wait to be collected.
    gc.collect()
    await server.idle(like)
    async with AsyncClient(server.target) as client:
        for join in await client.joins():
            await client.drop_join(join.name)
        batch = client.batch()
        async for key, _ in client.scan_iter(""):
            batch.remove(key)
        await batch.send()
        assert await client.count("") == 0
    return await server.idle(like)


def _compare(report: Report, fresh: Held, before: Held, after: Held) -> None:
    for name in ("feeds", "watches", "connections"):
        if held := getattr(after, name):
            report.faults.append(f"{name} left: {held}")
    if left := {name: count for name, count in after.tasks.items() if count > fresh.tasks.get(name, 0)}:
        report.faults.append(f"tasks left: {left}")
    for name, slack in SLACK.items():
        if getattr(after, name) > getattr(before, name) + slack:
            report.faults.append(f"{name} left: {getattr(after, name)}, before it was {getattr(before, name)}")


async def _count_calls(server: Server, report: Report) -> None:
    report.calls, report.failed_calls, report.calls_left = await server.calls()
    if report.calls_left > 0:
        report.faults.append(f"calls left: {report.calls_left} of {report.calls}")


async def _call_at_once(server: Server, report: Report) -> None:
    """Begin more calls at once than gRPC queues by itself, with its own client: all are answered.

    Not among the mischief: they take 20 KiB each for a moment, and the trend of the server's memory is judged there.
    """
    async with aio.insecure_channel(server.target) as channel:
        get: Any = channel.unary_unary("/pequod.v1.Pequod/Get")
        request = pb.GetRequest(key=b"n|00|00").SerializeToString()
        outcomes = await asyncio.gather(*[get(request) for _ in range(CALLS_AT_ONCE)], return_exceptions=True)
    if failed := Counter(repr(outcome) for outcome in outcomes if isinstance(outcome, BaseException)):
        report.faults.append(f"calls that began at once failed: {failed.most_common(3)}")


async def _ask_for_everything(server: Server, report: Report) -> None:
    """Open as many watches and streams as the limits allow: a place that was not given back is missed."""
    clients = [AsyncClient(server.target, timeout_s=ANSWER_S_MAX) for _ in range(STREAMS_MAX)]
    watches = [client.watch("n|", "n}") for client in clients]
    try:
        await asyncio.gather(*(client.get("n|00|00") for client in clients))
        await asyncio.gather(*(anext(events) for events in watches))
    except Exception as error:
        report.faults.append(f"places are taken for ever: {error!r}")
    for events in watches:
        await events.aclose()
    await asyncio.gather(*(client.close() for client in clients))


async def _stop_in_the_middle(server: Server, seed: int, errors: Path, report: Report) -> None:
    """Tell the server to stop while clients misbehave."""
    await server.idle()
    async with _mischief(server, seed, errors):
        async with asyncio.timeout(SETTLE_S_MAX):
            while not (await server.held()).connections:  # noqa: ASYNC110 - another process's
                await asyncio.sleep(0.05)
        server.process.terminate()
        try:
            exit_code = await asyncio.wait_for(server.process.wait(), SETTLE_S_MAX)
        except TimeoutError:
            report.faults.append("the server does not end")
        else:
            if exit_code != 0:
                report.faults.append(f"the server ended with exit code {exit_code}")


def _judge_trend(report: Report, seconds: float) -> None:
    report.growth = growth_of([rss_bytes for _, rss_bytes in report.samples])
    if report.growth is not None and report.growth > GROWTH_MAX and seconds >= TREND_S_MIN:
        report.faults.append(f"memory grows: {report.growth:.1%} in half of {report.samples[-1][0]:.0f} s")


def growth_of(sizes: Sequence[int]) -> float | None:
    """Return by how much the last quarter of samples is above the second one; None if there are too few."""
    quarter = len(sizes) // 4
    if quarter < 3:
        return None
    return median(sizes[-quarter:]) / median(sizes[quarter : 2 * quarter]) - 1


def _complaints(file: Path) -> list[str]:
    """Return the first things that a process was not to say: tracebacks, and what it calls unforeseen.

    Left out is what gRPC itself logs of messages that are none, of a status that cannot be sent, as the client is gone,
    and of what arrives for an event loop of another thread that has been closed.
    """
    text = file.read_text("utf-8", "replace")
    lines = re.sub(_NOISE, "", text).splitlines()
    found = [at for at, line in enumerate(lines) if any(mark in line for mark in _MARKS)]
    return ["\n".join(lines[at : at + 30]) for at in found[:5]]
