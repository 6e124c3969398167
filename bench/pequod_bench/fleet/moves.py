"""How long writes of a range are refused while it moves: a real cluster, etcd on disk, and a client that writes it.

python -m pequod_bench.fleet.moves --rows 4000,100000

rows     moved in  refused by the command  longest wait of a write
4,000    ...
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Final

from pequod import Client
from pequod.errors import PequodError
from pequod_bench.systems.site import ClusterShape, started_site

_BATCH: Final = 500
_REFUSED: Final = re.compile(r"refused for ([\d,]+) ms")
_PAUSE_S: Final = 0.005


@dataclass
class Writer:
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


def measure(rows: int, computes: int) -> tuple[float, float, float, int]:
    """Return how long a move took, how long writes were refused, the longest wait of a write, and the writes."""
    with started_site(ClusterShape(homes=2, computes=computes, joins="", is_on_etcd=True)) as site:
        with Client(site.target) as client:
            for first in range(0, rows, _BATCH):
                client.multi_put({f"p|m|{number:08}": "x" * 100 for number in range(first, min(first + _BATCH, rows))})
        writer = Writer(site.target)
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
            sys.exit(done.stdout + done.stderr)
        return took_s, int(found[1].replace(",", "")) / 1000, writer.longest_s, writer.written


def main() -> None:
    """Measure, and print a line for each number of rows."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", default="4000,100000", help="rows of the range: one number, or several")
    options.add_argument("--computes", type=int, default=2)
    given = options.parse_args()
    print("rows      moved in  refused by the command  longest wait of a write  writes")
    for rows in map(int, given.rows.split(",")):
        took_s, refused_s, longest_s, written = measure(rows, given.computes)
        print(
            f"{rows:<9,} {took_s:5.1f} s  {refused_s * 1000:17.0f} ms  {longest_s * 1000:20.0f} ms  {written:7,}",
            flush=True,
        )


if __name__ == "__main__":
    main()
