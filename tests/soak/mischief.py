"""Clients that misbehave in a process of their own, until it is killed.

They have the table `n` and the joins over it to themselves, and read and watch all others. What they write is bounded,
so that a server that leaks nothing does not grow. An error that they must not meet goes to standard error.
"""

import asyncio
import contextlib
import os
import random
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
from grpc import aio
from pequod_proto import pequod_pb2 as pb

from pequod import AsyncClient, Client
from pequod.commands.kinds import SCAN
from pequod.errors import (
    DeadlineExceededError,
    JoinError,
    LimitExceededError,
    NotWatchableError,
    PequodError,
    UnknownJoinError,
    WatchCompactedError,
)
from tests.soak.unfinished import Bodiless, Unfinished

JOINS = "tally|<a> = count n|<a>|<b>; heavy|<a>|<c> = pull check n|<a>|<b> copy n|<c>|<b>"
_BY_FIELD = "field|<f>|<a>|<b> = copy n|<a>|<b> with f = <f>"
_LONG_RECORD = b'{"f":"x","lists":[' + b",".join([b"[]"] * 300_000) + b"]}"
_TOO_MANY_JOINS = ";".join(f"many{number}|<a> = copy n|<a>|<b>" for number in range(20_000))
_SERVICE = "/pequod.v1.Pequod/"
_PEER_SERVICE = "/pequod.v1.PequodPeer/"
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#: Late, refused, or too far behind.
_FORESEEN = (
    DeadlineExceededError,
    JoinError,
    LimitExceededError,
    NotWatchableError,
    UnknownJoinError,
    WatchCompactedError,
)


class Mischief:
    """Clients of one process against one server."""

    def __init__(self, target: str, seed: int) -> None:
        self.target = target
        self.draw = random.Random(seed)
        host, _, port = target.rpartition(":")
        self.address = (host, int(port))
        self.tricks: list[Callable[[], Awaitable[None]]] = [
            self.come_and_go,
            self.come_and_go_in_a_thread,
            self.cancel,
            self.be_late,
            self.leave_a_scan,
            self.watch_and_leave,
            self.watch_and_read_nothing,
            self.go_on_with_a_watch,
            self.join_and_drop,
            self.send_garbage,
            self.send_frames,
            self.send_bad_messages,
            self.send_bad_batches,
            self.send_what_is_refused,
            self.send_too_many_entries,
            self.have_long_records_indexed,
            self.leave_a_stream_idle,
            self.leave_batches_unread,
            self.leave_calls_unfinished,
            self.send_no_bodies,
        ]

    async def run(self) -> None:
        """Play tricks, several at a time, for ever."""
        await asyncio.gather(*(self._play() for _ in range(4)))

    async def _play(self) -> None:
        while True:
            trick = self.draw.choice(self.tricks)
            try:
                async with asyncio.timeout(20):
                    await trick()
            except _FORESEEN:
                pass
            except Exception as error:
                # What gRPC's own client makes of a LimitExceededError: streams without bodies reach `streams_max`.
                if isinstance(error, aio.AioRpcError) and error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                    continue
                print(f"UNFORESEEN in {trick.__name__}: {traceback.format_exc()}", file=sys.stderr, flush=True)
            await asyncio.sleep(self.draw.random() * 0.05)

    def key(self) -> str:
        return f"n|{self.draw.randrange(20):02}|{self.draw.randrange(20):02}"

    async def come_and_go(self) -> None:
        async with AsyncClient(self.target) as client:
            for _ in range(self.draw.randrange(5)):
                await client.put(self.key(), "x" * self.draw.randrange(200))
                await client.remove(self.key())
                await client.get(f"tally|{self.draw.randrange(20):02}")

    async def come_and_go_in_a_thread(self) -> None:
        def use() -> None:
            with Client(self.target) as client:
                client.put(self.key(), "")
                events = client.watch("tally|", "tally}", rows=True)
                next(events)
                batch = client.batch()
                batch.scan("t|", "t}")
                waiting = batch.send_nowait()
                if self.draw.random() < 0.5:
                    waiting.cancel()
                if self.draw.random() < 0.5:
                    events.close()

        await asyncio.to_thread(use)

    async def cancel(self) -> None:
        async with AsyncClient(self.target) as client:
            await client.count("n|")
            calls = [
                client.put(self.key(), "y"),
                client.scan("heavy|", "heavy}"),
                client.count("t|", "t}"),
                client.statistics(),
                client.explain_range("t|", "t}"),
                client.add_join(JOINS),
            ]
            tasks = [asyncio.ensure_future(call) for call in calls]
            for task in self.draw.sample(tasks, len(tasks)):
                await asyncio.sleep(self.draw.choice((0, 0, 0.001, 0.003)))
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def be_late(self) -> None:
        async with AsyncClient(self.target, timeout_s=self.draw.choice((0.001, 0.005, 0.02))) as client:
            for _ in range(5):
                calls = (client.scan("heavy|", "heavy}"), client.put(self.key(), "z"), client.joins())
                results = await asyncio.gather(*calls, return_exceptions=True)
                for result in results:
                    if isinstance(result, BaseException) and not isinstance(result, _FORESEEN):
                        raise result

    async def leave_a_scan(self) -> None:
        async with AsyncClient(self.target) as client:
            rows = client.scan_iter("n|")
            async for _ in rows:
                if self.draw.random() < 0.1:
                    break

    async def watch_and_leave(self) -> None:
        first, last = self.draw.choice((("t|", "t}"), ("n|", "n}"), ("tally|", "tally}"), ("", None)))
        async with AsyncClient(self.target, timeout_s=5) as client:
            events = client.watch(first, last, rows=self.draw.random() < 0.5)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.draw.choice((0.001, 0.01, 0.3))):
                    async for _ in events:
                        await client.put(self.key(), str(self.draw.randrange(1000)))
            if self.draw.random() < 0.5:
                await events.aclose()

    async def watch_and_read_nothing(self) -> None:
        async with aio.insecure_channel(self.target) as channel:
            watch: Any = channel.unary_stream(_SERVICE + "Watch")
            calls = [watch(pb.WatchRequest(first=b"n|", rows=True).SerializeToString()) for _ in range(5)]
            async with AsyncClient(self.target) as client:
                for _ in range(20):
                    await client.put(self.key(), "w" * 1000)
            await asyncio.sleep(self.draw.random() * 0.3)
            for call in calls[: self.draw.randrange(5)]:
                call.cancel()

    async def go_on_with_a_watch(self) -> None:
        async with AsyncClient(self.target) as client, aio.insecure_channel(self.target) as channel:
            await client.put(self.key(), "")
            behind = client.revision - self.draw.randrange(10)
            server_id = client.server_id if self.draw.random() < 0.8 else 1
            after = pb.Header(server_id=server_id, revision=max(0, behind + self.draw.choice((0, 0, 1000))))
            watch: Any = channel.unary_stream(_SERVICE + "Watch")
            request = pb.WatchRequest(first=b"n|", last=b"n}", after=after)
            call = watch(request.SerializeToString(), timeout=0.3)
            with contextlib.suppress(aio.AioRpcError):
                async for _ in call:
                    break

    async def join_and_drop(self) -> None:
        async with AsyncClient(self.target) as client:
            number = self.draw.randrange(3)
            await client.add_join(f"extra{number}|<b>|<a> = copy n|<a>|<b>")
            await client.scan(f"extra{number}|")
            await client.drop_join(f"extra{number}")
            await client.add_join(self.draw.choice(("nonsense = " + "<" * self.draw.randrange(2000), _TOO_MANY_JOINS)))

    async def send_garbage(self) -> None:
        garbage = self.draw.randbytes(self.draw.choice((1, 100, 10_000)))
        await self._send_raw(self.draw.choice((garbage, b"GET / HTTP/1.1\r\n\r\n", _PREFACE[:10], _PREFACE + garbage)))

    async def send_frames(self) -> None:
        """Speak HTTP/2 with frames of random kinds, flags, streams and contents, settings first."""
        frames = [b"\0\0\0\x04\0\0\0\0\0"]
        for _ in range(self.draw.randrange(1, 20)):
            body = self.draw.randbytes(self.draw.randrange(64))
            kind, flags, stream = self.draw.randrange(11), self.draw.randrange(256), self.draw.randrange(8)
            frames.append(struct.pack(">I", len(body))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + body)
        await self._send_raw(_PREFACE + b"".join(frames))

    async def _send_raw(self, data: bytes) -> None:
        try:
            reader, writer = await asyncio.open_connection(*self.address)
            writer.write(data)
            await asyncio.wait_for(writer.drain(), 2)
            if self.draw.random() < 0.5:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(1000), 0.2)
            if self.draw.random() < 0.5:
                # A reset instead of an end.
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.close()
            await writer.wait_closed()
        except (ConnectionError, TimeoutError):
            pass

    async def send_bad_messages(self) -> None:
        methods = [*(method.name for method in pb.DESCRIPTOR.services_by_name["Pequod"].methods), "Nothing"]
        async with aio.insecure_channel(self.target) as channel:
            for _ in range(5):
                method = self.draw.choice(methods)
                # An odd tag that cannot be parsed, so that no call of it does anything.
                garbage = b"\x0f" + self.draw.randbytes(self.draw.randrange(100))
                make: Any = channel.unary_stream(_SERVICE + method)
                call = make(garbage, timeout=2)
                with contextlib.suppress(aio.AioRpcError):
                    async for _ in call:
                        print(f"UNFORESEEN: {method} takes garbage", file=sys.stderr, flush=True)

    async def send_bad_batches(self) -> None:
        async with aio.insecure_channel(self.target) as channel:
            call: Any = channel.stream_stream(_SERVICE + "Execute")(timeout=15)
            kinds = self.draw.randbytes(self.draw.randrange(1, 9)) + b"\xff"
            arguments = [self.draw.randbytes(5) for _ in range(self.draw.randrange(20))]
            try:
                await call.write(pb.ExecuteRequest(kinds=kinds, arguments=arguments).SerializeToString())
                await call.done_writing()
                async for _ in call:
                    print(f"UNFORESEEN: a batch of {kinds!r} is taken", file=sys.stderr, flush=True)
            except aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.INVALID_ARGUMENT:
                    raise
            except asyncio.InvalidStateError:
                pass  # The stream was ended before all was written.

    async def send_what_is_refused(self) -> None:
        """Calls of a megabyte each, which a server that kept them could not hide."""
        large = bytes(1 << 20)
        requests = (
            ("Put", pb.PutRequest(key=b"n|00|00", value=large + b"x")),
            ("Put", pb.PutRequest(key=b"tally|00", value=large)),
            ("MultiPut", pb.MultiPutRequest(keys=[b"n|00|00", b"tally|00"], values=[large, b""])),
            ("MultiPut", pb.MultiPutRequest(keys=[b"n|00|00", b"n|00|01"], values=[large])),
            ("Watch", pb.WatchRequest(first=large, rows=True, after=pb.Header())),
        )
        async with aio.insecure_channel(self.target) as channel:
            for _ in range(10):
                method, request = self.draw.choice(requests)
                make: Any = channel.unary_stream(_SERVICE + method)
                with contextlib.suppress(aio.AioRpcError):
                    async for _ in make(request.SerializeToString(), timeout=10):
                        print(f"UNFORESEEN: {method} takes what it refuses", file=sys.stderr, flush=True)

    async def send_too_many_entries(self) -> None:
        """Columns of entries of two bytes each, of which protobuf would make up to a hundred times as many."""
        columns = (
            (_SERVICE + "Execute", b"\x3a\0"),
            (_SERVICE + "MultiGet", b"\x0a\0"),
            (_SERVICE + "LoadBackfill", b"\x32\0"),
            (_PEER_SERVICE + "Load", b"\x3a\0"),
            (_PEER_SERVICE + "Loads", b"\x1a\0"),
            (_PEER_SERVICE + "Feed", b"\x12\0"),
        )
        path, entry = self.draw.choice(columns)
        async with aio.insecure_channel(self.target) as channel:
            call: Any = channel.stream_stream(path)(timeout=15)
            try:
                await call.write(entry * self.draw.randrange(600_000, 1_900_000))
                await call.done_writing()
                async for _ in call:
                    print(f"UNFORESEEN: {path} takes too many entries", file=sys.stderr, flush=True)
            except aio.AioRpcError as error:
                if error.code() not in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED):
                    raise
            except asyncio.InvalidStateError:
                pass  # The stream was ended before all was written.

    async def have_long_records_indexed(self) -> None:
        """Read by a field of records that take long to parse, for the first time again and again."""
        keys = [b"n|%02d|long" % number for number in range(6)]
        requests = (
            *[("Put", pb.PutRequest(key=key, value=_LONG_RECORD)) for key in keys],
            ("DropJoin", pb.DropJoinRequest(name="field")),
            ("AddJoin", pb.AddJoinRequest(text=_BY_FIELD)),
            ("Scan", pb.ScanRequest(first=b"field|x|", last=b"field|x}")),
            *[("Remove", pb.RemoveRequest(key=key)) for key in keys],
        )
        async with aio.insecure_channel(self.target) as channel:
            for method, request in requests:
                make: Any = channel.unary_stream(_SERVICE + method)
                with contextlib.suppress(aio.AioRpcError):
                    async for _ in make(request.SerializeToString(), timeout=15):
                        pass

    async def leave_a_stream_idle(self) -> None:
        client = AsyncClient(self.target)
        await client.get("n|00|00")
        await asyncio.sleep(self.draw.random())
        if self.draw.random() < 0.9:
            await client.close()

    async def leave_batches_unread(self) -> None:
        batch = pb.ExecuteRequest(kinds=bytes([SCAN] * 20), arguments=[b"", b""] * 20).SerializeToString()
        async with aio.insecure_channel(self.target) as channel:
            calls: list[Any] = [channel.stream_stream(_SERVICE + "Execute")() for _ in range(5)]
            for call in calls:
                await call.write(batch)
            await asyncio.sleep(self.draw.random())

    async def leave_calls_unfinished(self) -> None:
        method = self.draw.choice(("Get", "Execute", "Watch"))
        size, seconds = self.draw.randrange(10, 1 << 20), self.draw.random()

        def play() -> None:
            with contextlib.suppress(ConnectionError):
                calls = Unfinished(self.target, _SERVICE + method, size, 5)
                calls.send(seconds)
                calls.close()

        await asyncio.to_thread(play)

    async def send_no_bodies(self) -> None:
        """Some hundred calls a second, on one connection or on many, of which nothing or a byte comes."""
        path = _SERVICE + self.draw.choice(("Get", "Put", "Execute", "Watch"))
        count, pause_s = self.draw.choice((1, 20)), self.draw.choice((0, 0.02))
        first_bytes = b"\0" * self.draw.randrange(2)

        def play() -> None:
            with contextlib.suppress(ConnectionError):
                connections = [Bodiless(self.target, path) for _ in range(count)]
                for number in range(200):
                    connections[number % count].begin(1, first_bytes)
                    time.sleep(pause_s / 4)
                for connection in connections:
                    connection.close()

        await asyncio.to_thread(play)


def misbehave(target: str, seed: int, errors: Path) -> None:
    """Be such a process, which says what it meets at the end of a file."""
    with errors.open("ab") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
    # Threads that wait must not keep the process.
    threading.excepthook = lambda arguments: print(f"UNFORESEEN: {arguments}", file=sys.stderr, flush=True)
    with contextlib.suppress(KeyboardInterrupt, PequodError):
        asyncio.run(Mischief(target, seed).run())
