"""The native channel to gRPC's own server: calls of all kinds, errors, deadlines, cancels, TLS, Unix sockets."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from pequod.native.http2 import why_absent
from pequod.wire.channel import NativeChannel
from tests.server.certificates import Authority
from tests.wire.echoing import ECHO, Echo, channel_to, comes, echoing

pytestmark = pytest.mark.skipif(why_absent() is not None, reason="there is no native transport")


@pytest.fixture
async def echo() -> AsyncIterator[tuple[Echo, NativeChannel]]:
    async with echoing() as (echo, target, _), channel_to(target) as channel:
        yield echo, channel


Both = tuple[Echo, NativeChannel]


async def test_a_call_has_its_reply_its_metadata_and_its_deadline(echo: Both) -> None:
    methods, channel = echo
    metadata = (("authorization", "Bearer x"), ("x-raw-bin", b"\0\xff"))
    call = channel.unary_unary(ECHO + "Say")(b"hello", timeout=20, metadata=metadata)
    assert await call == b"hello"
    assert await call == b"hello"
    assert (await call.code(), await call.details(), call.done()) == (grpc.StatusCode.OK, "", True)
    assert methods.metadata["authorization"] == "Bearer x"
    assert methods.metadata["x-raw-bin"] == b"\0\xff"
    assert methods.metadata["user-agent"].startswith("grpc-pequod-native/")
    assert 0 < methods.metadata["time"] <= 20
    assert channel.get_state() is grpc.ChannelConnectivity.READY


async def test_messages_are_made_and_read_by_the_functions_of_the_stub(echo: Both) -> None:
    _, channel = echo
    say = channel.unary_unary(ECHO + "Say", str.encode, bytes.decode)
    assert await say("hello") == "hello"
    many = channel.unary_stream(ECHO + "Many", str.encode, bytes.decode)
    assert [message async for message in many("2 0 end")] == ["0", "1"]


async def test_an_error_has_its_code_its_text_and_its_metadata(echo: Both) -> None:
    _, channel = echo
    with pytest.raises(aio.AioRpcError) as caught:
        await channel.unary_unary(ECHO + "Say")(b"fail")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert caught.value.details() == "100 % gone: käse"
    assert set(caught.value.trailing_metadata()) >= {("x-why-bin", b"\0\1"), ("x-word", "no")}
    with pytest.raises(aio.AioRpcError) as caught:
        await channel.unary_unary("/echo.Echo/Nothing")(b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_late_call_ends_and_the_server_hears_of_it(echo: Both) -> None:
    methods, channel = echo
    with pytest.raises(aio.AioRpcError) as caught:
        await channel.unary_unary(ECHO + "Say")(b"hang", timeout=0.05)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await methods.cancelled.wait()
    call = channel.unary_stream(ECHO + "Many")(b"1 0 hang", timeout=0.2)
    assert await call.read() == b"0"
    with pytest.raises(aio.AioRpcError) as caught:
        await call.read()
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_caller_that_is_cancelled_cancels_its_call(echo: Both) -> None:
    methods, channel = echo
    call = channel.unary_unary(ECHO + "Say")(b"hang")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await call
    assert call.cancelled()
    await methods.cancelled.wait()
    methods.cancelled.clear()
    stream = channel.unary_stream(ECHO + "Many")(b"1 0 hang")
    assert await stream.read() == b"0"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await stream.read()
    assert stream.cancelled()
    await methods.cancelled.wait()


async def test_a_call_that_is_cancelled_says_so_to_whoever_waits(echo: Both) -> None:
    methods, channel = echo
    stream = channel.unary_stream(ECHO + "Many")(b"1 0 hang")
    assert await stream.read() == b"0"
    # Its handler may still send what has come already: then it would not see the end.
    await methods.hangs.wait()
    seen: list[Any] = []
    stream.add_done_callback(seen.append)
    reading = asyncio.ensure_future(stream.read())
    await asyncio.sleep(0)
    assert stream.cancel()
    assert not stream.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert seen == [stream]
    assert await stream.code() is grpc.StatusCode.CANCELLED
    await methods.cancelled.wait()


async def test_a_stream_of_replies_ends_or_fails_behind_its_messages(echo: Both) -> None:
    _, channel = echo
    many = channel.unary_stream(ECHO + "Many")
    assert [len(message) async for message in many(b"50 20000 end")] == [20001] * 10 + [20002] * 40
    call = many(b"3 0 fail")
    assert [await call.read() for _ in range(3)] == [b"0", b"1", b"2"]
    for _ in range(2):
        with pytest.raises(aio.AioRpcError) as caught:
            await call.read()
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    call = many(b"0 0 end")
    assert [await call.read(), await call.read()] == [aio.EOF] * 2


async def test_messages_that_nobody_reads_wait_at_the_server(echo: Both) -> None:
    _, channel = echo
    call = channel.unary_stream(ECHO + "Many")(b"100 100000 end")
    assert await call.read() == b"0" + bytes(100_000)
    (connection,) = channel._connections
    say = channel.unary_unary(ECHO + "Say")
    for _ in range(50):
        assert await say(b"between") == b"between"
    assert connection.session.unread_bytes <= 1 << 20
    assert sum([1 async for _ in call]) == 99
    assert connection.session.unread_bytes == 0


async def test_both_sides_may_stream(echo: Both) -> None:
    _, channel = echo
    call = channel.stream_stream(ECHO + "Talk")()
    for number in range(20):
        await call.write(b"%d" % number)
        assert await call.read() == b"%d" % number
    long = bytes(range(256)) * 8000
    writing = asyncio.ensure_future(call.write(long))
    assert await call.read() == long
    await writing
    await call.done_writing()
    assert await call.read() is aio.EOF
    with pytest.raises(asyncio.InvalidStateError):
        await call.write(b"more")


async def test_a_request_that_is_refused_in_its_middle_says_why(echo: Both) -> None:
    _, channel = echo
    call = channel.stream_stream(ECHO + "Talk")()
    await call.write(b"fail")
    with pytest.raises(aio.AioRpcError) as caught:
        await call.read()
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "enough")
    with pytest.raises(asyncio.InvalidStateError):
        await call.write(b"more")
    call = channel.stream_stream(ECHO + "Talk")()
    await call.write(b"end")
    assert await call.read() is aio.EOF


async def test_hundreds_of_calls_at_once_all_end_well(echo: Both) -> None:
    _, channel = echo
    say = channel.unary_unary(ECHO + "Say")
    replies = await asyncio.gather(*(say(b"%d" % number, timeout=60) for number in range(900)))
    assert replies == [b"%d" % number for number in range(900)]


async def test_more_calls_than_a_server_takes_at_a_time_wait_their_turn() -> None:
    async with echoing(settings=[("grpc.max_concurrent_streams", 3)]) as (_, target, _), channel_to(target) as channel:
        say = channel.unary_unary(ECHO + "Say")
        assert await asyncio.gather(*(say(b"%d" % at) for at in range(50))) == [b"%d" % at for at in range(50)]


async def test_replies_may_be_compressed() -> None:
    async with echoing(compression=grpc.Compression.Gzip) as (_, target, _), channel_to(target) as channel:
        text = b"so much to say " * 1000
        assert await channel.unary_unary(ECHO + "Say")(text) == text
        call = channel.stream_stream(ECHO + "Talk")()
        await call.write(text)
        assert await call.read() == text


async def test_a_reply_beyond_the_limit_ends_its_call_alone(echo: Both) -> None:
    methods, open_channel = echo
    async with channel_to(open_channel._place.authority, message_bytes_max=1000) as channel:
        call = channel.unary_stream(ECHO + "Many")(b"1 10 hang")
        assert await call.read() == b"0" + bytes(10)
        with pytest.raises(aio.AioRpcError) as caught:
            await channel.unary_unary(ECHO + "Say")(bytes(1001))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert caught.value.details() == "CLIENT: Received message larger than max (1001 vs. 1000)"
        with pytest.raises(aio.AioRpcError) as caught:
            await channel.unary_stream(ECHO + "Many")(b"1 2000 end").read()
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await channel.unary_unary(ECHO + "Say")(bytes(1000)) == bytes(1000)
        assert call.cancel()
    await methods.cancelled.wait()


async def test_closing_cancels_calls_and_refuses_others(echo: Both) -> None:
    methods, channel = echo
    call = channel.unary_unary(ECHO + "Say")(b"hang")
    waiting = asyncio.ensure_future(_result(call))
    await comes(lambda: methods.begun > 0)
    await channel.close()
    await channel.close()
    assert await waiting == "cancelled"
    assert channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.SHUTDOWN
    with pytest.raises(aio.UsageError):
        channel.unary_unary(ECHO + "Say")(b"")


async def _result(call: Any) -> str:
    try:
        await call
    except asyncio.CancelledError:
        return "cancelled"
    return "done"


def contexts(folder: Path) -> tuple[grpc.ServerCredentials, ssl.SSLContext, ssl.SSLContext]:
    """Return what a server has that asks for certificates, and a client with one and without."""
    authority = Authority(folder, "authority")
    server, client = authority.sign("server", "localhost"), authority.sign("client")
    pair = (server.key.read_bytes(), server.certificate.read_bytes())
    credentials = grpc.ssl_server_credentials([pair], authority.path.read_bytes(), require_client_auth=True)
    made = []
    for _ in range(2):
        context = ssl.create_default_context(cafile=authority.path)
        context.set_alpn_protocols(["h2"])
        made.append(context)
    made[0].load_cert_chain(client.certificate, client.key)
    return credentials, made[0], made[1]


async def test_both_sides_may_show_certificates(tmp_path: Path) -> None:
    credentials, known, unknown = contexts(tmp_path)
    async with echoing(credentials) as (_, target, _):
        async with channel_to(target, known) as channel:
            assert await channel.unary_unary(ECHO + "Say")(bytes(300_000)) == bytes(300_000)
        async with channel_to(target, unknown) as channel:
            with pytest.raises(aio.AioRpcError) as caught:
                await channel.unary_unary(ECHO + "Say")(b"", timeout=10)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        async with channel_to(target, ssl.create_default_context()) as channel:
            with pytest.raises(aio.AioRpcError, match="CERTIFICATE_VERIFY_FAILED"):
                await channel.unary_unary(ECHO + "Say")(b"")


async def test_a_server_without_http_2_over_tls_is_none(tmp_path: Path) -> None:
    pair = Authority(tmp_path, "authority").sign("server", "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    trusting.set_alpn_protocols(["h2"])
    async with channel_to(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", trusting) as channel:
        with pytest.raises(aio.AioRpcError, match="does not offer HTTP/2"):
            await channel.unary_unary(ECHO + "Say")(b"")
    server.close()
    await server.wait_closed()


async def test_a_unix_socket_leads_to_a_server(tmp_path: Path) -> None:
    async with echoing(address=f"unix:{tmp_path}/echo.sock") as (_, target, _), channel_to(target) as channel:
        assert await channel.unary_unary(ECHO + "Say")(b"hello") == b"hello"
