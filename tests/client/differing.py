"""The same random calls by both transports of clients: python -m tests.client.differing --calls 10000

Each call goes to both of two servers that are alike: to the first by gRPC's own client, to the second by the native
channel. Replies must be equal but for the server's id and the token, and so must codes, texts and details of errors.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any

import grpc
from grpc import aio
from pequod_proto import pequod_pb2 as pb

from pequod.wire.channel import NativeChannel
from pequod.wire.places import place_of
from tests.server.differing import SERVICE, STREAMING, Calls, alike, answer, blocking_channel, plain, run


async def _talk(call: Any, requests: list[bytes], *, in_turn: bool) -> list[bytes]:
    """Send requests, each once the one before it has been answered or all at once, and return the replies."""

    async def write() -> None:
        # Its end says why.
        with suppress(aio.AioRpcError, asyncio.InvalidStateError):
            for request in requests:
                await call.write(request)
                if in_turn:
                    await answered.wait()
                    answered.clear()
            await call.done_writing()

    answered, replies = asyncio.Event(), list[bytes]()
    writing = asyncio.ensure_future(write())
    try:
        async for reply in call:
            replies.append(plain("Execute", reply))
            if not pb.ExecuteReply.FromString(reply).more:
                answered.set()
    finally:
        answered.set()
        await writing
    return replies


async def _answer(
    channel: NativeChannel, method: str, requests: list[bytes], options: dict[str, Any], *, in_turn: bool
) -> object:
    """Return the replies and how the call ended."""
    replies: list[bytes] = []
    path = SERVICE + method
    call: Any
    try:
        if method == "Execute":
            call = channel.stream_stream(path)(**options)
            replies += await _talk(call, requests, in_turn=in_turn)
        elif method in STREAMING:
            call = channel.unary_stream(path)(requests[0], **options)
            replies += [plain(method, reply) async for reply in call]
        else:
            call = channel.unary_unary(path)(requests[0], **options)
            replies.append(plain(method, await call))
    except aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return replies, error.code().name
        return replies, error.code().name, error.details(), sorted(error.trailing_metadata())
    return replies, "OK", sorted(await call.trailing_metadata())


async def _cancelled(channel: NativeChannel) -> str:
    """Return how a call ends that its client gives up."""
    call = channel.unary_stream(SERVICE + "Watch")(pb.WatchRequest(first=b"x|").SerializeToString())
    await call.read()
    call.cancel()
    return str((await call.code()).name)


async def compare(count: int, seed: int, *, is_backed: bool = False) -> Counter[str]:
    """Make calls, and return how often each method was called and how it ended; see `alike`.

    Raises:
        AssertionError: The transports differ.
    """
    calls, seen = Calls(seed), Counter[str]()
    async with alike("native", "native", is_backed=is_backed) as (first, second):
        place = place_of(second)
        assert place is not None
        with blocking_channel(first) as usual:
            async with NativeChannel(place) as native:
                for number in range(count):
                    method, requests, options = calls.next()
                    # The native channel sends messages as they are.
                    options.pop("compression", None)
                    in_turn = number % 4 > 0
                    one = await asyncio.to_thread(answer, usual, method, requests, options, in_turn=in_turn)
                    other = await _answer(native, method, requests, options, in_turn=in_turn)
                    said = f"call {number} of seed {seed}: {method}({requests[0][:200]!r}...), {options}"
                    assert one == other, f"{said}:\n  {str(one)[:800]}\n  {str(other)[:800]}"
                    assert isinstance(one, tuple)
                    seen[f"{method} {one[1]}"] += 1
                    if not number % 50:
                        assert await _cancelled(native) == "CANCELLED"
    return seen


if __name__ == "__main__":
    run(__doc__, compare)
