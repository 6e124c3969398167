"""The process that has several workers be one server: it starts them, and starts those again that have died.

listen     every worker listens there (SO_REUSEPORT); the supervisor keeps the port: see ports.py
SIGTERM    computes drain and end, then the home
SIGHUP     one worker after the other is ended and started again; reads go on at the others
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import shutil
import signal
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from pequod.cluster.document import written
from pequod.errors import PequodError, SettingError
from pequod.native import FLAVOUR
from pequod_server import running
from pequod_server.access.tls import tls_files
from pequod_server.config import ServerConfig
from pequod_server.ops import logs
from pequod_server.ops.supervision import tell_systemd, told_while_waiting
from pequod_server.settings import ConfigError
from pequod_server.worker import Worker
from pequod_server.workers import entry
from pequod_server.workers.gathering import Gathering
from pequod_server.workers.plan import Plan, map_file, place_of, plan_of, refuse_unshared, worker_count
from pequod_server.workers.ports import kept_ports
from pequod_server.workers.process import WorkerProcess

log = logging.getLogger("pequod.server")

_DONE: Final = 0
_REFUSED: Final = 3
#: The longest path of a unix socket, less the name of one.
_FOLDER_BYTES_MAX: Final = 90
_LOST: Final = "base data were in its memory alone, and are lost; give data, a folder, or a database"


def run(config: ServerConfig, *, joins_from: str = "joins") -> int:
    """Serve with the workers of the settings until SIGINT or SIGTERM; return the exit code. One needs no supervisor.

    Args:
        joins_from: Where the text of ``joins`` stands, for messages.

    Raises:
        ConfigError: A setting does not go with the others, or a join of the configuration cannot be installed.
    """
    logs.configure(config.log_format, config.log_level)
    with ExitStack() as stack:
        try:
            refuse_unshared(config)
            if worker_count(config) == 1:
                return running.run(config, joins_from=joins_from)
            tls_files(config)
            plan = plan_of(config, joins_from=joins_from)
            folder = _runtime_folder(stack)
            address, own = kept_ports(stack, config, len(plan.workers))
        except SettingError as error:
            raise ConfigError(str(error)) from error
        except ConfigError:
            raise
        except (OSError, ImportError, PequodError) as error:
            print(f"pequod: {error}", file=sys.stderr)
            return _REFUSED
        files = _write(plan, folder, address, own)
        try:
            return asyncio.run(Supervisor(plan, files, address, _figures(plan, folder), config.metrics).run())
        except OSError as error:
            print(f"pequod: {error}", file=sys.stderr)
            return _REFUSED


class Supervisor:
    """Keeps the workers of a server running.

    Args:
        files: What each worker is told, in the order of the plan.
        address: Where the server listens.
        figures: The unix sockets of the workers' metrics and health, by id.
        metrics: Where the metrics of all are served; empty: nowhere.
    """

    def __init__(
        self, plan: Plan, files: list[Path], address: str, figures: Mapping[str, str], metrics: str = ""
    ) -> None:
        self._plan = plan
        self._metrics = metrics
        self._address = address
        hint = "" if plan.is_lasting else _LOST
        self._workers = [
            WorkerProcess(one.id, file, hint if one.is_home else "")
            for one, file in zip(plan.workers, files, strict=True)
        ]
        self._gathering = Gathering(self._workers, figures)
        self._stopping = asyncio.Event()
        self._rolling: asyncio.Task[None] | None = None

    @property
    def _home(self) -> WorkerProcess:
        return self._workers[0]

    @property
    def _computes(self) -> list[WorkerProcess]:
        return self._workers[1:]

    async def run(self) -> int:
        """Serve until a signal; return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._roll)
        url = await self._gathering.start(self._metrics) if self._metrics else ""
        try:
            return await self._serve(url)
        finally:
            await self._gathering.stop()

    async def _serve(self, url: str) -> int:
        async with told_while_waiting(self._waits_for):
            has_started = await self._start()
        if not has_started:
            return await self._end()
        shares = ", ".join(f"{one.id} {one.config.memory_limit}" for one in self._plan.workers)
        log.info("memory_limit is shared out", extra={"bytes": shares})
        where = f"serving on {self._address}"
        running.tell_people(f"pequod ({FLAVOUR}) {where}", f"READY=1\nSTATUS={where} with {len(self._workers)} workers")
        if url:
            log.info("serving metrics", extra={"url": url})
        await self._stopping.wait()
        running.tell_people("pequod stopping", "STOPPING=1\nSTATUS=stopping")
        return await self._end()

    async def _start(self) -> bool:
        """Start the workers, the home first; return whether all serve."""
        await asyncio.gather(*(worker.prepare() for worker in self._workers))
        # The others need the home.
        if not await self._home.start() or self._stopping.is_set():
            return False
        began = await asyncio.gather(*(worker.start() for worker in self._computes))
        if not all(began) or self._stopping.is_set():
            return False
        for worker in self._workers:
            worker.guard()
        return True

    def _waits_for(self) -> str:
        waiting = [worker.id for worker in self._workers if not worker.is_ready]
        return f"the workers {', '.join(waiting)}"

    def _stop(self) -> None:
        if not self._stopping.is_set():
            self._stopping.set()
            for worker in self._workers:
                if not worker.is_ready:
                    # The start would wait for it.
                    worker.stop()
            return
        # The second signal: they close at once.
        for worker in self._workers:
            worker.stop()

    async def _end(self) -> int:
        """Have the computes end, which need the home, and then the home; return the exit code."""
        self._stopping.set()
        if self._rolling is not None:
            self._rolling.cancel()
        for some in (self._computes, [self._home]):
            for worker in some:
                if worker.is_ready or worker.pid is not None:
                    worker.stop()
            await asyncio.gather(*(worker.ended() for worker in some))
        return max(worker.code if worker.code >= 0 else _REFUSED for worker in self._workers)

    def _roll(self) -> None:
        if self._stopping.is_set() or (self._rolling is not None and not self._rolling.done()):
            return
        self._rolling = asyncio.create_task(self._replace_all(), name="pequod rolling restart")

    async def _replace_all(self) -> None:
        log.info("the workers are started again, one after the other")
        tell_systemd("RELOADING=1")
        for worker in self._computes:
            if not await worker.replace():
                log.error("the other workers are left as they are", extra={"failed": worker.id})
                return
        if not self._plan.is_lasting:
            log.warning("the home is left as it is: base data are in its memory alone", extra={"worker": self._home.id})
            self._home.signal(signal.SIGHUP)
            kept = "its process, with the program and the settings of its start; it reads the access file anew"
            log.info("all workers but the home are started again", extra={"worker": self._home.id, "kept": kept})
        elif await self._home.replace():
            log.info("all workers are started again")
        else:
            return
        tell_systemd("READY=1")


def _runtime_folder(stack: ExitStack) -> Path:
    """Make the folder of the workers' doors, which only this user can open; it goes at the end."""
    made = Path(mkdtemp(prefix="pequod-"))
    if len(bytes(made)) > _FOLDER_BYTES_MAX:
        made.rmdir()
        made = Path(mkdtemp(prefix="pequod-", dir="/tmp"))
    stack.callback(shutil.rmtree, made, ignore_errors=True)
    return made


def _figures(plan: Plan, folder: Path) -> dict[str, str]:
    """Return the unix sockets of the workers' metrics and health, by id."""
    return {one.id: f"{folder / one.id}.figures.sock" for one in plan.workers}


def _write(plan: Plan, folder: Path, address: str, own: list[str]) -> list[Path]:
    """Write the map, and what each worker is told; return the files of the latter."""
    doors = {one.id: f"unix:{folder / one.id}.sock" for one in plan.workers}
    map_file(folder).write_text(written(plan.state(doors)), "utf-8")
    shown = {one.id: reached or address for one, reached in zip(plan.workers, own, strict=True)}
    token = secrets.token_urlsafe(32) if plan.workers[0].config.access_file is not None else ""
    token_file = folder / "token"
    token_file.write_text(token, "ascii")
    token_file.chmod(0o600)
    files = []
    for one, own_listen in zip(plan.workers, own, strict=True):
        changed = {"listen": address, "cluster": place_of(folder), "cluster_id": one.id}
        if token and not one.is_home:
            changed["backing_token"] = str(token_file)
        config = one.config.model_copy(update=changed)
        file = folder / f"{one.id}.json"
        figures = f"unix:{_figures(plan, folder)[one.id]}"
        worker = Worker(one.id, doors[one.id], own_listen, token, plan.joins, figures, shown)
        file.write_text(entry.written(config, worker), "utf-8")
        files.append(file)
    return files
