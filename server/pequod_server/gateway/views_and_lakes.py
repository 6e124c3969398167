"""Durable views and lakes that the settings name, as the commands tell that know them, each in a process of its own.

    console_views = ["views.toml"]   ->   pequod views status views.toml --json
    console_lakes = "/srv/lake"      ->   pequod lake status /srv/lake --json

So a database or a catalog that does not answer keeps no call of the server waiting.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE
from typing import Final

import orjson

from pequod_server.config import ServerConfig
from pequod_server.gateway.asked import Json
from pequod_server.wire.handlers import Context

#: How long a command may take, and how long its answer stands: each is a process.
_ANSWER_S: Final = 20.0
_STANDS_S: Final = 5.0


class ViewsAndLakes:
    """Tells their stages and ages. Callers who ask at about the same time share an answer."""

    def __init__(self, config: ServerConfig) -> None:
        self._files = [str(file) for file in config.console_views]
        self._lakes = config.console_lakes.split()
        self._asking: asyncio.Task[Json] | None = None
        self._stands_until_s = 0.0

    async def tell(self, _request: object, _context: Context) -> Json:
        """Return all views and lakes; `problem` says why there is nothing to tell of one."""
        now_s = asyncio.get_running_loop().time()
        if self._asking is None or (self._asking.done() and now_s >= self._stands_until_s):
            self._asking = asyncio.create_task(self._ask())
        return await asyncio.shield(self._asking)

    def close(self) -> None:
        """End the commands that are under way."""
        if self._asking is not None:
            self._asking.cancel()

    async def _ask(self) -> Json:
        views = asyncio.gather(*(_status("views", file) for file in self._files))
        lakes = asyncio.gather(*(_status("lake", lake) for lake in self._lakes))
        told: Json = {
            "views": [
                {"file": file, "parts": lines, "problem": problem}
                for file, (lines, problem) in zip(self._files, await views, strict=True)
            ],
            "lakes": [
                {"lake": lake, "status": lines[0] if lines else None, "problem": problem}
                for lake, (lines, problem) in zip(self._lakes, await lakes, strict=True)
            ],
        }
        self._stands_until_s = asyncio.get_running_loop().time() + _STANDS_S
        return told


async def _status(kind: str, place: str) -> tuple[list[Json], str]:
    """Return the lines that `pequod KIND status PLACE` prints, or why it prints none."""
    command = (sys.executable, "-m", "pequod.cli", kind, "status", "--json", "--", place)
    process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE)
    try:
        async with asyncio.timeout(_ANSWER_S):
            lines, said = await process.communicate()
    except TimeoutError:
        return [], f"`pequod {kind} status` did not answer within {_ANSWER_S:g} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        return [], said.decode("utf-8", "replace").strip().removeprefix("pequod: ")
    return [orjson.loads(line) for line in lines.splitlines()], ""
