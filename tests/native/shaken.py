"""Connections of HTTP/2 shaken: damaged bytes in any cut, and any calls in between.

    python -m tests.native.shaken --seconds 60
    python -m tests.native.shaken --executions 10000000 --processes 2

An execution is one connection of a server or of a client: a seed makes one of each. What it is sent are frames of a
collection, which is made once, and damage. It is for builds with sanitizers (`make shake`), which tell of any byte that
is read or written elsewhere.
"""

import argparse
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from itertools import count, islice, takewhile
from multiprocessing import get_context
from typing import Any, Final

from pequod_proto import pequod_pb2 as pb
from pequod_server.once.memory import RequestIds

from pequod.engine import Engine
from pequod.native.http2 import HotLimits, NativeSession, new_hot_calls, new_session, why_absent
from tests.native.runs import Turn
from tests.native.shaken_client import FRAMES, noise, shake_client
from tests.server.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW,
    PING,
    PREFACE,
    RESET,
    SETTINGS,
    WINDOW_UPDATE,
    call,
    frame,
    heads,
    message,
    setting,
)

#: How many seeds a process takes at once, and how often it is told how far they are.
_SEEDS_AT_ONCE: Final = 500
_TELL_S: Final = 60.0
_BLOCKS = [heads("Get"), heads("Execute", ("authorization", "Bearer x"), ("x-b-bin", "AAE"))]

#: Calls that may be hot, on the engine of `_with_hot`.
_HOT: list[tuple[str, Any]] = [
    ("Get", pb.GetRequest(key=b"x|1")),
    ("Get", pb.GetRequest(key=b"p|2")),
    ("Put", pb.PutRequest(key=b"x|1", value=bytes(300))),
    ("Remove", pb.RemoveRequest(key=b"x|1")),
    ("Count", pb.CountRequest(first=b"p|", last=b"p|5")),
    ("Scan", pb.ScanRequest(first=b"x|", last=b"x}", limit=2)),
    ("Scan", pb.ScanRequest(first=b"p|", last=b"p|9")),
    ("MultiPut", pb.MultiPutRequest(keys=[b"x|1", b"x|2"], values=[b"1", b"2"])),
    ("MultiPut", pb.MultiPutRequest(keys=[b"x|1", b"x|3"], values=[b"1", b"2"], keep_ttl=True)),
    ("WriteIf", pb.WriteIfRequest(key=b"x|1", value=b"n", condition=3, expected=b"1")),
    ("WriteIf", pb.WriteIfRequest(key=b"x|2", value=b"n", condition=1, ttl_ms=50)),
    ("Expire", pb.ExpireRequest(key=b"x|1", ttl_ms=50)),
    ("Ttl", pb.TtlRequest(key=b"x|1")),
    ("Add", pb.AddRequest(key=b"x|n", delta=b"7")),
]
_BATCH = pb.ExecuteRequest(kinds=bytes([1, 2]), arguments=[b"p|1", b"x|1", b"v"])


def _new_engine() -> Engine:
    """Return an engine with a range that is loaded, among others that are not."""
    engine = Engine(backed=[b"p"])
    engine.load(b"p|", b"p|5", [(b"p|%d" % at, bytes(at)) for at in range(5)])
    return engine


def _with_hot(session: NativeSession, engine: Engine, rnd: random.Random) -> Callable[[bytes], None]:
    """Have a connection answer hot calls; return a function that reads for it."""
    buffer = memoryview(bytearray(70_000))
    limits, slow_s = HotLimits(100, 100, 1 << 20, 1 << 20), rnd.choice([0.0, 1.0])
    session.use_hot(new_hot_calls(engine, 7, limits, slow_s, RequestIds()), rnd.random() < 0.2)

    def rest(found: object) -> None:
        if isinstance(found, Exception):
            raise found
        if rnd.random() < 0.5:
            session.run_hot(rnd.randrange(5), 1 << 18, Turn())
        elif rnd.random() < 0.3:
            session.hand_over()
        session.events()

    def turn() -> Turn | None:
        if (caller := session.stranger()) is not None:
            session.admit(caller, None, None)
        return Turn() if rnd.random() < 0.8 else None

    session.attach(buffer, turn, lambda _: session.close() if rnd.random() < 0.01 else None, rest, 5, 1 << 18, 1 << 16)

    def read(data: bytes) -> None:
        buffer[: len(data)] = data
        session.is_calm = rnd.random() < 0.9
        session.updated(len(data))

    return read


def _frames(rnd: random.Random) -> bytes:
    """Return frames that a client may send, and some that none may."""
    stream = rnd.choice([1, 3, 5, 7, 2, 0, 99])
    body = message(noise(rnd, rnd.choice([0, 3, 300, 17_000, 70_000])), flag=rnd.choice([0, 0, 0, 1]))
    block = rnd.choice(_BLOCKS)
    cut = rnd.randrange(len(block))
    hot, request = rnd.choice(_HOT)
    made: list[Callable[[], bytes]] = [
        lambda: call(stream, heads(hot), message(request.SerializeToString())),
        lambda: frame(DATA, 0, stream, message(_BATCH.SerializeToString())),
        lambda: call(stream, block, body[:16_000]),
        lambda: frame(HEADERS, END_HEADERS, stream, block),
        lambda: b"".join(frame(DATA, 0, stream, body[at : at + 16_000]) for at in range(0, len(body), 16_000)),
        lambda: frame(DATA, END_STREAM, stream, body[: rnd.randrange(200)]),
        lambda: frame(HEADERS, 0, stream, block[:cut]) + frame(CONTINUATION, END_HEADERS, stream, block[cut:]),
        lambda: frame(HEADERS, END_HEADERS | END_STREAM, stream, block),
        lambda: frame(RESET, 0, stream, (8).to_bytes(4, "big")),
        lambda: frame(WINDOW_UPDATE, 0, stream, rnd.choice([1, 70_000, 1 << 30]).to_bytes(4, "big")),
        lambda: frame(SETTINGS, 0, 0, setting(INITIAL_WINDOW, rnd.choice([0, 10, 70_000]))),
        lambda: frame(SETTINGS, ACK, 0),
        lambda: frame(PING, 0, 0, bytes(8)),
        lambda: frame(GOAWAY, 0, 0, bytes(8)),
        lambda: frame(rnd.randrange(12), rnd.randrange(256), stream, rnd.randbytes(rnd.randrange(20))),
    ]
    return rnd.choice(made)()


@cache
def _collection() -> list[bytes]:
    """Return frames to send: to make those of each connection takes most of the time of an execution."""
    rnd = random.Random(0)
    return [_frames(rnd) for _ in range(FRAMES)]


def shake(seed: int, engine: Engine | None = None) -> None:
    """Shake one connection, to this engine if there is one.

    Raises:
        AssertionError: A sum does not end at nothing.
    """
    rnd = random.Random(seed)
    session = new_session(rnd.choice([100, 50_000, 1 << 20]), 500, rnd.choice([2, 100]), rnd.choice([4096, 65_535]))
    data = bytearray(PREFACE + frame(SETTINGS, 0, 0) + b"".join(rnd.choices(_collection(), k=rnd.randrange(30))))
    for _ in range(rnd.choice([0, 0, 1, 5])):
        data[rnd.randrange(len(data))] = rnd.randrange(256)
    is_hot = rnd.random() < 0.6
    read: Callable[[bytes], object] = _with_hot(session, engine or _new_engine(), rnd) if is_hot else session.receive
    trailers = [(b"grpc-status", b"5"), (b"grpc-message", b"no")]
    try:
        while data:
            size = rnd.choice([1, 9, 100, 5000, 70_000])
            read(bytes(data[:size]))
            del data[:size]
            for _ in range(rnd.randrange(4)):
                stream = rnd.choice([1, 3, 5, 7, 11])
                match rnd.randrange(9):
                    case 0 | 1:
                        session.take(stream)
                    case 2:
                        session.send(stream, noise(rnd, rnd.choice([0, 5, 40_000])))
                    case 3:
                        session.finish(stream, rnd.choice([None, trailers]), rnd.choice([None, bytes(20_000)]))
                    case 4:
                        session.reset(stream, 8)
                    case 5:
                        session.begin(stream, [(b"x-a", b"b")])
                    case 6:
                        session.when_drained(stream)
                        if rnd.random() < 0.3:
                            session.ignore(stream)
                    case 7:
                        session.say_last(rnd.random() < 0.5)
                    case 8:
                        session.ping()
            if rnd.random() < 0.7:
                session.output(rnd.choice([1, 1000, 1 << 20]))
            assert 0 <= session.held_bytes <= session.unread_bytes
    except ConnectionError:
        pass
    session.close()
    assert (session.stream_count, session.unread_bytes, session.unsent_bytes, session.held_bytes) == (0, 0, 0, 0), seed
    assert session.header_bytes == 0, seed


def _shake_some(seeds: range) -> int:
    """Shake connections of both sides by each of the seeds; return how many there were."""
    assert why_absent() is None
    engine = _new_engine()
    for seed in seeds:
        try:
            shake(seed, engine)
            shake_client(seed)
        except Exception as error:
            error.add_note(f"by the seed {seed}, with an engine that has seen those from {seeds.start} on")
            raise
    return 2 * len(seeds)


def _chunks(first: int, executions: int | None) -> Iterator[range]:
    """Yield the seeds, some at a time; without end if no number is asked for."""
    last = None if executions is None else first + (executions + 1) // 2
    for start in count(first, _SEEDS_AT_ONCE):
        if last is not None and start >= last:
            return
        yield range(start, start + _SEEDS_AT_ONCE if last is None else min(start + _SEEDS_AT_ONCE, last))


def _run_apart(chunks: Iterator[range], processes: int) -> Iterator[int]:
    """Shake in processes; yield how many executions were made, as some are.

    Raises:
        BrokenProcessPool: A process has ended, such as by a sanitizer, which has said why.
    """
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        waiting = {pool.submit(_shake_some, seeds): seeds for seeds in islice(chunks, processes)}
        while waiting:
            done, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for one in done:
                seeds = waiting.pop(one)
                try:
                    yield one.result()
                except BrokenProcessPool as error:
                    error.add_note(f"by one of the seeds {seeds}, or of those of another process")
                    raise
                waiting |= {pool.submit(_shake_some, more): more for more in islice(chunks, 1)}


def run(chunks: Iterator[range], processes: int, seconds: float) -> int:
    """Shake until the seeds or the time are over; return how many executions that were.

    Raises:
        AssertionError: A connection is not as it must be; with its seed.
        BrokenProcessPool: See `_run_apart`.
    """
    begun_s = told_s = time.monotonic()
    in_time = takewhile(lambda _: time.monotonic() - begun_s < seconds, chunks)
    made = 0
    for some in map(_shake_some, in_time) if processes == 1 else _run_apart(in_time, processes):
        made += some
        if time.monotonic() > told_s + _TELL_S:
            told_s = time.monotonic()
            print(f"{made:,} executions", flush=True)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Shake for some time, or as often as asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="how long, if no number is asked for (60)")
    parser.add_argument("--executions", type=int, help="how many, whatever time it takes")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--processes", type=int, default=1, help="how many shake at the same time (1)")
    options = parser.parse_args(arguments)
    begun_s, seconds = time.monotonic(), options.seconds if options.executions is None else float("inf")
    made = run(_chunks(options.seed, options.executions), options.processes, seconds)
    print(f"{made:,} executions in {time.monotonic() - begun_s:.0f} s: nothing was found")


if __name__ == "__main__":
    main()
