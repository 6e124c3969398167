"""Calls whose messages are handed over as they come: in their order, as much as goes at a time, and up to their end."""

import asyncio

import grpc
import pytest
from grpc import aio

from pequod.client.pushed_stream import PushedStream
from pequod.client.stream import Sending
from pequod.errors import PequodError, UnavailableError
from pequod.native.http2 import why_absent
from pequod.wire.channel import NativeChannel
from pequod.wire.streams import PushedCall
from tests.server.frames import DATA, END_HEADERS, HEADERS, WINDOW_UPDATE, block, frame, message
from tests.wire.echoing import ECHO, ByHand, channel_to, comes, echoing, greeting, until

pytestmark = pytest.mark.skipif(why_absent() is not None, reason="there is no native transport")
BEGIN = block((":status", "200"), ("content-type", "application/grpc"))


class Talk:
    """A call of the server's method that gives everything back."""

    def __init__(self, channel: NativeChannel) -> None:
        self.heard: list[bytes] = []
        #: How often it was told to go on.
        self.went_on = 0
        self.call: PushedCall = channel.pushed_stream(ECHO + "Talk")(self.heard.append, self._go_on)

    def _go_on(self) -> None:
        self.went_on += 1

    async def begun(self) -> None:
        await comes(lambda: self.went_on > 0)
        assert self.call.is_ready


async def test_messages_come_in_their_order() -> None:
    async with echoing() as (_, target, _), channel_to(target) as channel:
        talk = Talk(channel)
        assert not talk.call.is_ready, "there is no connection yet"
        await talk.begun()
        sent = [b"%d" % number * size for number in range(50) for size in (1, 3000)]
        for one in sent[:50]:
            talk.call.send(one)
        talk.call.flush()
        for one in sent[50:]:
            talk.call.send(one)
        await comes(lambda: len(talk.heard) == 100)
        assert talk.heard == sent
        assert talk.call.cancel()
        assert not talk.call.is_ready


async def test_compressed_messages_are_read() -> None:
    async with echoing(compression=grpc.Compression.Gzip) as (_, target, _), channel_to(target) as channel:
        talk = Talk(channel)
        await talk.begun()
        text = b"so much to say " * 100_000
        talk.call.send(text)
        await comes(lambda: bool(talk.heard))
        assert talk.heard == [text]


async def test_the_end_has_the_status_of_the_server() -> None:
    async with echoing() as (_, target, _), channel_to(target) as channel:
        talk, ends = Talk(channel), list[aio.AioRpcError]()
        talk.call.add_done_callback(lambda call: ends.append(call.error()))
        await talk.begun()
        talk.call.send(b"first")
        talk.call.send(b"fail")
        await comes(lambda: bool(ends))
        assert talk.heard == [b"first"]
        assert (ends[0].code(), ends[0].details()) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "enough")


async def test_a_message_beyond_the_limit_ends_the_call() -> None:
    async with echoing() as (_, target, _), channel_to(target, message_bytes_max=1000) as channel:
        talk = Talk(channel)
        await talk.begun()
        talk.call.send(bytes(1001))
        await comes(talk.call.done)
        assert talk.call.error().code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert talk.heard == []


async def test_it_takes_no_more_while_much_waits_for_the_server() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting())
        _, _, stream, _ = await until(reader, HEADERS)
        came = 0
        while came < 65_535:
            came += len((await until(reader, DATA))[3])
        full.set()
        await may_go.wait()
        for number in (0, stream):
            writer.write(frame(WINDOW_UPDATE, 0, number, (200_000).to_bytes(4, "big")))
        await reader.read()

    full, may_go = asyncio.Event(), asyncio.Event()
    async with ByHand(serve) as server, channel_to(server.target) as channel:
        talk = Talk(channel)
        await talk.begun()
        talk.call.send(bytes(200_000))
        assert not talk.call.is_ready
        await full.wait()
        assert (talk.went_on, talk.call.is_ready) == (1, False)
        may_go.set()
        await comes(lambda: talk.went_on == 2)
        assert talk.call.is_ready


async def test_what_has_come_is_heard_before_the_connection_is_lost() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting())
        _, _, stream, _ = await until(reader, HEADERS)
        body = message(b"one") + message(b"two") + message(b"cut")[:6]
        writer.write(frame(HEADERS, END_HEADERS, stream, BEGIN) + frame(DATA, 0, stream, body))
        await writer.drain()

    async with ByHand(serve) as server, channel_to(server.target) as channel:
        talk = Talk(channel)
        await comes(talk.call.done)
        assert talk.heard == [b"one", b"two"]
        assert talk.call.error().code() is grpc.StatusCode.UNAVAILABLE


async def test_a_stream_breaks_if_the_server_replies_to_nothing() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting())
        _, _, stream, _ = await until(reader, HEADERS)
        writer.write(frame(HEADERS, END_HEADERS, stream, BEGIN) + frame(DATA, 0, stream, message(b"")))
        await reader.read()

    async with ByHand(serve) as server, channel_to(server.target) as channel:
        broken: list[PequodError] = []

        def take_back(unanswered: list[Sending], error: PequodError) -> None:
            assert unanswered == []
            broken.append(error)

        stream = PushedStream(channel.pushed_stream("/s/Execute"), "the server", take_back, lambda _: None)
        await comes(lambda: bool(broken))
        assert isinstance(broken[0], UnavailableError)
        assert "a batch that was not sent" in str(broken[0])
        await stream.close()
