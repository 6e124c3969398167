"""Look for references that the native core leaks: rounds of the same work, after which nothing more may be there.

    python -m tests.native.leaks --rounds 40

Each round makes an engine and a batch of everything, and lets go of both. After some rounds to warm up, the blocks that
Python has allocated, and its tracked objects, may not have become more: an object that is lost in every round shows,
since the rounds are many. The blocks are those of `sys.getallocatedblocks`, so a build of Python for debugging is not
needed.
"""

from __future__ import annotations

import argparse
import gc
import sys

from pequod_grammar import parse
from pequod_proto.pequod_pb2 import ExecuteRequest
from pequod_server.steps.executor import Executor
from pequod_server.steps.quick import run_quick

from pequod.commands.kinds import COUNT, GET, PUT, REMOVE, SCAN, SCAN_DOWN, SCAN_LIMIT
from pequod.engine import Engine
from pequod.native import core

_JOINS = """
t|<user>|<time:2>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>;
c|<poster> = count p|<poster>|<time:2>;
l|<poster>|<time:2> = copy p|<poster>|<time:2>;
m|<poster>|<time:2> = copy l|<poster>|<time:2>;
r|<kind>|<size:2>|<id> = copy i|<id> with kind = <kind>, size = <size:2> as {name}
"""
#: Some caches, such as those of parsed joins, are full only after as many rounds.
_WARM = 200


def messages() -> list[bytes]:
    """Return batches of everything that a round does."""
    requests = [ExecuteRequest(batch=number) for number in range(4)]

    def add(request: ExecuteRequest, kind: int, *arguments: bytes) -> None:
        request.kinds += bytes([kind])
        request.arguments.extend(arguments)
        if kind in (SCAN_LIMIT, SCAN_DOWN):
            request.numbers.append(3)

    for user in range(8):
        for poster in range(8):
            add(requests[0], PUT, b"s|u%d|p%d" % (user, poster), b"follows")
            add(requests[0], PUT, b"p|p%d|%02d" % (poster, user), b"what p%d says" % poster)
        add(requests[0], SCAN, b"t|u%d|" % user, b"t|u%d}" % user)
    for number, kind in enumerate([b'"a"', b'"b"', b"1", b"null", b'"|"']):
        add(
            requests[1],
            PUT,
            b"i|x%d" % (number % 4),
            b'{"kind":%b,"size":%d,"name":"n%d"}' % (kind, 40 * number, number),
        )
        add(requests[1], PUT, b"i|%d" % number, b"no record")
    add(requests[0], SCAN, b"m|", b"m}")
    add(requests[2], SCAN, b"r|a|", b"r|a}")
    for user in range(8):
        add(requests[1], PUT, b"s|u%d|p9" % user, b"follows")
        add(requests[1], PUT, b"p|p9|%02d" % user, b"more of it")
        add(requests[1], PUT, b"p|p1|01", b"another text")
        add(requests[1], SCAN, b"t|u%d|05" % user, b"t|u%d}" % user)
        add(requests[2], REMOVE, b"s|u%d|p3" % user)
        add(requests[2], REMOVE, b"p|p4|%02d" % user)
        add(requests[2], SCAN, b"t|u%d|" % user, b"t|u%d}" % user)
        add(requests[3], GET, b"p|p9|%02d" % user)
        add(requests[3], GET, b"p|none|01")
        add(requests[3], COUNT, b"t|u%d|" % user, b"t|u%d}" % user)
        add(requests[3], SCAN_LIMIT, b"t|u%d|" % user, b"t|u%d}" % user)
        add(requests[3], SCAN_DOWN, b"t|u%d|" % user, b"t|u%d}" % user)
        add(requests[3], SCAN, b"c|", b"c}")
        add(requests[3], PUT, b"t|u%d|05|p1" % user, b"refused")
    return [request.SerializeToString() for request in requests]


def work(batches: list[bytes]) -> None:
    """Do a round of work on an engine of its own, with evictions and a change of joins at its end."""
    engine = Engine()
    engine.add_joins(parse(_JOINS))
    executor = Executor(engine, 7, commands_max=10_000, reply_bytes_max=1 << 20, rows_max=10_000, clock=lambda: 1.0)
    for message in batches:
        quick = run_quick(executor, message)
        assert quick is not None
        assert quick.reply is not None
    engine.evict(3)
    for message in batches:
        run_quick(executor, message)
    engine.drop_join("t")
    assert run_quick(executor, batches[0][:-1]) is None


def work_behind_a_database() -> None:
    """Do a round of work on an engine whose base data are a database's: ranges that come, change and go."""
    engine = Engine(backed=[b"s", b"p"])
    engine.add_joins(parse(_JOINS))
    for user in range(8):
        engine.load(b"s|u%d|" % user, b"s|u%d}" % user, [(b"s|u%d|p%d" % (user, user % 3), b"1")])
        engine.load(b"p|p%d|" % user, b"p|p%d}" % user, [(b"p|p%d|01" % user, b"one")])
    for user in range(8):
        assert len(engine.scan(b"t|u%d|" % user, b"t|u%d}" % user).keys) == 1
    for user in range(8):
        engine.apply(b"p|p%d|02" % user, b"two")
        engine.apply(b"p|p%d|02" % user, b"again")
        engine.apply(b"p|none|02", b"not loaded")
        engine.apply(b"s|u%d|p7" % user, b"1")
        assert len(engine.scan(b"t|u%d|" % user, b"t|u%d}" % user).keys) > 1
        engine.apply(b"p|p%d|02" % user, None)
    engine.forget(b"p|p1|", b"p|p3|01")
    engine.evict(4)


def leaked(rounds: int) -> tuple[int, int]:
    """Return how many blocks and tracked objects are there after the rounds that were not there before."""
    batches = messages()
    for _ in range(_WARM):
        work(batches)
        work_behind_a_database()
    gc.collect()
    before = sys.getallocatedblocks(), len(gc.get_objects())
    for _ in range(rounds):
        work(batches)
        work_behind_a_database()
    gc.collect()
    return sys.getallocatedblocks() - before[0], len(gc.get_objects()) - before[1]


def main() -> None:
    """Print what was leaked; exit with 1 if it is a reference a round or more."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args().rounds
    if core is None:
        sys.exit("the native core is not there")
    blocks, objects = leaked(rounds)
    print(f"{rounds} rounds left {blocks} blocks and {objects} tracked objects")
    sys.exit(blocks >= rounds // 2 or objects >= rounds // 2)


if __name__ == "__main__":
    main()
