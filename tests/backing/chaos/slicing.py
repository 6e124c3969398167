"""`pequod serve` that takes every row of a commit, a load or a reload in a turn of its own.

python -m tests.backing.chaos.slicing --listen 127.0.0.1:7744 ...        flags as `pequod serve` takes them
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from pequod_server.app import PequodServer
from pequod_server.backing import turns
from pequod_server.config import ServerConfig
from pequod_server.running import run
from pequod_server.settings import load


def main(arguments: Sequence[str], make: Callable[[ServerConfig], PequodServer] = PequodServer) -> int:
    """Serve as the flags say; return the exit code."""
    turns.SLICE_S = 0.0
    turns.WORK_MAX = 1
    names, values = arguments[::2], arguments[1::2]
    flags = {name.removeprefix("--").replace("-", "_"): value for name, value in zip(names, values, strict=True)}
    return run(load(flags=flags).config, make=make)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
