"""A client that does nothing but scan a large range, in another process so that it takes no time of this event loop.

    python -m pequod_bench.scanner HOST:PORT FIRST LAST scan_iter|scan

It scans over and over until its standard input ends. It writes an empty line when the server has answered it once,
and a JSON line after each scan.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from tempfile import TemporaryFile
from typing import IO, Final, Literal

from pequod.client import AsyncClient
from pequod.errors import PequodError
from pequod_bench.process import NICE, said_so_far

#: How to read: as a stream of chunks, or one command of a batch that is continued until it is whole.
Way = Literal["scan_iter", "scan"]

#: A whole scan is one call to the client.
_TIMEOUT_S: Final = 600.0


class ScannerError(PequodError):
    """The scanner ended with an error; the text holds what it said."""


@dataclass(frozen=True, slots=True)
class Scanned:
    """One whole scan."""

    rows: int
    seconds: float


class Scanner:
    """A scanner under way."""

    def __init__(self, process: subprocess.Popen[bytes], told: IO[bytes], complained: IO[bytes]) -> None:
        self._process = process
        self._told = told
        self._complained = complained

    def has_begun(self) -> bool:
        """Return whether the first scan is under way.

        Raises:
            ScannerError: It ended.
        """
        return bool(self._lines())

    def scans(self) -> list[Scanned]:
        """Return the scans that are done.

        Raises:
            ScannerError: It ended.
        """
        return [Scanned(**json.loads(line)) for line in self._lines()[1:]]

    def _lines(self) -> list[bytes]:
        if self._process.poll() is not None:
            raise ScannerError(f"the scanner ended: {said_so_far(self._complained).decode('utf-8', 'replace')}")
        whole, newline, _ = said_so_far(self._told).rpartition(b"\n")
        return (whole + newline).splitlines()


@contextmanager
def scanning(target: str, first: bytes, last: bytes, way: Way) -> Iterator[Scanner]:
    """Scan ``[first, last)`` in another process meanwhile."""
    command = [sys.executable, "-m", "pequod_bench.scanner", target, first.hex(), last.hex(), way]
    with (
        TemporaryFile() as told,
        TemporaryFile() as complained,
        # Leaving closes its standard input, and waits.
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=told, stderr=complained) as process,
    ):
        yield Scanner(process, told, complained)


async def _scan(client: AsyncClient, first: bytes, last: bytes, way: str) -> int:
    if way == "scan":
        return len(await client.scan(first, last))
    rows = 0
    async for _ in client.scan_iter(first, last):
        rows += 1
    return rows


async def _scan_on(target: str, first: bytes, last: bytes, way: str) -> None:
    async with AsyncClient(target, timeout_s=_TIMEOUT_S) as client:
        await client.joins()
        print(flush=True)
        while True:
            begun = time.perf_counter()
            rows = await _scan(client, first, last, way)
            print(json.dumps(asdict(Scanned(rows, time.perf_counter() - begun))), flush=True)


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    # The server and the checks come first: with two cores for three processes, they would wait for the scanner's
    # turns of the processor, and that is not what is measured.
    os.nice(NICE)
    threading.Thread(target=_end_with_input, daemon=True).start()
    _target, _first, _last, _way = sys.argv[1:]
    asyncio.run(_scan_on(_target, bytes.fromhex(_first), bytes.fromhex(_last), _way))
