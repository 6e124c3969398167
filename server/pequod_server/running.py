"""A server from its start to its end as a process: signals, the lines that say where it serves, exit codes."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Awaitable, Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Final

from pequod.errors import ClusterMapError, SnapshotError
from pequod.native import FLAVOUR, why_pure
from pequod_server.app import PequodServer
from pequod_server.backing import BackingUnavailableError, SchemaError
from pequod_server.cluster.confirming import SilentHomesError
from pequod_server.config import ServerConfig
from pequod_server.data.errors import FolderError
from pequod_server.memory.collecting import tame_collector
from pequod_server.memory.keeper import tame_allocator
from pequod_server.ops import logs
from pequod_server.ops.supervision import tell_systemd, told_while_waiting

log = logging.getLogger("pequod.server")

#: Exit codes of `run`; the command line has the same for its clients.
_DONE: Final = 0
_REFUSED: Final = 3
_UNREACHABLE: Final = 4
#: Takes a line for people, and the state for the service manager, once this serves and when it stops.
Tell = Callable[[str, str], None]


def run(
    config: ServerConfig,
    *,
    joins_from: str = "joins",
    make: Callable[[ServerConfig], PequodServer] = PequodServer,
    tell: Tell | None = None,
) -> int:
    """Serve until SIGINT or SIGTERM; return the exit code.

    Args:
        joins_from: Where the text of ``joins`` stands, for messages.
        make: Makes the server.
        tell: Tells who has started this process how far it is.

    Raises:
        ConfigError: A join of the configuration cannot be installed.
    """
    logs.configure(config.log_format, config.log_level)
    with asyncio.Runner(loop_factory=_loop_factory(config)) as runner:
        try:
            return runner.run(_serve(config, joins_from, make, tell or tell_people))
        except (BackingUnavailableError, SilentHomesError) as error:
            print(f"pequod: {error}", file=sys.stderr)
            return _UNREACHABLE
        except (OSError, ImportError, SchemaError, SnapshotError, ClusterMapError, FolderError) as error:
            print(f"pequod: {error}", file=sys.stderr)
            return _REFUSED


def tell_people(line: str, state: str) -> None:
    """Write a line to standard error, and tell systemd the state."""
    print(line, file=sys.stderr, flush=True)
    tell_systemd(state)


async def _serve(
    config: ServerConfig, joins_from: str, make: Callable[[ServerConfig], PequodServer], tell: Tell
) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    server = make(config)
    loop.add_signal_handler(signal.SIGHUP, server.reload)
    async with told_while_waiting(lambda: server.waits_for):
        starting = asyncio.create_task(server.start(joins_from=joins_from))
        await _either(starting, stopping.wait())
    if starting.cancelled():
        print("pequod stopping before it has started", file=sys.stderr, flush=True)
        await server.close()
        return _DONE
    port = starting.result()
    tame_collector()
    tame_allocator()
    host, _, _ = config.listen.rpartition(":")
    tell(f"pequod ({FLAVOUR}) serving on {host}:{port}", f"READY=1\nSTATUS=serving on {host}:{port}")
    log.debug("calls come by", extra={"transport": server.transport.name})
    if reason := why_pure():
        log.warning("without the native core, at a quarter of its speed", extra={"reason": reason})
    elif server.transport.reason:
        log.warning(
            "without the native transport, at a multiple of its CPU for a call",
            extra={"reason": server.transport.reason},
        )
    if server.http_url:
        log.info("serving HTTP", extra={"url": server.http_url})
    if server.instruments.url:
        log.info("serving metrics", extra={"url": server.instruments.url})
    failing = [one.failed for one in (server.disk, server.member) if one is not None and one.failed is not None]
    try:
        await _either(stopping.wait(), *failing)
    except (FolderError, ClusterMapError):
        await server.close()
        raise
    tell("pequod stopping", "STOPPING=1\nSTATUS=stopping")
    stopping.clear()
    saved_before_s = server.snapshots.saved_s
    await _either(server.stop(), stopping.wait())
    if stopping.is_set():
        print("pequod closing at once", file=sys.stderr, flush=True)
        await server.close()
        if server.snapshots.is_wanted and server.snapshots.saved_s == saved_before_s:
            place = str(server.snapshots.place.path)
            raise SnapshotError(place, "it is not saved: a second signal closed the server at once")
    return _DONE


async def _either(*awaitables: Awaitable[object]) -> None:
    """Wait for the first to end, and cancel the others."""
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    for task in done:
        task.result()


def _loop_factory(config: ServerConfig) -> type[asyncio.AbstractEventLoop] | None:
    if not config.uvloop or find_spec("uvloop") is None:
        return None
    loop: type[asyncio.AbstractEventLoop] = import_module("uvloop").Loop
    return loop
