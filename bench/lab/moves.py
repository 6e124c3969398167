"""How long writes of a range are refused while it moves: a real cluster, etcd on disk, and a client that writes it."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Annotated, Final

from pequod_bench.report.printed import Printed, print_rows
from pequod_bench.report.progress import ProgressBars
from pequod_bench.settings import Numbers
from pequod_bench.systems.server import ServerStartError
from pequod_bench.systems.site import ClusterShape, started_site
from rich.console import Console
from typer import Option

from pequod import Client
from pequod.errors import PequodError

_BATCH: Final = 500
_REFUSED: Final = re.compile(r"refused for ([\d,]+) ms")
_PAUSE_S: Final = 0.005


@dataclass(frozen=True, slots=True)
class MovesSettings:
    """Which ranges to move."""

    rows: Annotated[Numbers, Option(help="Rows of the range that moves, one cluster after another.")] = (4_000, 100_000)
    computes: Annotated[int, Option(min=1, help="Servers that clients read from.")] = 2


@dataclass(frozen=True, slots=True)
class Move:
    """What the move of a range took its writer."""

    rows: int
    #: From the command to its end.
    seconds: float
    #: For how long writes were refused, as the command says, and the longest wait of a put until it was taken.
    refused_ms: int
    longest_ms: float
    puts: int


@dataclass(frozen=True, slots=True)
class MovesReport(Printed):
    """The moves of ranges of all sizes."""

    moves: list[Move]

    def print_table(self, console: Console) -> None:
        columns = {"rows": "{0.rows:,}", "moved in": "{0.seconds:.1f} s", "writes refused": "{0.refused_ms:,} ms"}
        columns |= {"longest wait of a put": "{0.longest_ms:.0f} ms", "puts meanwhile": "{0.puts:,}"}
        print_rows(console, self.moves, columns, left=0)


@dataclass
class _Writer:
    """Puts keys of the range, one after the other, each until it is taken."""

    target: str
    written: int = 0
    longest_s: float = 0.0
    _is_over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        with Client(self.target) as client:
            while not self._is_over.is_set():
                begun_s = time.monotonic()
                while not self._is_over.is_set():
                    try:
                        client.put(f"p|m|w|{self.written % 1000:04}", str(self.written))
                        break
                    except PequodError:
                        time.sleep(_PAUSE_S)
                self.longest_s = max(self.longest_s, time.monotonic() - begun_s)
                self.written += 1
                time.sleep(_PAUSE_S)

    def stop(self) -> None:
        self._is_over.set()


def run(settings: MovesSettings, bars: ProgressBars) -> MovesReport:
    """Move a range from one home to another while a client writes it, and measure how long it is refused."""
    moves = []
    with bars.bar("moves", len(settings.rows)) as advance:
        for rows in settings.rows:
            moves.append(_moved(rows, settings.computes))
            advance(1)
    return MovesReport(moves)


def _moved(rows: int, computes: int) -> Move:
    with started_site(ClusterShape(homes=2, computes=computes, joins="", is_on_etcd=True)) as site:
        with Client(site.target) as client:
            for first in range(0, rows, _BATCH):
                client.multi_put({f"p|m|{number:08}": "x" * 100 for number in range(first, min(first + _BATCH, rows))})
        writer = _Writer(site.target)
        thread = threading.Thread(target=writer.run)
        thread.start()
        try:
            begun_s = time.monotonic()
            command = [sys.executable, "-m", "pequod.cli", "cluster", "move", site.place, "p|m", "p}", "--to", "b"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            took_s = time.monotonic() - begun_s
            time.sleep(0.5)
        finally:
            writer.stop()
            thread.join()
        found = _REFUSED.search(done.stdout)
        if found is None:
            raise ServerStartError(f"the range did not move:\n{done.stdout}{done.stderr}")
        return Move(rows, took_s, int(found[1].replace(",", "")), writer.longest_s * 1000, writer.written)
