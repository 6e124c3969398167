"""The TypeScript client, compiled, and driven by a test: its calls are lines of JSON, and so are what they give.

client.call("put", "a", "1") -> {"id": 1, "method": "put", "args": ["a", "1"]} -> node -> {"id": 1, "result": null}
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.installed import lacking

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "proto/typescript"
_DIST: Final = FOLDER / "dist"


class TypeScriptError(Exception):
    """What the client raised: the error's code, reason and facts."""

    def __init__(self, error: Any) -> None:
        super().__init__(error)
        self.reason = error["reason"] if isinstance(error, dict) else error


def compiled() -> Path:
    """Return the folder of the compiled client and its tests; compile them, if something has changed."""
    if shutil.which("node") is None:
        lacking("Node.js is not installed: apt-get install nodejs npm")
    if not (FOLDER / "node_modules").is_dir():
        lacking("the packages of the TypeScript client are not installed: make typescript")
    _DIST.mkdir(exist_ok=True)
    sources = [FOLDER / "package-lock.json", FOLDER / "tsconfig.json"]
    sources += [path for folder in ("src", "test") for path in (FOLDER / folder).rglob("*.ts")]
    newest = max(path.stat().st_mtime for path in sources)
    mark = _DIST / "compiled"
    # Processes that run tests at the same time have one compile, and see all or nothing of it.
    with (_DIST / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not mark.exists() or mark.read_text() != str(newest):
            compile_project(FOLDER / "tsconfig.json")
            mark.write_text(str(newest))
    return _DIST


def compile_project(project: Path) -> None:
    """Compile a project with the compiler of the client."""
    command = [str(FOLDER / "node_modules/.bin/tsc"), "--project", str(project)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout


async def run_node(*arguments: str | Path) -> tuple[int, str]:
    """Run a program to its end; return its exit code and what it said."""
    streams = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.STDOUT}
    process = await asyncio.create_subprocess_exec("node", *map(str, arguments), **streams)  # type: ignore[arg-type]
    try:
        said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, said.decode()


class TypeScriptClient:
    """A client in a process of its own."""

    def __init__(self, target: str, **options: Any) -> None:
        self._arguments = (str(compiled() / "test/driver.js"), target, json.dumps(options))
        self._said: dict[int, asyncio.Queue[dict[str, Any]]] = {}

    async def __aenter__(self) -> Self:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec("node", *self._arguments, stdin=pipe, stdout=pipe)
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        if error is not None:
            self._process.kill()
        # A client that is closed leaves nothing behind that would keep its process.
        await self._process.wait()
        await self._reading

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            said = json.loads(line)
            self._said[said.pop("id")].put_nowait(said)

    def begin(self, method: str, *args: Any, session: bool = False) -> int:
        """Begin a call, and return its number."""
        number = len(self._said)
        self._said[number] = asyncio.Queue()
        assert self._process.stdin is not None
        call = {"id": number, "method": method, "args": args, "session": session}
        self._process.stdin.write(json.dumps(call).encode() + b"\n")
        return number

    async def end(self, number: int) -> Any:
        """Return what a call has given, or the next event of a watch."""
        said = await self._said[number].get()
        if "error" in said:
            raise TypeScriptError(said["error"])
        return said["event"] if "event" in said else said["result"]

    async def call(self, method: str, *args: Any, session: bool = False) -> Any:
        """Make a call, and return what it gives."""
        return await self.end(self.begin(method, *args, session=session))
