"""What a server process holds: asked of itself, of gRPC and of the system."""

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from grpc import aio
from grpc_channelz.v1 import channelz_pb2, channelz_pb2_grpc
from pequod_proto import pequod_pb2 as pb

#: Longest wait for what clients leave behind to be gone.
SETTLE_S_MAX = 60.0
#: Longest wait for an answer: it only tells a hang from a machine that is busy.
ANSWER_S_MAX = 120.0


@dataclass(frozen=True)
class Held:
    """What a server process holds at a moment."""

    #: Tasks by what they wait for.
    tasks: dict[str, int]
    #: Watches: of the server, of its engine.
    feeds: int
    watches: int
    #: Calls that gRPC has handed over since the start.
    calls: int
    #: Containers that Python's collector knows of, and how many of the commonest kinds.
    objects: int
    most: dict[str, int]
    threads: int
    fds: int
    connections: int
    rss_bytes: int


class Server:
    """A probed server process."""

    def __init__(self, process: asyncio.subprocess.Process, target: str) -> None:
        self.process = process
        self.target = target

    async def held(self) -> Held:
        """Ask what it holds."""
        self.process.send_signal(signal.SIGUSR1)
        assert self.process.stdout is not None
        told: dict[str, Any] = json.loads(await asyncio.wait_for(self.process.stdout.readline(), SETTLE_S_MAX))
        system = psutil.Process(self.process.pid)
        return Held(
            tasks=told["tasks"],
            feeds=told["feeds"],
            watches=told["watches"],
            calls=told["calls"],
            objects=told["objects"],
            most=told["most"],
            threads=system.num_threads(),
            fds=system.num_fds(),
            connections=sum(bool(entry.raddr) for entry in system.net_connections("tcp")),
            rss_bytes=system.memory_info().rss,
        )

    async def idle(self, like: Held | None = None) -> Held:
        """Wait, not for ever, until nobody is connected and the tasks are ``like`` those before; ask what it holds."""
        deadline = time.monotonic() + SETTLE_S_MAX
        while True:
            held = await self.held()
            is_idle = not held.feeds and not held.watches and not held.connections
            if (is_idle and (like is None or held.tasks == like.tasks)) or time.monotonic() > deadline:
                return held
            await asyncio.sleep(0.1)

    async def meet_all_methods(self) -> None:
        """Make each call once, with an empty message: the server keeps some twenty objects for each from then on."""
        async with aio.insecure_channel(self.target) as typed:
            # The stubs know nothing of bytes.
            channel: Any = typed
            calls = [
                channel.stream_stream(f"/{service.full_name}/{method.name}")(iter([b""]), timeout=2.0)
                for service in pb.DESCRIPTOR.services_by_name.values()
                for method in service.methods
            ]
            await asyncio.gather(*(call.read() for call in calls), return_exceptions=True)
            for call in calls:
                call.cancel()

    async def calls(self) -> tuple[int, int, int]:
        """Return how many calls were handed over, how many have failed, and how many have not ended, but this one.

        The last is below 0 where clients went away before a call's task had its first turn, as they do on a machine
        that is busy: it has failed, and was handed to nobody.

        Channelz counts the calls that begin as well. Those that end before the server takes them, by a deadline or with
        their connection while its event loop is busy, are never counted as ended there: gRPC lets them go all the same.
        """
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with aio.insecure_channel(self.target, options) as channel:
            stub: Any = channelz_pb2_grpc.ChannelzStub(channel)
            (server,) = (await stub.GetServers(channelz_pb2.GetServersRequest())).server
        begun = (await self.held()).calls - 1
        return begun, server.data.calls_failed, begun - server.data.calls_succeeded - server.data.calls_failed


@asynccontextmanager
async def started_server(said: Path, *settings: str, plant: str | None = None) -> AsyncIterator[Server]:
    """Run a probed server on a free port; it says what it says into a file, and is killed at last."""
    planted = [] if plant is None else ["--plant", plant]
    command = ["-m", "tests.soak.probed_server", *planted, "serve", "--listen", "127.0.0.1:0", *settings]
    with said.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=errors
        )
    try:
        async with asyncio.timeout(SETTLE_S_MAX):
            while "\n" not in (text := said.read_text()):  # noqa: ASYNC240 - a line
                assert process.returncode is None, text
                await asyncio.sleep(0.02)
        yield Server(process, text.split("\n")[0].rpartition(" ")[2])
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
