"""Fuzz the decoders of the native core, guided by the coverage of its C++ under AddressSanitizer: `make fuzz-native`.

    python tests/fuzz/fuzz_native.py batches --seconds 60

    batches        a batch of commands, parsed, and run if it is one
    connections    what a server reads of a connection of HTTP/2, behind its preface

It needs a core that clang has compiled for it. A finding is what the sanitizer says, or another error than that of a
damaged message.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import atheris
from pequod_proto import pequod_pb2 as pb

from pequod.engine import Engine
from pequod.native.http2 import new_session, why_absent
from tests.native.core import hot
from tests.native.shaken import _collection
from tests.server.frames import PREFACE, SETTINGS, frame

_engine = Engine(backed=[b"p"])
_engine.load(b"p|", b"p|5", [(b"p|%d" % at, bytes(at)) for at in range(5)])
_BATCHES = (
    pb.ExecuteRequest(kinds=bytes([1, 2]), arguments=[b"p|1", b"x|1", b"v"]),
    pb.ExecuteRequest(kinds=bytes([4, 5]), arguments=[b"x|", b"x}", b"x|", b"x}"], numbers=[0, 3]),
    pb.ExecuteRequest(kinds=bytes([3]), arguments=[b"x|1"]),
)


def batches(data: bytes) -> None:
    """Parse a batch, and run it."""
    batch = hot.Batch.parse(data, 100, 1000, 1 << 20)
    if batch is not None:
        batch.run(_engine, 1.0)


def connections(data: bytes) -> None:
    """Read a connection, cut at places that the bytes tell."""
    session = new_session(1 << 20, 500, 100, 65_535)
    whole = PREFACE + frame(SETTINGS, 0, 0) + data
    cut = len(PREFACE) + (data[0] if data else 0)
    try:
        for part in (whole[:cut], whole[cut:]):
            session.receive(part)
            for stream in (1, 3, 5):
                session.take(stream)
            session.output(1 << 20)
    except ConnectionError:
        pass
    session.close()
    assert (session.stream_count, session.unread_bytes, session.unsent_bytes, session.held_bytes) == (0, 0, 0, 0)


def main() -> None:
    """Fuzz for some seconds; ends with an error at the first finding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=["batches", "connections"])
    parser.add_argument("--seconds", type=int, default=60)
    options = parser.parse_args()
    # It loads the library, too.
    if (reason := why_absent()) is not None:
        sys.exit(str(reason))
    target = {"batches": batches, "connections": connections}[options.target]
    seeds = [one.SerializeToString() for one in _BATCHES] if target is batches else _collection()
    with TemporaryDirectory() as folder:
        for number, seed in enumerate(seeds):
            Path(folder, str(number)).write_bytes(seed)
        flags = [f"-max_total_time={options.seconds}", "-max_len=4096", folder]
        atheris.Setup([sys.argv[0], *flags], target)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
