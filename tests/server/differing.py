"""The same random calls to both transports: python -m tests.server.differing --calls 10000

Each call goes to a server on gRPC's transport and to one on the native one, with the same store in both. Replies must
be equal but for the server's id and the token, and so must codes, texts and details of what fails.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Final, Literal

import grpc
from pequod_proto import pequod_pb2 as pb
from pequod_server import PequodServer, ServerConfig
from pequod_server.backing.fake import FakeStore
from pequod_server.backing.mapping import parse_mappings

from pequod.commands.kinds import COUNT, EXPIRE, GET, PUT, PUT_TTL, REMOVE, SCAN
from pequod.language.deadlines import TTL_MS_MAX

SERVICE: Final = "/pequod.v1.Pequod/"
_JOIN: Final = "t|<user>|<time>|<poster> = check f|<user>|<poster> copy p|<poster>|<time>"
_MAPPINGS: Final = parse_mappings("""
[[mapping]]
keys = "f|<user>|<poster>"
table = "followed"

[[mapping]]
keys = "p|<poster>|<time>"
table = "posts"
value = "body"
""")
_REPLIES: Final[dict[str, Any]] = {
    "Get": pb.GetReply,
    "Put": pb.PutReply,
    "Remove": pb.RemoveReply,
    "Count": pb.CountReply,
    "Scan": pb.ScanReply,
    "MultiGet": pb.MultiGetReply,
    "MultiPut": pb.MultiPutReply,
    "WriteIf": pb.WriteIfReply,
    "Add": pb.AddReply,
    "Expire": pb.ExpireReply,
    "Execute": pb.ExecuteReply,
    "Watch": pb.WatchReply,
}
STREAMING: Final = frozenset({"Scan", "Watch"})
_MESSAGE_MAX: Final = 200_000
#: Times to live: for ever, an hour, and too long.
_TIMES: Final = (0, 3_600_000, 3_600_000, TTL_MS_MAX + 1)


class Calls:
    """Makes random calls; the same seed makes the same ones."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def _key(self) -> bytes:
        rnd = self._random
        share = rnd.random()
        user = rnd.choice("abcd")
        if share < 0.3:
            return f"p|{user}|{rnd.randrange(40):03}".encode()
        if share < 0.5:
            return f"f|{user}|{rnd.choice('abcd')}".encode()
        if share < 0.7:
            return f"t|{user}|{rnd.randrange(40):03}|{rnd.choice('abcd')}".encode()
        if share < 0.9:
            return f"x|{rnd.randrange(60):02}".encode()
        return rnd.choice([b"", b"loose", b"x|", b"x", b"q|1", b"\xff\xff", b"y" * 5000, b"p|a|", b"t|a}"])

    def _value(self) -> bytes:
        return self._random.choice([b"", b"1", b"v" * 300, b"w" * 20_000, b"z" * 150_000])

    def _ranged(self, kind: Any) -> Any:
        rnd = self._random
        first, last = sorted([self._key(), self._key()])
        if rnd.random() < 0.1:
            first, last = last, first
        request = kind(first=first)
        if rnd.random() < 0.9:
            request.last = last
        if rnd.random() < 0.1:
            request.prefix = rnd.choice([b"x|", b"t|a|", b"p|"])
        return request

    def _scan(self) -> Any:
        rnd = self._random
        request = self._ranged(pb.ScanRequest)
        if rnd.random() < 0.6:
            request.limit = rnd.choice([0, 1, 2, 5, 10, 1_000_000])
        request.reverse, request.keys_only = rnd.random() < 0.3, rnd.random() < 0.1
        if rnd.random() < 0.3:
            request.chunk_bytes = rnd.choice([1, 30, 100, 2000, 1 << 20])
        return request

    def _write_if(self) -> Any:
        rnd = self._random
        request = pb.WriteIfRequest(key=self._key(), condition=rnd.choice([1, 2, 3, 3, 3, 0, 9]))
        if rnd.random() < 0.7:
            request.value = self._value()
        if rnd.random() < 0.6:
            request.expected = self._value()
        if rnd.random() < 0.1:
            request.ttl_ms = 3_600_000
        return request

    def _multi_put(self, keys: list[bytes]) -> Any:
        rnd = self._random
        request = pb.MultiPutRequest(keys=keys, values=[self._value() for _ in keys[rnd.randrange(2) :]])
        request.ttl_ms, request.keep_ttl = rnd.choice([0, 0, *_TIMES]), rnd.random() < 0.1
        return request

    def _batch(self) -> Any:
        rnd = self._random
        request = pb.ExecuteRequest(batch=rnd.randrange(1000))
        for _ in range(rnd.choice([0, 1, 3, 30])):
            kind = rnd.choice([GET, PUT, REMOVE, SCAN, COUNT, PUT_TTL, EXPIRE])
            request.kinds += bytes([kind])
            second = {GET: [], REMOVE: [], EXPIRE: [], PUT: [self._value()], PUT_TTL: [self._value()]}
            request.arguments.extend([self._key(), *second.get(kind, [self._key()])])
            if kind in (PUT_TTL, EXPIRE):
                request.numbers.append(rnd.choice(_TIMES))
        if rnd.random() < 0.05:
            request.kinds += b"\xff"
        return request

    def next(self) -> tuple[str, list[bytes], dict[str, Any]]:
        """Return a method, its requests, and the options of the call."""
        rnd = self._random
        method = rnd.choices([*_REPLIES, "Nothing"], [4, 6, 1, 2, 4, 2, 2, 3, 2, 2, 3, 1, 0.3])[0]
        keys = [self._key() for _ in range(rnd.choice([0, 1, 5]))]
        made: dict[str, Any] = {
            "Get": lambda: pb.GetRequest(key=self._key()),
            "Put": lambda: pb.PutRequest(
                key=self._key(), value=self._value(), ttl_ms=rnd.choice([0] * 9 + [3_600_000])
            ),
            "Remove": lambda: pb.RemoveRequest(key=self._key()),
            "Count": lambda: self._ranged(pb.CountRequest),
            "Scan": self._scan,
            "MultiGet": lambda: pb.MultiGetRequest(keys=keys),
            "MultiPut": lambda: self._multi_put(keys),
            "WriteIf": self._write_if,
            "Add": lambda: pb.AddRequest(
                key=self._key(), delta=rnd.choice([b"1", b"-7", b"0.5", b"", b"x", b"9" * 70])
            ),
            "Expire": lambda: pb.ExpireRequest(key=self._key(), ttl_ms=rnd.choice(_TIMES)),
            "Execute": self._batch,
            "Watch": lambda: pb.WatchRequest(first=b"x|", last=b"x}"),
            "Nothing": pb.GetRequest,
        }
        count = rnd.choice([1, 2, 5]) if method == "Execute" else 1
        requests = [made[method]().SerializeToString() for _ in range(count)]
        is_damaged = rnd.random() < 0.03
        if is_damaged:
            requests[0] = rnd.choice([rnd.randbytes(30), bytes(_MESSAGE_MAX + 10), bytes(4 << 20)])
        options: dict[str, Any] = {}
        if rnd.random() < 0.2:
            options["compression"] = rnd.choice([grpc.Compression.Gzip, grpc.Compression.Deflate])
        if method == "Watch" and len(requests[0]) < _MESSAGE_MAX:
            # What is damaged is refused, unless by chance it is a message.
            options["timeout"] = 5 if is_damaged else 0.05
        elif rnd.random() < 0.3:
            options["timeout"] = 20
        if rnd.random() < 0.2:
            options["metadata"] = (("x-request-id", "r"), ("x-bytes-bin", rnd.randbytes(5)), ("x-words", "a  b"))
        return method, requests, options


def plain(method: str, reply: bytes) -> bytes:
    """Return a reply without what differs between servers."""
    made = _REPLIES[method].FromString(reply)
    if made.DESCRIPTOR.fields_by_name.get("header") is not None:
        made.header.server_id, made.header.token, made.header.age_ms = 0, b"", 0
    else:
        made.server_id, made.token, made.age_ms = 0, b"", 0
    if method == "Watch":
        del made.origins[:]
    return bytes(made.SerializeToString(deterministic=True))


class _InTurn:
    """The requests of a stream, each once the one before it has been answered: then a handler waits for it."""

    def __init__(self, requests: list[bytes]) -> None:
        self._requests = requests
        self._may_go = threading.Semaphore(1)

    def __iter__(self) -> Iterator[bytes]:
        for request in self._requests:
            self._may_go.acquire()
            yield request

    def answered(self) -> None:
        """Let the next one go."""
        self._may_go.release()

    def taken(self, replies: Iterable[bytes]) -> Iterator[bytes]:
        """Yield replies."""
        try:
            for reply in replies:
                yield reply
                if not pb.ExecuteReply.FromString(reply).more:
                    self.answered()
        finally:
            for _ in self._requests:
                self.answered()


def answer(channel: Any, method: str, requests: list[bytes], options: dict[str, Any], *, in_turn: bool) -> object:
    """Return the replies and how the call ended.

    By the blocking client: the asyncio one says INTERNAL by itself if a stream is refused before it has written all.
    """
    replies: list[bytes] = []
    path = SERVICE + method
    try:
        turns = _InTurn(requests)
        if method == "Execute":
            call: Any = channel.stream_stream(path)(iter(turns if in_turn else requests), **options)
        elif method in STREAMING:
            call = channel.unary_stream(path)(requests[0], **options)
        else:
            reply, call = channel.unary_unary(path).with_call(requests[0], **options)
            replies.append(plain(method, reply))
        if method == "Execute" or method in STREAMING:
            replies += [plain(method, reply) for reply in (turns.taken(call) if method == "Execute" else call)]
    except grpc.RpcError as error:
        # A deadline is the client's own; what the server says of it may come first or not.
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return replies, error.code().name
        trailing: Any = error.trailing_metadata() or ()
        return replies, error.code().name, error.details(), sorted(trailing)
    return replies, "OK", sorted((key, value) for key, value in call.trailing_metadata())


def _cancelled(channel: Any) -> str:
    """Return how a call ends that its client gives up."""
    call: Any = channel.unary_stream(SERVICE + "Watch")(pb.WatchRequest(first=b"x|").SerializeToString())
    next(call)
    call.cancel()
    return str(call.code().name)


@asynccontextmanager
async def alike(
    *transports: Literal["grpcio", "native"], is_backed: bool = False, **settings: Any
) -> AsyncIterator[list[str]]:
    """Run servers that are alike, each on a transport, and yield their targets.

    Args:
        is_backed: A database owns the sources of the join.
    """
    async with AsyncExitStack() as stack:
        targets = []
        for transport in transports:
            config = ServerConfig(
                listen="127.0.0.1:0",
                drain_s=0.1,
                transport=transport,
                joins=_JOIN,
                watch_linger_s=0,
                slow_ms=0,
                memory_limit="none",
                message_bytes_max=_MESSAGE_MAX,
                value_bytes_max=100_000,
                reply_bytes_max=_MESSAGE_MAX,
                backing_mode="write-through",
                **settings,
            )
            store = None
            if is_backed:
                store = FakeStore(_MAPPINGS)
                store.commit({b"p|%c|%03d" % (user, at): b"%d" % at for user in b"abcd" for at in range(0, 40, 3)})
            server = PequodServer(config, store=store)
            port = await server.start()
            stack.push_async_callback(server.stop)
            targets.append(f"127.0.0.1:{port}")
        yield targets


def blocking_channel(target: str) -> Any:
    """Return a channel of gRPC's blocking client."""
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
    return grpc.insecure_channel(target, options=options)


async def compare(count: int, seed: int, *, is_backed: bool = False) -> Counter[str]:
    """Make calls, and return how often each method was called and how it ended; see `alike`.

    Raises:
        AssertionError: The transports differ.
    """
    calls, seen = Calls(seed), Counter[str]()
    async with alike("grpcio", "native", is_backed=is_backed) as targets, AsyncExitStack() as stack:
        channels = [stack.enter_context(blocking_channel(target)) for target in targets]
        for number in range(count):
            method, requests, options = calls.next()
            ask, in_turn = partial(answer, method=method, requests=requests, options=options), number % 4 > 0
            one, other = [await asyncio.to_thread(ask, channel, in_turn=in_turn) for channel in channels]
            said = f"call {number} of seed {seed}: {method}({requests[0][:200]!r}...), {options}"
            assert one == other, f"{said}:\n  {str(one)[:800]}\n  {str(other)[:800]}"
            assert isinstance(one, tuple)
            seen[f"{method} {one[1]}"] += 1
            if not number % 50:
                ends = [await asyncio.to_thread(_cancelled, channel) for channel in channels]
                assert ends == ["CANCELLED", "CANCELLED"]
    return seen


def run(description: str | None, compare: Callable[..., Coroutine[Any, Any, Counter[str]]]) -> None:
    """Compare as the command line says, and print what was called."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=10_000, help="calls (10000)")
    parser.add_argument("--backed", action="store_true", help="with a database that owns the sources of the join")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30), help="of the calls (random)")
    options = parser.parse_args()
    print(f"{options.calls} calls, seed {options.seed}", flush=True)
    for what, times in sorted(asyncio.run(compare(options.calls, options.seed, is_backed=options.backed)).items()):
        print(f"{times:7} {what}")
    print("no difference")


if __name__ == "__main__":
    run(__doc__, compare)
