"""Who may use the door for HTTP: tokens and rights, pages of other origins, other machines, TLS."""

import asyncio
import ssl
from hashlib import sha256
from pathlib import Path

import aiohttp
import pytest
from pequod_server import PequodServer, ServerConfig

from pequod.errors import SettingError
from tests.gateway.doors import Reader, events_of, opened
from tests.server.certificates import Authority

ACCESS = f"""
[roles.ann]
read = ["t|ann|"]

[roles.web]
read = ["p|"]
write = ["p|"]

[tokens.ann]
role = "ann"
sha256 = "{sha256(b"ann's").hexdigest()}"

[tokens.web]
role = "web"
sha256 = "{sha256(b"web's").hexdigest()}"
"""


@pytest.fixture
def access(tmp_path: Path) -> Path:
    path = tmp_path / "access.toml"
    path.write_text(ACCESS)
    path.chmod(0o600)
    return path


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_calls_need_a_token_and_its_rights(access: Path) -> None:
    async with opened(access_file=access) as (server, client):
        async with client.get("/v1/keys/p|1") as reply:
            assert (reply.status, reply.headers["WWW-Authenticate"]) == (401, "Bearer")
            assert "the header `Authorization: Bearer TOKEN`" in (await reply.json())["error"]["message"]
        async with client.get("/v1/keys/p|1", headers=_bearer("nobody's")) as reply:
            assert (reply.status, (await reply.json())["error"]["reason"]) == (401, "UnauthenticatedError")
        async with client.put("/v1/keys/p|1", json={"value": "x"}, headers=_bearer("ann's")) as reply:
            members = await reply.json()
        assert (reply.status, members["error"]["facts"]["role"]) == (403, "ann")
        assert server.engine.get(b"p|1") is None
        async with client.put("/v1/keys/p|1", json={"value": "x"}, headers=_bearer("web's")) as reply:
            assert reply.status == 200
        async with client.get("/v1/scan?prefix=t|", headers=_bearer("web's")) as reply:
            assert reply.status == 403


async def test_a_watch_needs_the_right_to_read_while_it_lasts(access: Path) -> None:
    async with opened(access_file=access) as (server, client):
        for query, headers in (("", {}), ("&access_token=web's", {}), ("", _bearer("web's"))):
            async with client.get(f"/v1/watch?prefix=t|ann|{query}", headers=headers) as reply:
                assert reply.status == (403 if query or headers else 401)
        async with client.get("/v1/watch?prefix=t|ann|&access_token=ann's") as reply:
            events, reader = events_of(reply), Reader()
            while not reader.is_ready:
                reader.take(await anext(events))
            await asyncio.to_thread(access.write_text, ACCESS.replace('read = ["t|ann|"]', 'read = ["t|bob|"]'))
            server.reload()
            server.engine.put(b"t|ann|1", b"secret")
            last = [event async for event in events]
        assert [(event.kind, event.members["code"]) for event in last] == [("end", "PERMISSION_DENIED")]


async def test_pages_of_the_named_origins_may_read_replies_and_no_others() -> None:
    page = "https://example.org"
    asks = {"Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "content-type"}
    async with opened(http_origins=page) as (_, client):
        async with client.options("/v1/keys/k", headers=asks | {"Origin": page}) as reply:
            assert reply.status == 204
            assert reply.headers["Access-Control-Allow-Origin"] == page
            assert "PUT" in reply.headers["Access-Control-Allow-Methods"]
        async with client.options("/v1/keys/k", headers=asks | {"Origin": "https://evil.example"}) as reply:
            assert (reply.status, "Access-Control-Allow-Origin" in reply.headers) == (403, False)
        for origin, is_open in ((page, True), ("https://evil.example", False)):
            for path in ("/v1/joins", "/v1/keys/none", "/v1/nothing", "/v1/watch?prefix=a"):
                async with client.get(path, headers={"Origin": origin}) as reply:
                    assert ("Access-Control-Allow-Origin" in reply.headers) == is_open, path


@pytest.mark.parametrize("origins", ["x.org", "https://x.org/", "https://x.org, https://y.org", "https://x.org:443"])
def test_origins_that_no_browser_sends_are_refused(origins: str) -> None:
    with pytest.raises(ValueError, match="origins with spaces between"):
        ServerConfig(http_origins=origins)


async def test_a_page_with_a_name_of_its_own_for_this_machine_is_refused() -> None:
    async with opened() as (server, client):
        for method, path in (("GET", "/v1/joins"), ("DELETE", "/v1/range?prefix=k"), ("GET", "/v1/watch?prefix=a")):
            async with client.request(method, path, headers={"Host": "evil.example:7780"}) as reply:
                assert (reply.status, "evil.example" in (await reply.json())["error"]["message"]) == (403, True)
        async with client.get("/v1/joins", headers={"Host": "localhost:1"}) as reply:
            assert reply.status == 200
        assert server.engine.revision == 0


@pytest.mark.parametrize(("has_tokens", "missing"), [(False, "--access-file"), (True, "--tls-certificate")])
def test_other_machines_reach_it_with_tokens_and_tls_alone(access: Path, missing: str, *, has_tokens: bool) -> None:
    config = ServerConfig(listen="127.0.0.1:0", http="0.0.0.0:0", access_file=access if has_tokens else None)
    with pytest.raises(SettingError, match=missing):
        _made(config)


def _made(config: ServerConfig) -> None:
    async def make() -> None:
        PequodServer(config)

    asyncio.run(make())


async def test_it_talks_tls_where_the_server_does_and_follows_the_files(tmp_path: Path) -> None:
    first, second = Authority(tmp_path, "first"), Authority(tmp_path, "second")
    pair = first.sign("server", "localhost")
    async with opened(tls_certificate=pair.certificate, tls_key=pair.key) as (server, _):
        assert server.http_url.startswith("https://127.0.0.1:")
        assert await _status(server, first) == 200
        renewed = second.sign("renewed", "localhost")
        pair.key.write_bytes(renewed.key.read_bytes())
        pair.certificate.write_bytes(renewed.certificate.read_bytes())
        assert await _status(server, second) == 200


async def _status(server: PequodServer, authority: Authority) -> int:
    context = ssl.create_default_context(cafile=authority.path)
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as client,
        client.get(f"{server.http_url}/v1/joins") as reply,
    ):
        return reply.status


async def test_an_address_that_is_taken_is_named() -> None:
    async with opened() as (server, _):
        address = server.http_url.removeprefix("http://")
        other = PequodServer(ServerConfig(listen="127.0.0.1:0", http=address))
        with pytest.raises(OSError, match=f"cannot listen on {address} for HTTP"):
            await other.start()
