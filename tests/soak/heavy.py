"""A client that is not ours and sends too much, in a process of its own: `python -m tests.soak.heavy TARGET TRICK`.

It makes calls of bytes with plain gRPC, and prints how many ended with which code, as JSON.
"""

import argparse
import asyncio
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from hashlib import sha256
from itertools import chain
from typing import Any, Final

import grpc
from grpc import aio
from pequod_proto import pequod_pb2 as pb

from pequod.commands.kinds import PUT, SCAN
from tests.forked import FORKS
from tests.soak.unfinished import Bodiless, Unfinished

MIB: Final = 1 << 20
#: What a server must have for the tricks: a join, a bound on values, and no watches of those who left.
ACCESS: Final = f'[tokens.no]\nrole = "no"\nsha256 = "{sha256(b"no").hexdigest()}"\n[roles.no]\n'
JOIN: Final = "t|<a>|<b> = copy s|<b>|<a>"
SETTINGS: Final = ("--value-bytes-max", "64KiB", "--joins", JOIN, "--watch-linger-s", "0")
_SERVICE: Final = pb.DESCRIPTOR.services_by_name["Pequod"]
_OPTIONS: Final = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
)
_TIMEOUT_S: Final = 60.0

#: Makes one call on a channel, and raises how it failed.
Trick = Callable[[Any], None]


def call(channel: Any, name: str, request: bytes, *, token: str | None = None, timeout_s: float = _TIMEOUT_S) -> Any:
    """Begin a call of any bytes, and return its replies."""
    metadata = () if token is None else (("authorization", f"Bearer {token}"),)
    if _SERVICE.methods_by_name[name].client_streaming:
        make = channel.stream_stream(f"/{_SERVICE.full_name}/{name}")
        return make(iter([request]), metadata=metadata, timeout=timeout_s)
    return channel.unary_stream(f"/{_SERVICE.full_name}/{name}")(request, metadata=metadata, timeout=timeout_s)


def _to_its_end(name: str, make: Callable[[], Any], **options: Any) -> Trick:
    """Return the trick of making a call of what ``make`` returns; it is made at the first call, for some is large."""

    turn = threading.Lock()

    @cache
    def data() -> bytes:
        request = make()
        return request if isinstance(request, bytes) else bytes(request.SerializeToString())

    def play(channel: Any) -> None:
        with turn:
            message = data()
        for _ in call(channel, name, message, **options):
            pass

    return play


def _cancelled(channel: Any) -> None:
    watch = call(channel, "Watch", pb.WatchRequest(first=bytes(100_000)).SerializeToString())
    next(watch)
    watch.cancel()
    next(watch)


_KEYS: Final = [b"t|a|b", b"t|a|c"]
#: Calls that are refused, by a server with SETTINGS.
REFUSED: Final[dict[str, Trick]] = {
    "too-large": _to_its_end("Put", lambda: pb.PutRequest(key=b"k", value=bytes(100_000))),
    "computed": _to_its_end("MultiPut", lambda: pb.MultiPutRequest(keys=_KEYS, values=[bytes(100_000)] * 2)),
    "bad": _to_its_end("MultiPut", lambda: pb.MultiPutRequest(keys=_KEYS, values=[bytes(100_000)])),
    "undecodable": _to_its_end("Put", lambda: b"\x0f" + bytes(100_000)),
    "bad-batch": _to_its_end("Execute", lambda: pb.ExecuteRequest(kinds=b"\xff", arguments=[bytes(100_000)])),
    "late": _to_its_end("Watch", lambda: pb.WatchRequest(first=bytes(100_000)), timeout_s=0.005),
    "cancelled": _cancelled,
}
#: Calls that are refused by a server with SETTINGS and the access file.
REFUSED_BY_ACCESS: Final[dict[str, Trick]] = {
    "unknown": _to_its_end("Put", lambda: pb.PutRequest(key=b"k", value=bytes(100_000))),
    "denied": _to_its_end("Put", lambda: pb.PutRequest(key=b"k", value=bytes(100_000)), token="no"),
}


def _padded_get(size: int) -> bytes:
    """Return a Get with a field that no version knows, of so many bytes."""
    length, left = bytearray(), size
    while left > 127:
        length.append(left & 127 | 128)
        left >>= 7
    length.append(left)
    return pb.GetRequest(key=b"k").SerializeToString() + b"\xfa\x7f" + bytes(length) + bytes(size)


#: Levels of two bytes each, of which protobuf and Python make 240: a server that read them would take 480 MiB.
_EMPTY_LEVELS: Final = b"\x3a\0" * (2 * MIB - 1000)
#: What a server has to hold for a moment: beyond any message that it takes under 256 MiB, and just below.
LARGE: Final[dict[str, tuple[Trick, int]]] = {
    "put-too-much": (
        _to_its_end("MultiPut", lambda: pb.MultiPutRequest(keys=[b"x"] * 60, values=[bytes(MIB)] * 60)),
        1,
    ),
    "get-too-much": (_to_its_end("Get", lambda: _padded_get(60 * MIB)), 8),
    "put-much": (
        _to_its_end(
            "MultiPut", lambda: pb.MultiPutRequest(keys=[b"x|%d" % n for n in range(60)], values=[bytes(60_000)] * 60)
        ),
        60,
    ),
    "get-much": (_to_its_end("Get", lambda: _padded_get(3_900_000)), 60),
    "levels-much": (_to_its_end("Execute", lambda: _EMPTY_LEVELS), 4),
}


@contextmanager
def connected(target: str) -> Iterator[Any]:
    """Yield a connection of its own."""
    with grpc.insecure_channel(target, _OPTIONS) as channel:
        yield channel


def codes_of(target: str, trick: Trick, count: int, at_a_time: int = 4) -> Counter[str]:
    """Play a trick many times on one connection, and count the codes."""
    with connected(target) as channel, ThreadPoolExecutor(at_a_time) as threads:

        def once(_number: int) -> str:
            try:
                trick(channel)
            except grpc.RpcError as error:
                return str(error.code().name)
            return "OK"

        return Counter(threads.map(once, range(count)))


def leave_unread(target: str, count: int, method: str, request: bytes) -> Counter[str]:
    """Begin calls on twenty connections and read nothing of their replies; then read and write like others."""
    channels = [grpc.insecure_channel(target, _OPTIONS) for _ in range(20)]
    calls = [call(channels[number % 20], method, request) for number in range(count)]
    codes = _others(target)
    for begun in calls:
        begun.cancel()
    for channel in channels:
        channel.close()
    return codes


def _batch(size: int, *scans: tuple[bytes, bytes]) -> bytes:
    """Return a batch of scans, behind a put of so many bytes in pieces."""
    arguments = [argument for number in range(size // 60_000) for argument in (b"y|%03d" % number, bytes(60_000))]
    kinds = bytes([PUT]) * (len(arguments) // 2) + bytes([SCAN]) * len(scans)
    return pb.ExecuteRequest(kinds=kinds, arguments=[*arguments, *chain(*scans)]).SerializeToString()


def leave_batches_unread(target: str, count: int, make: Callable[[], bytes], idle_s: float = 0) -> Counter[str]:
    """Send one batch on each of many streams, on twenty connections, and read nothing; then call like others.

    Args:
        make: Makes the batch.
        idle_s: So long after a first batch that is empty.
    """
    channels = [grpc.insecure_channel(target, _OPTIONS) for _ in range(20)]
    over = threading.Event()
    batch = make()

    def requests() -> Iterator[bytes]:
        if idle_s:
            yield b""
            over.wait(idle_s)
        yield batch
        over.wait(_TIMEOUT_S)

    path = f"/{_SERVICE.full_name}/Execute"
    begins: list[Any] = [channel.stream_stream(path) for channel in channels]
    calls = [begins[number % 20](requests(), timeout=_TIMEOUT_S) for number in range(count)]
    codes = _others(target)
    over.set()
    for begun in calls:
        begun.cancel()
    for channel in channels:
        channel.close()
    return codes


def send_unfinished(target: str, count: int, method: str) -> Counter[str]:
    """Begin calls with long messages, on twenty connections, and do not end them; then read and write like others."""
    connections = [
        Unfinished(target, f"/{_SERVICE.full_name}/{method}", 3_900_000, max(count // 20, 1)) for _ in range(20)
    ]
    with ThreadPoolExecutor(20) as threads:
        for connection in connections:
            threads.submit(connection.send, 4)
        codes = _others(target)
    for connection in connections:
        connection.close()
    return codes


def send_no_bodies(target: str, count: int) -> Counter[str]:
    """Begin calls of any method with a few bytes of their messages or none; others call while there are ever more.

    Half of the calls are on one connection, and each of the others has one of its own.
    """
    paths = [f"/{_SERVICE.full_name}/{method}" for method in ("Get", "Execute", "Watch", "MultiPut")]
    crowd = [Bodiless(target, paths[number % len(paths)]) for number in range(count // 2)]
    single = Bodiless(target, paths[0])
    over = threading.Event()

    def begin() -> None:
        for number, alone in enumerate(crowd):
            single.begin(1)
            alone.begin(1, b"\0\0"[: number % 3])
            # 300 calls a second.
            if over.wait(1 / 150):
                return

    beginning = threading.Thread(target=begin)
    beginning.start()
    codes = _others(target)
    over.set()
    beginning.join()
    for connection in (*crowd, single):
        connection.close()
    return codes


def call_at_once(target: str, count: int) -> Counter[str]:
    """Begin calls at once, on one connection of the asynchronous client; then read and write like others."""

    async def gather() -> Counter[str]:
        request = pb.GetRequest(key=b"k").SerializeToString()
        async with aio.insecure_channel(target, _OPTIONS) as channel:
            get: Any = channel.unary_unary(f"/{_SERVICE.full_name}/Get")
            outcomes = await asyncio.gather(*[get(request) for _ in range(count)], return_exceptions=True)
        failed = (outcome for outcome in outcomes if isinstance(outcome, grpc.RpcError))
        # What ends well counts no more than what others do, so that all tricks of this kind end alike.
        return Counter(error.code().name for error in failed)

    return asyncio.run(gather()) + _others(target)


def put_at_once(target: str, count: int) -> Counter[str]:
    """Put 100 KB with each of many calls that begin at once, and cancel half of them; on one connection.

    The keys are twenty, so that a server with room for them may apply all.
    """

    async def gather() -> Counter[str]:
        value = bytes(100_000)
        requests = [pb.PutRequest(key=b"z|%d" % number, value=value).SerializeToString() for number in range(20)]
        async with aio.insecure_channel(target, _OPTIONS) as channel:
            put: Any = channel.unary_unary(f"/{_SERVICE.full_name}/Put")
            calls = [put(requests[number % 20]) for number in range(count)]
            await asyncio.sleep(0.05)
            for call in calls[::2]:
                call.cancel()
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
        failed = (outcome for outcome in outcomes if isinstance(outcome, grpc.RpcError))
        return Counter(error.code().name for error in failed)

    return asyncio.run(gather()) + _others(target)


def put_beside_watches(target: str, count: int) -> Counter[str]:
    """Put 20 KB with each of many calls at once, under 100 watches that read nothing; then call like others."""
    request = pb.WatchRequest(first=b"z|", last=b"z}", rows=True).SerializeToString()

    async def gather() -> Counter[str]:
        async with aio.insecure_channel(target, _OPTIONS) as channel:
            watch: Any = channel.unary_stream(f"/{_SERVICE.full_name}/Watch")
            put: Any = channel.unary_unary(f"/{_SERVICE.full_name}/Put")
            watches = [watch(request) for _ in range(100)]
            await asyncio.gather(*[watch.read() for watch in watches])
            rows = ((b"z|%d" % (number % 50), random.randbytes(20_000)) for number in range(count))
            puts = [put(pb.PutRequest(key=key, value=value).SerializeToString()) for key, value in rows]
            outcomes = await asyncio.gather(*puts, return_exceptions=True)
        failed = (outcome for outcome in outcomes if isinstance(outcome, grpc.RpcError))
        return Counter(error.code().name for error in failed)

    return asyncio.run(gather()) + _others(target)


def _others(target: str) -> Counter[str]:
    time.sleep(3)
    codes = codes_of(target, _to_its_end("Get", lambda: pb.GetRequest(key=b"k")), 100)
    return codes + codes_of(target, _to_its_end("Put", lambda: pb.PutRequest(key=b"k", value=b"v")), 100)


_TEN_ROWS: Final = pb.MultiGetRequest(keys=[b"d|000|%02d" % row for row in range(10)])
_ALL_ROWS: Final = pb.WatchRequest(first=b"d|", last=b"d}", rows=True)
#: Clients that leave what they began, while others get their answers.
LEFT: Final[dict[str, tuple[Callable[[str, int], Counter[str]], int]]] = {
    "scans-unread": (partial(leave_unread, method="Scan", request=b""), 400),
    "replies-unread": (partial(leave_unread, method="MultiGet", request=_TEN_ROWS.SerializeToString()), 400),
    "watches-unread": (partial(leave_unread, method="Watch", request=_ALL_ROWS.SerializeToString()), 400),
    "batches-unread": (partial(leave_batches_unread, make=partial(_batch, 0, *[(b"d|", b"d}")] * 4)), 200),
    "rows-unread": (partial(leave_batches_unread, make=partial(_batch, 0, (b"d|000|00", b"d|000|01"))), 1000),
    "batches-at-once": (partial(leave_batches_unread, make=partial(_batch, 3_900_000)), 200),
    "batches-later": (partial(leave_batches_unread, make=partial(_batch, 3_900_000), idle_s=2), 400),
    "calls-unfinished": (partial(send_unfinished, method="Get"), 500),
    "bodies-missing": (send_no_bodies, 3000),
    "calls-at-once": (call_at_once, 5000),
    "puts-at-once": (put_at_once, 3000),
    "puts-beside-watches": (put_beside_watches, 2000),
    "batches-unfinished": (partial(send_unfinished, method="Execute"), 200),
}


async def in_a_process(target: str, trick: str, count: int) -> dict[str, int]:
    """Play a trick in a process of its own, and return the codes."""
    with ProcessPoolExecutor(1, FORKS) as processes:
        return await asyncio.get_running_loop().run_in_executor(processes, played, target, trick, count)


def _tricks() -> dict[str, Callable[[str, int], Counter[str]]]:
    return {
        **{name: partial(_codes_of, trick) for name, trick in (REFUSED | REFUSED_BY_ACCESS).items()},
        **{name: partial(_codes_at_once, trick) for name, (trick, _) in LARGE.items()},
        **{name: play for name, (play, _) in LEFT.items()},
    }


def _codes_of(trick: Trick, target: str, count: int) -> Counter[str]:
    return codes_of(target, trick, count)


def _codes_at_once(trick: Trick, target: str, count: int) -> Counter[str]:
    return codes_of(target, trick, count, count)


def played(target: str, trick: str, count: int) -> dict[str, int]:
    """Play a trick in this process, and return how many calls ended with which code."""
    return dict(_tricks()[trick](target, count))


def main() -> None:
    """Play a trick and print the codes."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.heavy", description="A client that sends too much.")
    parser.add_argument("target", help="host and port of the server")
    parser.add_argument("trick", choices=_tricks())
    parser.add_argument("--count", type=int, default=100, help="calls (100)")
    options = parser.parse_args()
    print(json.dumps(played(options.target, options.trick, options.count)))


if __name__ == "__main__":
    main()
