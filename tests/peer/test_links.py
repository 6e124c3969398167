"""Links from a compute to its homes: the same by each transport, with TLS, and cut where the network is silent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_server import ServerConfig
from pequod_server.homes.compute import channel as channels
from pequod_server.homes.compute.channel import GrpcPeerChannel, PeerChannel, PeerCredentials
from pequod_server.stores import peer_credentials

from pequod.errors import BackingUnavailableError, SettingError
from pequod.native.http2 import why_absent
from pequod.wire.channel import NativeChannel
from tests.client.relay import Relay
from tests.peer.homes import LATEST, Running, computing, expected, rows_of, running, until
from tests.peer.test_wire import hello
from tests.server.certificates import Authority

native = pytest.mark.skipif(why_absent() is not None, reason="there is no native transport")
EACH = pytest.mark.parametrize("transport", [pytest.param("native", marks=native), "grpcio"])


def carrier(channel: PeerChannel) -> object:
    assert isinstance(channel, GrpcPeerChannel)
    return channel._channel


async def position_of(home: Running, credentials: PeerCredentials) -> pb.PeerPositionReply:
    channel = credentials.connect(home.address)
    try:
        return await channel.position(pb.PeerPositionRequest())
    finally:
        await channel.close()


@native
async def test_links_go_by_the_transport_of_the_server() -> None:
    for transport, kind in (("auto", NativeChannel), ("native", NativeChannel), ("grpcio", aio.Channel)):
        credentials = peer_credentials(ServerConfig(transport=transport))  # type: ignore[arg-type]
        channel = credentials.connect("127.0.0.1:1")
        assert isinstance(carrier(channel), kind)
        await channel.close()


@native
async def test_what_only_grpc_knows_goes_by_it_unless_the_native_one_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    several = "ipv4:127.0.0.1:1,127.0.0.1:2"
    channel = PeerCredentials().connect(several)
    assert isinstance(carrier(channel), aio.Channel)
    await channel.close()
    with pytest.raises(SettingError, match="does not know the way"):
        PeerCredentials(transport="native").connect(several)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    channel = PeerCredentials().connect("home.example:1")
    assert isinstance(carrier(channel), NativeChannel), "links between servers go through no proxy"
    await channel.close()


@EACH
async def test_a_compute_loads_follows_and_writes(transport: str) -> None:
    async with running() as home, computing([home.address], transport=transport) as compute:
        rows = {b"s|ann|bob": b"", b"p|bob|0001": b"Hi"}
        await home.client.multi_put(rows)
        assert await rows_of(compute, "t|ann|", freshness=LATEST) == expected(rows.items(), b"ann")
        rows[b"p|bob|0002"] = b"There"
        await compute.client.put(b"p|bob|0002", b"There")
        assert await rows_of(compute, "t|ann|", freshness=LATEST) == expected(rows.items(), b"ann")
        assert await home.client.get(b"p|bob|0002") == b"There"


@EACH
async def test_a_feed_that_is_read_no_more_ends_at_the_home(transport: str) -> None:
    async with running() as home:
        channel = PeerCredentials(transport=transport).connect(home.address)

        async def requests() -> AsyncIterator[pb.PeerFeedRequest]:
            yield hello(7)
            await asyncio.Event().wait()

        feeds = home.server.peers.feeds
        async with aclosing(channel.feed(requests())) as replies:  # type: ignore[type-var]
            await anext(replies)
            assert list(feeds) == [7]
        await until(lambda: not feeds)
        names = {task.get_name() for task in asyncio.all_tasks()}
        assert "pequod requests of a feed" not in names
        await channel.close()


@EACH
async def test_certificates_of_both_ends_are_asked_for(transport: str, tmp_path: Path) -> None:
    authority, other = Authority(tmp_path, "authority"), Authority(tmp_path, "other")
    server, compute = authority.sign("home", "localhost"), authority.sign("compute")
    files: dict[str, Any] = {
        "tls_certificate": str(server.certificate),
        "tls_key": str(server.key),
        "tls_client_ca": str(authority.path),
    }
    own: dict[str, Any] = {"certificate": compute.certificate, "key": compute.key, "transport": transport}
    async with running(**files) as home:
        assert (await position_of(home, PeerCredentials(ca=authority.path, **own))).HasField("place")
        stranger = PeerCredentials(ca=authority.path, transport=transport)
        for wrong in (stranger, PeerCredentials(ca=other.path, **own)):
            with pytest.raises(BackingUnavailableError):
                await position_of(home, wrong)


@native
async def test_a_home_behind_a_silent_network_is_found_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "_KEEPALIVE_S", 0.1)
    async with running() as home, Relay(home.address) as relay:
        channel = PeerCredentials().connect(relay.target)
        await channel.position(pb.PeerPositionRequest())
        relay.passing.clear()
        with pytest.raises(BackingUnavailableError, match="the server gave no sign of life"):
            await channel.position(pb.PeerPositionRequest())
        await channel.close()
