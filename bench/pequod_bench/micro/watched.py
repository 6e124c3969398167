"""Micro benchmarks of a put that many joins read whose rows are watched, as managers of durable views watch them.

put --> a row of each of 200 joins --> 200 watches of one feed --> a message with 200 changes
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Final

from pequod_grammar import parse
from pequod_proto import pequod_pb2 as pb
from pequod_server.calls.feed import Feed
from pequod_server.calls.told_columns import told_columns

from pequod.engine import Engine
from pequod_bench.micro.frame import MicroRows, MicroScale, Samples, clock

WATCHED: Final = MicroRows()
_VIEWS: Final = 200
#: Rows of each view at the beginning.
_ROWS: Final = 100
#: Puts that are made between two turns of a feed.
_BEAT: Final = 16
#: Enough for every round.
_CHANGES_MAX: Final = 1 << 30
_VALUE: Final = b"v" * 20
#: Both beside the puts alone, of the same number.
RATIOS: Final = (
    ("views: put, told", "views: put", 2.0),
    (f"views: put, told {_BEAT} at a time", f"views: put, {_BEAT} at a time", 2.0),
)


def _engine(view_count: int) -> Engine:
    engine = Engine()
    engine.add_joins(parse("; ".join(f"v{number:03}|<a>|<b> = copy p|<a>|<b>" for number in range(view_count))))
    for tick in range(_ROWS):
        engine.put(b"p|ann|%08d" % tick, _VALUE)
    for first, last in _ranges(view_count):
        engine.scan(first, last)
    return engine


def _ranges(view_count: int) -> list[tuple[bytes, bytes]]:
    return [(b"v%03d|" % number, b"v%03d}" % number) for number in range(view_count)]


def _put(at_once: int, scale: MicroScale) -> Samples:
    """Put posts of which each of 200 joins makes a row."""
    engine = _engine(scale.of(_VIEWS))
    for start in count(_ROWS, at_once):
        keys = [b"p|ann|%08d" % (start + more) for more in range(at_once)]
        begun = clock()
        for key in keys:
            engine.put(key, _VALUE)
        yield at_once, clock() - begun


def _put_and_tell(at_once: int, scale: MicroScale) -> Samples:
    """Do the same where all rows are watched; after the puts a message with the changes is made."""
    engine = _engine(scale.of(_VIEWS))
    with asyncio.Runner() as runner:
        feed = runner.run(_feed(engine, scale.of(_VIEWS)))
        for start in count(_ROWS, at_once):
            keys = [b"p|ann|%08d" % (start + more) for more in range(at_once)]
            begun = clock()
            for key in keys:
                engine.put(key, _VALUE)
            feed.settle()
            batch = feed.take()
            assert batch is not None, "there were puts"
            told_columns(pb.WatchRangesReply(header=pb.Header(revision=batch.revision)), batch)
            yield at_once, clock() - begun
            # The turn that it asked for.
            runner.run(asyncio.sleep(0))


async def _feed(engine: Engine, view_count: int) -> Feed:
    return Feed(engine, _ranges(view_count), _CHANGES_MAX, None, bytes)


WATCHED.add("views: put", "a put that 200 joins read", _put, 1)
WATCHED.add("views: put, told", "the same, all rows watched, in a message", _put_and_tell, 1)
WATCHED.add(f"views: put, {_BEAT} at a time", "a put that 200 joins read", _put, _BEAT)
WATCHED.add(f"views: put, told {_BEAT} at a time", "the same, all rows watched, in a message", _put_and_tell, _BEAT)
