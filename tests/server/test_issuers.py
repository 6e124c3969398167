"""JSON Web Tokens of an issuer: who is let in, with which role and for how long, over each transport and HTTP."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from grpc import aio
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server import PequodServer, ServerConfig

from pequod import AsyncClient
from pequod.errors import PermissionDeniedError, SettingError, UnauthenticatedError
from tests.server.conftest import TRANSPORTS
from tests.server.issuing import AUDIENCE, ISSUER, Issuer, access_text, issuing
from tests.server.roles import rewrite


class Door:
    """A server that takes tokens of an issuer, and clients of it."""

    def __init__(self, server: PequodServer, port: int, issuer: Issuer, access_file: Path) -> None:
        self.server, self.port, self.issuer, self.access_file = server, port, issuer, access_file

    def pass_on(self, seconds: float) -> None:
        """Let time pass, as tokens see it."""
        assert self.server.guard is not None
        self.server.guard.access.clock = lambda: time.time() + seconds

    async def get(self, token: str) -> bytes | None:
        """Read a key over a connection of its own."""
        async with AsyncClient(f"127.0.0.1:{self.port}", token=token, retries=0) as client:
            return await client.get("p|1")

    async def why_not(self, token: str) -> str:
        """Return why a token is refused, over gRPC and over HTTP alike."""
        with pytest.raises(UnauthenticatedError) as raised:
            await self.get(token)
        async with ClientSession() as session:
            headers = {"Authorization": f"Bearer {token}"}
            async with session.get(f"{self.server.http_url}/v1/keys/p|1", headers=headers) as reply:
                assert reply.status == 401
                assert (await reply.json())["error"]["message"] == str(raised.value)
        assert token not in str(raised.value)
        return str(raised.value)


@pytest.fixture(params=TRANSPORTS)
async def door(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Door]:
    async with issuing() as issuer:
        path = tmp_path / "access.toml"
        path.write_text(access_text(issuer.url, more="leeway_s = 0"))
        config = ServerConfig(
            listen="127.0.0.1:0", http="127.0.0.1:0", drain_s=0.5, access_file=path, transport=request.param
        )
        server = PequodServer(config)
        port = await server.start()
        server.engine.put(b"p|1", b"one")
        yield Door(server, port, issuer, path)
        await server.stop()


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0.005)


async def test_the_claim_names_the_role(door: Door) -> None:
    assert door.issuer.fetches == 1, "at the start"
    claims: tuple[object, ...] = ("web", ["web"], ["others", "web", 7], "openid web profile")
    for claim in claims:
        assert await door.get(door.issuer.token(groups=claim)) == b"one"
    with pytest.raises(PermissionDeniedError) as raised:
        await door.get(door.issuer.token(groups=["operator"]))
    assert raised.value.role == "operator"
    assert door.issuer.fetches == 1


async def test_http_takes_the_same_tokens(door: Door) -> None:
    url = f"{door.server.http_url}/v1/keys/p|1"
    async with ClientSession() as session:
        async with session.get(url, headers={"Authorization": f"Bearer {door.issuer.token()}"}) as reply:
            assert (reply.status, (await reply.json())["value"]) == (200, "one")
        async with session.get(
            f"{door.server.http_url}/v1/joins", headers={"Authorization": f"Bearer {door.issuer.token(groups=[])}"}
        ) as reply:
            assert reply.status == 401


async def test_who_has_no_role_or_several_is_told_so(door: Door) -> None:
    claims: tuple[object, ...] = (None, [], "other", 7, {"web": 1})
    for claim in claims:
        assert "the claim groups of the token of company names no role" in await door.why_not(
            door.issuer.token(groups=claim)
        )
    said = await door.why_not(door.issuer.token(groups=["web", "operator"]))
    assert "names several roles (web, operator)" in said


async def test_a_token_for_somebody_else_or_of_another_time_is_refused(door: Door) -> None:
    token, now = door.issuer.token, int(time.time())
    assert "has expired; get a new one" in await door.why_not(token(lasts_s=-1))
    assert "its claim aud; it has to be for 'pequod'" in await door.why_not(token(aud="another"))
    assert "lacks a claim: aud" in await door.why_not(token(aud=None))
    assert "lacks a claim: exp" in await door.why_not(token(exp=None))
    assert "its claim nbf" in await door.why_not(token(nbf=now + 600))
    assert "its claim exp" in await door.why_not(token(exp="tomorrow"))
    assert "is of an issuer that the access file does not name" in await door.why_not(token(iss="https://example.com"))
    assert await door.get(token(aud=["another", AUDIENCE])) == b"one"


def _part(members: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(members).encode()).rstrip(b"=").decode()


async def test_a_forged_token_is_refused(door: Door) -> None:
    header, claims, signature = door.issuer.token(groups="operator").split(".")
    other = _part({"iss": ISSUER, "aud": AUDIENCE, "exp": int(time.time()) + 600, "groups": "web"})
    assert "a signature that its key did not make" in await door.why_not(f"{header}.{other}.{signature}")
    for algorithm in ("none", "None", "HS256"):
        for tail in ("", signature):
            forged = f"{_part({'alg': algorithm, 'kid': 'first'})}.{other}.{tail}"
            assert "is not signed by one of RS256" in await door.why_not(forged)
    # The public key as a secret that both know: what a server that goes by `alg` alone would take.
    public, signed = (
        door.issuer.published[0].as_pem(private=False),
        f"{_part({'alg': 'HS256', 'kid': 'first'})}.{other}",
    )
    tail = base64.urlsafe_b64encode(hmac.digest(public, signed.encode(), "sha256")).rstrip(b"=").decode()
    assert "is not signed by one of RS256" in await door.why_not(f"{signed}.{tail}")
    said = {"iss": ISSUER, "aud": AUDIENCE, "exp": int(time.time()) + 600, "groups": "web"}
    stranger = ECKey.generate_key("P-256", {"kid": "first"})
    forged = jwt.encode({"alg": "ES256", "kid": "first"}, said, stranger)
    assert "a signature that its key did not make" in await door.why_not(forged)
    forged = jwt.encode({"alg": "ES256", "kid": "first", "jwk": stranger.as_dict(private=False)}, said, stranger)
    assert "a signature that its key did not make" in await door.why_not(forged)
    assert "is not right" in await door.why_not(f"{_part({'alg': 'RS256', 'kid': 'first'})}.{claims}.{signature}")


async def test_what_is_no_token_is_refused(door: Door) -> None:
    deep = base64.urlsafe_b64encode(b"[" * 3000).decode().rstrip("=")
    for nothing in ("a.b.c", "..", f"{_part({'alg': 'ES256'})}.{deep}.x", f"{_part([])}.{_part([])}.x"):
        assert "the server does not know this token" in await door.why_not(nothing)
    assert "the server does not know this token" in await door.why_not("plain")


async def test_a_new_key_is_fetched_when_a_token_names_it(door: Door) -> None:
    old = door.issuer.token()
    assert await door.get(old) == b"one"
    door.issuer.rotate("second", keeps=True)
    assert await asyncio.gather(*(door.get(door.issuer.token(jti=str(n))) for n in range(5))) == [b"one"] * 5
    assert door.issuer.fetches == 2, "calls of one moment share one"
    assert await door.get(old) == b"one"


async def test_unknown_keys_make_the_server_fetch_now_and_then_only(door: Door) -> None:
    signed = door.issuer.token()
    claims = signed.split(".")[1]
    for number in range(30):
        header = _part({"alg": "ES256", "kid": f"guess {number}"})
        said = await door.why_not(f"{header}.{claims}.{signed.split('.')[2]}")
        assert "a key that the issuer does not have, or not any more: 'guess" in said
    assert door.issuer.fetches < 15


async def test_a_key_that_is_withdrawn_counts_no_more(door: Door) -> None:
    token = door.issuer.token()
    async with AsyncClient(f"127.0.0.1:{door.port}", token=token, retries=0) as client:
        assert await client.get("p|1") == b"one"
        door.issuer.rotate("second")
        door.server.reload()
        await until(lambda: door.issuer.fetches == 2)
        with pytest.raises(UnauthenticatedError, match="a key that the issuer does not have, or not any more: 'first'"):
            while True:
                await client.get("p|1")
    assert await door.get(door.issuer.token()) == b"one"


async def test_an_empty_set_withdraws_all_keys(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    token = door.issuer.token()
    async with AsyncClient(f"127.0.0.1:{door.port}", token=token, retries=0) as client:
        assert await client.get("p|1") == b"one"
        door.issuer.published = []
        door.server.reload()
        with pytest.raises(UnauthenticatedError, match="a key that the issuer does not have, or not any more: 'first'"):
            for _ in range(1000):
                await client.get("p|1")
    assert "it has no public key for signatures: all keys are withdrawn, and its tokens are refused" in caplog.text
    door.issuer.rotate("second")
    assert await door.get(door.issuer.token()) == b"one"


async def test_a_judgement_is_not_kept_when_a_fetch_brings_other_keys(door: Door) -> None:
    async with AsyncClient(f"127.0.0.1:{door.port}", token=door.issuer.token(), retries=0) as client:
        assert await client.get("p|1") == b"one"
        door.issuer.rotate("second")
        assert await client.get("p|1") == b"one", "nobody has told the server"
        assert await door.get(door.issuer.token()) == b"one"
        with pytest.raises(UnauthenticatedError, match="a key that the issuer does not have, or not any more: 'first'"):
            await client.get("p|1")


async def test_while_the_issuer_does_not_answer_the_keys_before_are_used(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    old = door.issuer.token()
    door.issuer.status = 503
    door.issuer.rotate("second")
    new = door.issuer.token()
    assert "could not read the issuer's keys" in await door.why_not(new)
    assert await door.get(old) == b"one"
    assert "the answer is 503; those read before stay in use" in caplog.text
    assert old not in caplog.text and new not in caplog.text
    door.issuer.status = 200
    door.server.reload()
    fetches = door.issuer.fetches
    await until(lambda: door.issuer.fetches > fetches)
    assert await door.get(new) == b"one"


async def test_calls_of_a_connection_end_with_its_token(door: Door) -> None:
    async with AsyncClient(f"127.0.0.1:{door.port}", token=door.issuer.token(), retries=0) as client:
        assert await asyncio.gather(*(client.get("p|1") for _ in range(20))) == [b"one"] * 20
        door.pass_on(601)
        with pytest.raises(UnauthenticatedError, match="has expired; get a new one"):
            await client.get("p|1")
        with pytest.raises(UnauthenticatedError, match="has expired; get a new one"):
            await client.get("p|1")


async def test_single_calls_end_with_their_token_though_they_are_hot(door: Door) -> None:
    metadata = (("authorization", f"Bearer {door.issuer.token()}"),)
    async with aio.insecure_channel(f"127.0.0.1:{door.port}") as channel:
        stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
        for _ in range(5):
            assert (await stub.Get(pb.GetRequest(key=b"p|1"), metadata=metadata)).value == b"one"
        hot: Any = getattr(door.server._server, "hot", None)
        assert hot is None or hot.native.answered == 5, "the judgement is kept"
        door.pass_on(601)
        with pytest.raises(aio.AioRpcError, match="has expired; get a new one"):
            await stub.Get(pb.GetRequest(key=b"p|1"), metadata=metadata)


async def test_a_watch_ends_with_its_token(door: Door) -> None:
    async with AsyncClient(f"127.0.0.1:{door.port}", token=door.issuer.token(), retries=0) as client:
        with pytest.raises(UnauthenticatedError, match="has expired; get a new one"):
            async for _ in client.watch("p|", "p}"):
                door.pass_on(601)
                door.server.engine.put(b"p|2", b"two")


async def test_leeway_is_for_clocks_that_differ(door: Door) -> None:
    token = door.issuer.token(lasts_s=-10)
    assert "has expired" in await door.why_not(token)
    rewrite(door.access_file, access_text(door.issuer.url, more="leeway_s = 60"))
    door.server.reload()
    assert await door.get(token) == b"one"
    assert door.issuer.fetches <= 2, "the keys that are there stay"


async def test_the_claim_may_be_in_another(door: Door) -> None:
    rewrite(door.access_file, access_text(door.issuer.url, claim='["realm_access", "roles"]'))
    door.server.reload()
    assert await door.get(door.issuer.token(realm_access={"roles": ["web"]})) == b"one"
    assert "the claim realm_access.roles" in await door.why_not(door.issuer.token(realm_access="web"))


async def test_keys_may_be_in_a_file_that_is_read_again(tmp_path: Path) -> None:
    issuer, path = Issuer(), tmp_path / "access.toml"
    (tmp_path / "keys.json").write_text(issuer.keys)
    path.write_text(access_text("keys.json"))
    server = PequodServer(ServerConfig(listen="127.0.0.1:0", http="127.0.0.1:0", drain_s=0.5, access_file=path))
    port = await server.start()
    server.engine.put(b"p|1", b"one")
    door = Door(server, port, issuer, path)
    assert await door.get(issuer.token()) == b"one"
    issuer.rotate("second")
    rewrite(tmp_path / "keys.json", issuer.keys)
    assert await door.get(issuer.token()) == b"one"
    rewrite(tmp_path / "keys.json", "{}")
    server.reload()
    assert await door.get(issuer.token(jti="other")) == b"one"
    await server.stop()


@pytest.mark.parametrize("withdrawn", ['{"keys": []}', '{"keys": [{"kty": "RSA", "use": "enc"}]}'])
async def test_a_file_without_keys_withdraws_all(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, withdrawn: str
) -> None:
    issuer, path, keys = Issuer(), tmp_path / "access.toml", tmp_path / "keys.json"
    keys.write_text(issuer.keys)
    path.write_text(access_text("keys.json"))
    server = PequodServer(ServerConfig(listen="127.0.0.1:0", http="127.0.0.1:0", drain_s=0.5, access_file=path))
    door = Door(server, await server.start(), issuer, path)
    assert await door.get(issuer.token()) is None
    rewrite(keys, withdrawn)
    server.reload()
    assert "a key that the issuer does not have, or not any more: 'first'" in await door.why_not(issuer.token())
    assert f"the keys of {keys}: it has no public key for signatures: all keys are withdrawn" in caplog.text
    await server.stop()


async def test_a_server_starts_with_an_empty_file_of_keys(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    issuer, path = Issuer(), tmp_path / "access.toml"
    (tmp_path / "keys.json").write_text('{"keys": []}')
    path.write_text(access_text("keys.json"))
    server = PequodServer(ServerConfig(listen="127.0.0.1:0", http="127.0.0.1:0", drain_s=0.5, access_file=path))
    assert "all keys are withdrawn" in caplog.text
    door = Door(server, await server.start(), issuer, path)
    assert "a key that the issuer does not have" in await door.why_not(issuer.token())
    _, claims, signature = issuer.token().split(".")
    assert "names no key, and the issuer has none" in await door.why_not(
        f"{_part({'alg': 'ES256'})}.{claims}.{signature}"
    )
    await server.stop()


async def test_a_server_starts_without_the_issuer_and_takes_its_tokens_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with issuing() as issuer:
        issuer.status = 500
        path = tmp_path / "access.toml"
        path.write_text(access_text(issuer.url))
        server = PequodServer(ServerConfig(listen="127.0.0.1:0", http="127.0.0.1:0", drain_s=0.5, access_file=path))
        port = await server.start()
        server.engine.put(b"p|1", b"one")
        assert "the answer is 500; its tokens are refused" in caplog.text
        issuer.status = 200
        with caplog.at_level(logging.INFO):
            assert await Door(server, port, issuer, path).get(issuer.token()) == b"one"
        assert "read again" in caplog.text
        await server.stop()


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ("http://login.example.org/keys", "must be a file, or an https URL"),
        ("ftp://127.0.0.1/keys", "must be a file, or an https URL"),
        ("https://user:secret@example.org/keys", "without user and password"),
        ("nowhere.json", "issuers.company.keys: "),
        ("set.json", "it has no public key for signatures"),
        ("other.json", "it is no JSON Web Key Set"),
    ],
)
def test_an_issuer_that_is_not_right_is_told(tmp_path: Path, keys: str, reason: str) -> None:
    path = tmp_path / "access.toml"
    secret = OctKey.generate_key(256).as_dict(private=True)
    (tmp_path / "set.json").write_text(json.dumps({"keys": [secret, {"kty": "RSA"}, {"kty": "LATER"}, 7]}))
    (tmp_path / "other.json").write_text("[]")
    path.write_text(access_text(keys))
    with pytest.raises(SettingError, match="access_file") as raised:
        PequodServer(ServerConfig(listen="127.0.0.1:0", access_file=path))
    assert reason in str(raised.value)
    assert "secret" not in str(raised.value)
