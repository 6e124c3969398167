"""A rolling upgrade to a build with a newer protocol between servers, while programs read and write."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from pequod_server.homes import messages

from tests.cluster.waiting import eventually
from tests.cluster_faults.site import LATEST, FaultSite, put
from tests.forked import ForkedServer, run_serve


def run_next_build(says: Connection, flags: tuple[str, ...], variables: dict[str, str], folder: str) -> None:
    """Run the command as a build does that speaks one version more: as a compute, two of them, as a home the latest."""
    version = messages.VERSION_MAX + 1
    for name, module in list(sys.modules.items()):
        if name.startswith("pequod_server.homes") and hasattr(module, "VERSION_MAX"):
            vars(module)["VERSION_MAX"] = version
    run_serve(says, flags, variables, folder)


class Upgraded(FaultSite):
    """Servers, of which those that are started later are of the next build."""

    is_next = False

    def _started(self, *flags: str) -> ForkedServer:
        return ForkedServer(*flags, serve=run_next_build if self.is_next else None)

    async def upgrade(self, name: str) -> None:
        """Stop a server as its operator does, and start the next build."""
        self.is_next = True
        process = self.processes[name]
        assert isinstance(process, ForkedServer)
        await asyncio.to_thread(process.terminate)
        await asyncio.to_thread(self.start, name)


class Load:
    """Writes that were answered, and reads that were right."""

    def __init__(self) -> None:
        self.written = self.read = 0


@asynccontextmanager
async def loaded(site: FaultSite) -> AsyncIterator[Load]:
    """Write posts and read the timeline again and again; a read that fails, or lacks a post, ends the test."""
    load, is_over = Load(), asyncio.Event()
    async with site.client() as writer, site.client() as reader:
        await put(writer, "s|ann|bob")

        async def write() -> None:
            while not is_over.is_set():
                await put(writer, f"p|bob|{load.written:04}")
                load.written += 1

        async def read() -> None:
            while not is_over.is_set():
                before = load.written
                assert await reader.count("t|ann|", "t|ann}", freshness=LATEST) >= before
                load.read += 1

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(write())
            tasks.create_task(read())
            yield load
            is_over.set()
        assert await reader.count("t|ann|", "t|ann}", freshness=LATEST) == load.written


@pytest.mark.parametrize("order", [("c1", "c2", "h1", "h2"), ("h1", "c1", "c2", "h2")], ids=["right", "home-first"])
async def test_servers_are_upgraded_one_after_the_other_and_no_read_is_wrong(
    tmp_path: Path, order: tuple[str, ...]
) -> None:
    async with Upgraded(tmp_path, computes=2) as site, loaded(site) as load:
        for name in order:
            await site.upgrade(name)
            # Both go on with what there is now: computes of the old build leave a home of the next one.
            goal = load.read + 3, load.written + 3
            await eventually(lambda: load.read >= goal[0] and load.written >= goal[1])  # noqa: B023
