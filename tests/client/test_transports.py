"""Which transport a client takes: what it is told, what the environment says, what is there; TLS on the native one."""

from pathlib import Path

import pytest
from grpc import aio

from pequod import AsyncClient, Client
from pequod.client import transports
from pequod.client.credentials import Credentials
from pequod.client.transports import VARIABLE, native_place
from pequod.errors import SettingError
from pequod.native.http2 import why_absent
from pequod.wire.channel import NativeChannel
from pequod.wire.places import place_of
from tests.client.conftest import ServerProcess
from tests.server.certificates import Authority

native = pytest.mark.skipif(why_absent() is not None, reason="there is no native transport")
REMOTE = "cache.example:7744"


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a transport nor a proxy in the environment."""
    for variable in (VARIABLE, "grpc_proxy", "https_proxy", "http_proxy"):
        monkeypatch.delenv(variable, raising=False)


@native
def test_a_client_is_told_or_the_environment_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert native_place("grpcio", REMOTE) is None
    assert native_place("native", REMOTE) == native_place("auto", REMOTE) == place_of(REMOTE)
    monkeypatch.setenv(VARIABLE, "native")
    assert native_place("", REMOTE) == place_of(REMOTE)
    assert native_place("grpcio", REMOTE) is None
    monkeypatch.setenv(VARIABLE, "grpcio")
    assert native_place("", REMOTE) is None


def test_a_transport_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingError, match="there is no transport 'quic'; there are auto, native, grpcio"):
        Client(transport="quic")
    monkeypatch.setenv(VARIABLE, "quic")
    with pytest.raises(SettingError, match="quic"):
        AsyncClient()


def test_without_the_library_auto_means_that_of_grpc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transports, "why_absent", lambda: "the library is not there")
    assert native_place("auto", REMOTE) is None
    with pytest.raises(SettingError, match="the library is not there"):
        native_place("native", REMOTE)


@native
def test_addresses_and_proxies_that_only_grpc_knows_are_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for target in ("xds:///cache", "vsock:1:2", "ipv4:10.0.0.1:1,10.0.0.2:1"):
        assert native_place("auto", target) is None
        with pytest.raises(SettingError, match="does not know the way"):
            native_place("native", target)
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    assert native_place("auto", REMOTE) is None
    assert native_place("auto", "127.0.0.1:7744") == place_of("127.0.0.1:7744")
    assert native_place("native", REMOTE) == place_of(REMOTE)


@native
def test_each_kind_of_address_is_found() -> None:
    found = {target: place_of(target) for target in ("dns:///cache:1", "dns:cache", "ipv6:[::1]:9", "unix-abstract:a")}
    assert {target: place and (place.host, place.port, place.path) for target, place in found.items()} == {
        "dns:///cache:1": ("cache", 1, ""),
        "dns:cache": ("cache", 443, ""),
        "ipv6:[::1]:9": ("::1", 9, ""),
        "unix-abstract:a": ("", 0, "\0a"),
    }


@native
async def test_the_transport_that_was_chosen_carries_the_calls(server: ServerProcess) -> None:
    for transport, kind in (("native", NativeChannel), ("grpcio", aio.Channel)):
        async with AsyncClient(server.target, transport=transport) as client:
            await client.put("a", transport)
            assert await client.get("a") == transport.encode()
            assert isinstance(client._link._channel, kind)  # type: ignore[attr-defined]
    with Client(server.target, transport="native") as blocking:
        assert blocking.get("a") == b"grpcio"


@native
def test_files_of_tls_that_hold_something_else_are_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    pair, other = authority.sign("one"), authority.sign("two")
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate\n")

    def connector(**settings: Path) -> None:
        Credentials(transport="native", **settings).connector(REMOTE, [])  # type: ignore[arg-type]

    connector(ca=authority.path, certificate=pair.certificate, key=pair.key)
    with pytest.raises(SettingError, match="holds no certificate"):
        connector(ca=wrong)
    with pytest.raises(SettingError, match="do not fit"):
        connector(certificate=pair.certificate, key=other.key)
    with pytest.raises(SettingError, match="No such file"):
        connector(certificate=pair.certificate, key=tmp_path / "none.key")
