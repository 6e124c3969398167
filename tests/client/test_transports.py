"""Which transport a client takes: what it is told, what the environment says, what is there; TLS on the native one."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from grpc import aio

from pequod import AsyncClient, Client
from pequod.client.credentials import Credentials
from pequod.client.transports import VARIABLE, choice_of
from pequod.errors import SettingError
from pequod.native.http2 import why_absent
from pequod.wire import choice
from pequod.wire.channel import NativeChannel
from pequod.wire.choice import Choice
from pequod.wire.places import place_of
from tests.client.conftest import ServerProcess
from tests.server.certificates import Authority

native = pytest.mark.skipif(why_absent() is not None, reason="there is no native transport")
REMOTE = "cache.example:7744"


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a transport nor a proxy in the environment."""
    for variable in (VARIABLE, "grpc_proxy", "https_proxy", "http_proxy", "GRPC_ADDRESS_HTTP_PROXY"):
        monkeypatch.delenv(variable, raising=False)


@native
def test_a_client_is_told_or_the_environment_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    there = Choice(place_of(REMOTE))
    assert choice_of("grpcio", REMOTE) == Choice(None)
    assert choice_of("native", REMOTE) == choice_of("auto", REMOTE) == choice_of("", REMOTE) == there
    assert (there.name, Choice(None).name) == ("native", "grpcio")
    monkeypatch.setenv(VARIABLE, "grpcio")
    assert choice_of("", REMOTE) == Choice(None)
    assert choice_of("native", REMOTE) == choice_of("auto", REMOTE) == there
    monkeypatch.setenv(VARIABLE, "native")
    assert choice_of("", REMOTE) == there


def test_a_transport_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingError, match="there is no transport 'quic'; there are auto, native, grpcio"):
        Client(transport="quic")
    monkeypatch.setenv(VARIABLE, "quic")
    with pytest.raises(SettingError, match="quic"):
        AsyncClient()


def test_without_the_library_auto_means_that_of_grpc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "why_absent", lambda: "without the library")
    assert choice_of("auto", REMOTE) == Choice(None, "there is no native transport without the library")
    with pytest.raises(SettingError, match="there is no native transport without the library"):
        choice_of("native", REMOTE)


@native
@pytest.mark.parametrize(
    "target",
    ["xds:///cache", "vsock:1:2", "ipv4:10.0.0.1:1,10.0.0.2:1", "dns://10.0.0.53/cache:1", "ipv6:%5B::1%5D:9"],
)
def test_addresses_that_only_grpc_knows_are_left_to_it(target: str) -> None:
    assert choice_of("auto", target) == Choice(None, f"the native transport does not know the way to {target}")
    with pytest.raises(SettingError, match="does not know the way"):
        choice_of("native", target)


@native
@pytest.mark.parametrize("variable", ["grpc_proxy", "https_proxy", "http_proxy", "GRPC_ADDRESS_HTTP_PROXY"])
def test_proxies_are_left_to_grpc_but_for_this_machine(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "http://proxy.example:3128")
    assert choice_of("auto", REMOTE) == Choice(None, f"the native transport does not do what {variable} asks for")
    for target in ("127.0.0.1:7744", "localhost:7744", "unix:/run/pequod.sock"):
        assert choice_of("auto", target) == Choice(place_of(target))
    assert choice_of("native", REMOTE) == Choice(place_of(REMOTE))


@native
def test_ciphers_of_grpc_are_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPC_SSL_CIPHER_SUITES", "ECDHE-RSA-AES256-GCM-SHA384")
    assert choice_of("auto", REMOTE) == Choice(place_of(REMOTE)), "there is no TLS"
    assert choice_of("auto", REMOTE, has_tls=True).name == "grpcio"


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
    for transport, kind in (("native", NativeChannel), ("grpcio", aio.Channel), ("", NativeChannel)):
        async with AsyncClient(server.target, transport=transport) as client:
            await client.put("a", transport)
            assert await client.get("a") == transport.encode()
            assert isinstance(client._link._channel, kind)  # type: ignore[attr-defined]
    with Client(server.target, transport="native") as blocking:
        assert blocking.get("a") == b""


@pytest.mark.parametrize("transport", ["grpcio", pytest.param("native", marks=native)])
def test_files_of_tls_that_hold_something_else_are_refused(tmp_path: Path, transport: str) -> None:
    authority = Authority(tmp_path, "authority")
    pair, other = authority.sign("one"), authority.sign("two")
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate\n")
    locked = tmp_path / "locked.key"
    own = serialization.load_pem_private_key(pair.key.read_bytes(), None)
    how = serialization.BestAvailableEncryption(b"secret")
    locked.write_bytes(own.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how))

    def connector(**settings: Path) -> None:
        Credentials(transport=transport, **settings).connector(REMOTE, [])  # type: ignore[arg-type]

    connector(ca=authority.path, certificate=pair.certificate, key=pair.key)
    with pytest.raises(SettingError, match="holds no certificate"):
        connector(ca=wrong)
    with pytest.raises(SettingError, match="do not fit"):
        connector(certificate=pair.certificate, key=other.key)
    with pytest.raises(SettingError, match="do not fit"):
        connector(certificate=pair.certificate, key=locked)
    with pytest.raises(SettingError, match="No such file"):
        connector(certificate=pair.certificate, key=tmp_path / "none.key")
