"""Reaching the server, or not: TLS, client certificates, and plain text where it is not wanted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from pequod_server import PequodServer, ServerConfig

from pequod import AsyncClient, Client
from pequod.client.credentials import Credentials
from pequod.errors import PermissionDeniedError, SettingError, UnauthenticatedError, UnavailableError
from tests.server.certificates import Authority, Pair
from tests.server.roles import access_text

ACCESS = access_text("web") + '[certificates."web.example.org"]\nrole = "web"\n[certificates.ann]\nrole = "ann"\n'


@dataclass(frozen=True)
class Keys:
    """An authority of servers, one of clients, one that nobody trusts, and what they signed."""

    servers: Authority
    clients: Authority
    strangers: Authority
    server: Pair
    expired_server: Pair
    misnamed_server: Pair
    web: Pair
    ann: Pair
    both: Pair
    other: Pair
    expired: Pair
    forged: Pair


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    def authority(name: str) -> Authority:
        return Authority(tmp_path_factory.mktemp(name), name)

    servers, clients, strangers = map(authority, ("servers", "clients", "strangers"))
    return Keys(
        servers=servers,
        clients=clients,
        strangers=strangers,
        server=servers.sign("server", "localhost"),
        expired_server=servers.sign("old", "localhost", lifetime=timedelta(hours=-1)),
        misnamed_server=servers.sign("elsewhere", "elsewhere.example.org", address="127.0.0.2"),
        web=clients.sign("client 1", "web.example.org"),
        ann=clients.sign("ann"),
        both=clients.sign("ann ", "web.example.org", "ann"),
        other=clients.sign("other", "web.example.org.evil", "xweb.example.org"),
        expired=clients.sign("gone", "web.example.org", lifetime=timedelta(hours=-1)),
        forged=strangers.sign("forged", "web.example.org"),
    )


Start = Callable[..., Any]


@pytest.fixture
async def start(keys: Keys) -> AsyncIterator[Start]:
    """Start servers with settings; they give their targets."""
    servers: list[PequodServer] = []

    async def started(pair: Pair | None = None, **settings: Any) -> str:
        files = {} if pair is None else {"tls_certificate": str(pair.certificate), "tls_key": str(pair.key)}
        options: dict[str, Any] = {"listen": "127.0.0.1:0", "drain_s": 0.5, **files, **settings}
        server = PequodServer(ServerConfig(**options))
        servers.append(server)
        return f"127.0.0.1:{await server.start()}"

    yield started
    for server in servers:
        await server.stop()


async def test_tls_carries_calls(start: Start, keys: Keys) -> None:
    target = await start(keys.server)
    async with AsyncClient(target, ca=keys.servers.path) as client:
        await client.put("a", "1")
        assert await client.get("a") == b"1"
        assert [row async for row in client.scan_iter("a")] == [(b"a", b"1")]
        assert await client.joins() == []


async def test_nothing_is_said_in_plain_text(start: Start, keys: Keys) -> None:
    target = await start(keys.server)
    async with AsyncClient(target, timeout_s=5) as client:
        with pytest.raises(UnavailableError, match="wants TLS"):
            await client.put("a", "1")
    async with AsyncClient(await start(), ca=keys.servers.path, timeout_s=5) as client:
        with pytest.raises(UnavailableError):
            await client.put("a", "1")


async def test_a_client_trusts_only_its_authority_and_the_right_name(start: Start, keys: Keys) -> None:
    for pair, authority in [
        (keys.server, keys.strangers),
        (keys.expired_server, keys.servers),
        (keys.misnamed_server, keys.servers),
        (keys.forged, keys.servers),
    ]:
        async with AsyncClient(await start(pair), ca=authority.path, timeout_s=5) as client:
            with pytest.raises(UnavailableError):
                await client.put("a", "secret")
    async with AsyncClient(await start(keys.server), tls=True, timeout_s=5) as client:
        with pytest.raises(UnavailableError, match="see that `ca`"):
            await client.put("a", "secret")


async def test_only_certificates_of_the_clients_authority_come_in(start: Start, keys: Keys) -> None:
    target = await start(keys.server, tls_client_ca=str(keys.clients.path))
    for pair in (None, keys.forged, keys.expired, keys.server):
        shown = {} if pair is None else {"certificate": pair.certificate, "key": pair.key}
        async with AsyncClient(target, ca=keys.servers.path, timeout_s=5, **shown) as client:  # type: ignore[arg-type]
            with pytest.raises(UnavailableError):
                await client.put("a", "1")
    async with AsyncClient(
        target, ca=keys.servers.path, certificate=keys.other.certificate, key=keys.other.key
    ) as client:
        await client.put("a", "1")


async def test_names_of_certificates_stand_for_roles(start: Start, keys: Keys, tmp_path: Path) -> None:
    access_file = _written(tmp_path / "access.toml", ACCESS)
    target = await start(keys.server, tls_client_ca=str(keys.clients.path), access_file=access_file)

    def connected(pair: Pair, token: str | None = None) -> AsyncClient:
        return AsyncClient(target, ca=keys.servers.path, certificate=pair.certificate, key=pair.key, token=token)

    async with connected(keys.web) as client:
        await client.put("p|bob|0001", "1")
        with pytest.raises(PermissionDeniedError) as denied:
            await client.scan("p|", "p}\0")
        assert (denied.value.role, denied.value.right) == ("web", "read")
        assert (denied.value.first, denied.value.last) == (b"p|", b"p}\0")
        with pytest.raises(PermissionDeniedError, match="'join' on all of"):
            await client.add_join("t|<x> = copy p|<x>")
    async with connected(keys.ann) as client:
        assert await client.scan("t|ann|", "t|ann}") == []
        with pytest.raises(PermissionDeniedError, match="role 'ann' lacks the right 'read' on the key"):
            await client.get("p|bob|0001")
    async with connected(keys.ann, token="web") as client:
        assert await client.get("p|bob|0001") == b"1", "a token goes before a certificate"
    for pair, token, match in [
        (keys.other, None, "knows none of the certificate's names"),
        (keys.both, None, "several roles"),
        (keys.web, "guess", "does not know this token"),
    ]:
        async with connected(pair, token) as client:
            for call in (client.get("p|bob|0001"), client.joins(), _all(client.scan_iter("p|", "p}"))):
                with pytest.raises(UnauthenticatedError, match=match):
                    await call


async def _all(rows: Any) -> list[Any]:
    return [row async for row in rows]


async def test_a_certificate_without_a_client_authority_says_nothing(start: Start, keys: Keys, tmp_path: Path) -> None:
    target = await start(keys.server, access_file=_written(tmp_path / "access.toml", ACCESS))
    async with AsyncClient(target, ca=keys.servers.path, certificate=keys.web.certificate, key=keys.web.key) as client:
        with pytest.raises(UnauthenticatedError, match="PEQUOD_TOKEN"):
            await client.get("p|bob|0001")


async def test_renewed_certificates_serve_the_next_connection(
    start: Start, keys: Keys, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pair = Pair(tmp_path / "cert.pem", tmp_path / "key.pem")

    def install(source: Pair) -> None:
        for path, content in ((pair.certificate, source.certificate), (pair.key, source.key)):
            _written(path, content.read_text())

    install(keys.forged)
    target = await start(pair)
    async with AsyncClient(target, ca=keys.strangers.path) as old:
        await old.put("a", "1")
        _written(pair.key, "half a file")
        async with AsyncClient(target, ca=keys.strangers.path) as client:
            assert await client.get("a") == b"1", "what is broken is not taken"
        assert "the files read before stay in use" in caplog.text
        install(keys.server)
        async with AsyncClient(target, ca=keys.servers.path) as client:
            assert await client.get("a") == b"1"
        assert await old.get("a") == b"1", "connections go on"


def _written(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "pequod.example.org:0"])
async def test_plain_text_stays_on_this_machine(start: Start, listen: str) -> None:
    with pytest.raises(SettingError, match=r"plain text; give --tls-certificate and --tls-key, or --insecure"):
        await start(listen=listen)


async def test_plain_text_goes_further_if_asked_for_by_name(start: Start) -> None:
    target = await start(listen="0.0.0.0:0", insecure=True)
    async with AsyncClient(target) as client:
        await client.put("a", "1")


async def test_settings_that_do_not_fit(start: Start, keys: Keys, tmp_path: Path) -> None:
    locked = tmp_path / "locked.key"
    _lock(keys.server.key, locked)
    certificate, key = str(keys.server.certificate), str(keys.server.key)
    unfit: list[tuple[dict[str, Any], str]] = [
        ({"tls_certificate": certificate}, "tls_key: it goes with tls_certificate"),
        ({"tls_key": key}, "tls_certificate: it goes with tls_key"),
        ({"tls_client_ca": certificate}, "tls_client_ca: .* need TLS"),
        ({"tls_certificate": certificate, "tls_key": key, "insecure": True}, "insecure: "),
        ({"tls_certificate": "/none.pem", "tls_key": key}, "tls_certificate: .*No such file"),
        ({"tls_certificate": certificate, "tls_key": str(keys.web.key)}, "tls_certificate: .*mismatch"),
        ({"tls_certificate": certificate, "tls_key": str(locked)}, "tls_certificate: "),
        ({"tls_certificate": certificate, "tls_key": key, "tls_client_ca": key}, "tls_client_ca: "),
        ({"access_file": "/none.toml"}, "access_file: /none.toml: .*No such file"),
    ]
    for settings, match in unfit:
        with pytest.raises(SettingError, match=match):
            await start(**settings)


def _lock(source: Path, to: Path) -> None:
    key = serialization.load_pem_private_key(source.read_bytes(), None)
    how = serialization.BestAvailableEncryption(b"password")
    to.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how))


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("x = [", "at end of document|line 1"),
        ("[rols.web]", "rols: "),
        ('[roles.web]\nreed = ["t|"]', r"roles\.web\.reed"),
        ('[roles.web]\nread = "t|"', r"roles\.web\.read: .*list"),
        ("[roles.web]\nread = [7]", r"roles\.web\.read\.0"),
        ('[tokens.a]\nrole = "web"\nsha256 = "' + "0" * 64 + '"', r"tokens\.a\.role: there is no role 'web'"),
        ('[certificates.a]\nrole = "web"', r"certificates\.a\.role: there is no role 'web'"),
        ('[roles.web]\n[tokens.a]\nrole = "web"\nsha256 = "pqd_plain"', r"tokens\.a\.sha256"),
        ('[roles.web]\n[tokens.a]\nrole = "web"', r"tokens\.a\.sha256: .*is missing"),
        (ACCESS + access_text("web").replace("tokens.web", "tokens.again")[len(access_text()) :], "another token has"),
    ],
)
def test_access_files_that_are_not_right(tmp_path: Path, text: str, match: str) -> None:
    with pytest.raises(SettingError, match=match) as refused:
        PequodServer(ServerConfig(access_file=Path(_written(tmp_path / "access.toml", text))))
    assert "pqd_plain" not in str(refused.value), "what may be a token is not shown"


@pytest.mark.parametrize("make", [Client, AsyncClient])
def test_clients_refuse_what_is_not_safe(make: Any, keys: Keys, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"token: it would go to pequod\.example\.org:7744 in plain text"):
        make("pequod.example.org:7744", token="secret")
    with pytest.raises(SettingError, match=r"token: .*line break"):
        make(token="secret\n")
    assert "secret" not in repr(Credentials(token="secret"))
    with pytest.raises(SettingError, match="key: "):
        make(certificate=keys.web.certificate)
    with pytest.raises(SettingError, match=r"ca: .*No such file"):
        make(ca=tmp_path / "none.pem")
