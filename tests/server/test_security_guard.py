"""The guard as a whole: each call has a rule, what has none is closed, and the page about it is right."""

from __future__ import annotations

import asyncio
import re
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_server import PequodServer, ServerConfig
from pequod_server.access.access_file import Credential, read_rules
from pequod_server.access.access_text import AccessText
from pequod_server.access.grants import Right
from pequod_server.access.guard import AccessGuard
from pequod_server.wire.handlers import PEER_PATH
from typer.testing import CliRunner

from pequod import AsyncClient
from pequod.cli.app import app
from pequod.engine import Rows
from pequod.errors import LimitExceededError, PermissionDeniedError, SettingError, UnauthenticatedError
from tests.server.roles import access_text

PAGE = (Path(__file__).parents[2] / "docs/security.md").read_text()


async def test_each_call_has_a_rule(tmp_path: Path) -> None:
    server = _server(tmp_path)
    guard = server.guard
    assert isinstance(guard, AccessGuard)
    services = pb.DESCRIPTOR.services_by_name
    own = {method.name for method in services["Pequod"].methods}
    assert set(guard._needs._rules) == own | {PEER_PATH + method.name for method in services["PequodPeer"].methods}
    assert set(guard._trims._trims) < set(guard._needs._rules)
    await server.stop()


def _server(folder: Path) -> PequodServer:
    access_file = folder / "access.toml"
    access_file.write_text(access_text("web", "root", "nobody", "watch"))
    return PequodServer(ServerConfig(listen="127.0.0.1:0", drain_s=0.5, access_file=access_file))


async def _reply(_request: Any, _context: Any) -> bytes:
    return b"reply"


async def _replies(_request: Any, _context: Any) -> AsyncIterator[bytes]:
    yield b"reply"


async def _writes(_requests: Any, context: Any) -> None:
    await context.write(b"reply")


HANDLERS: dict[str, Any] = {
    "UnaryUnary": grpc.unary_unary_rpc_method_handler(_reply),
    "UnaryStream": grpc.unary_stream_rpc_method_handler(_replies),
    "UnaryWrites": grpc.unary_stream_rpc_method_handler(_writes),
    "StreamUnary": grpc.stream_unary_rpc_method_handler(_reply),
    "StreamStream": grpc.stream_stream_rpc_method_handler(_replies),
    "StreamWrites": grpc.stream_stream_rpc_method_handler(_writes),
}
SERVICES: dict[str, set[str | None]] = {
    # Who gets a reply: by service, by token.
    "grpc.health.v1.Health": {None, "guess", "nobody", "web", "watch", "root"},
    "grpc.reflection.v1.ServerReflection": {"nobody", "web", "watch", "root"},
    "grpc.reflection.v1alpha.ServerReflection": {"nobody", "web", "watch", "root"},
    "grpc.channelz.v1.Channelz": {"watch", "root"},
    "some.Service": {"watch", "root"},
    "pequod.v1.PequodToo": {"watch", "root"},
}


async def _call(channel: Any, path: str, shape: str, token: str | None) -> grpc.StatusCode:
    metadata = () if token is None else (("authorization", f"Bearer {token}"),)
    try:
        match shape:
            case "UnaryUnary":
                replies = [await channel.unary_unary(path)(b"", metadata=metadata)]
            case "UnaryStream" | "UnaryWrites":
                replies = [reply async for reply in channel.unary_stream(path)(b"", metadata=metadata)]
            # No requests: the handlers read none, and gRPC tells INTERNAL where a refusal comes while one is written.
            case "StreamUnary":
                replies = [await channel.stream_unary(path)(metadata=metadata)]
            case _:
                replies = [reply async for reply in channel.stream_stream(path)(metadata=metadata)]
    except aio.AioRpcError as error:
        return error.code()
    assert replies == [b"reply"]
    return grpc.StatusCode.OK


async def test_what_is_added_to_the_server_is_closed_until_it_is_opened(tmp_path: Path) -> None:
    server = _server(tmp_path)
    for service in SERVICES:
        server._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, HANDLERS),))
    port = await server.start()
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        for service, welcome in SERVICES.items():
            for shape in HANDLERS:
                for token in (None, "guess", "nobody", "web", "watch", "root"):
                    code = await _call(channel, f"/{service}/{shape}", shape, token)
                    if token in welcome:
                        expected = grpc.StatusCode.OK
                    elif token in (None, "guess"):
                        expected = grpc.StatusCode.UNAUTHENTICATED
                    else:
                        expected = grpc.StatusCode.PERMISSION_DENIED
                    assert code is expected, (service, shape, token)
        assert await _call(channel, "/some.Service/None", "UnaryUnary", "root") is grpc.StatusCode.UNIMPLEMENTED
    await server.stop()


async def test_a_clients_batch_gets_the_refusals_in_their_places(tmp_path: Path) -> None:
    server = _server(tmp_path)
    target = f"127.0.0.1:{await server.start()}"
    async with AsyncClient(target, token="web") as client:
        batch = client.batch()
        batch.put("p|1", "one")
        batch.put("t|1", "not mine")
        batch.scan("p|", None)
        batch.scan("p|", "p}")
        put, refused_put, refused_scan, rows = await batch.send()
        assert (put, rows) == (None, Rows([b"p|1"], [b"one"]))
        assert isinstance(refused_put, PermissionDeniedError)
        assert (refused_put.right, refused_put.first, refused_put.last) == ("write", b"t|1", b"t|1\0")
        assert isinstance(refused_scan, PermissionDeniedError)
        assert (refused_scan.role, refused_scan.first, refused_scan.last) == ("web", b"p|", None)
        assert str(refused_scan) == (
            "role 'web' lacks the right 'read' on all of ['p|', end); an operator can grant it in the access file"
        )
    async with AsyncClient(target) as client:
        with pytest.raises(UnauthenticatedError, match="PEQUOD_TOKEN"):
            await client.get("p|1")
        with pytest.raises(UnauthenticatedError):
            await client.statistics()
    await server.stop()


async def test_a_token_for_this_machine_goes_to_no_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = _server(tmp_path)
    target = f"127.0.0.1:{await server.start()}"

    async def eavesdrop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(10_000))
        writer.close()

    heard: list[bytes] = []
    proxy = await asyncio.start_server(eavesdrop, "127.0.0.1", 0)
    monkeypatch.setenv("grpc_proxy", f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}")
    async with proxy, AsyncClient(target, token="web", timeout_s=5) as client:
        await client.put("p|1", "one")
    assert not heard
    await server.stop()


async def test_a_server_that_is_open_to_everybody_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for settings in ({"listen": "127.0.0.1:0"}, {"listen": "0.0.0.0:0", "insecure": True}):
        server = PequodServer(ServerConfig(**settings))
        await server.start()
        await server.stop()
    assert caplog.messages == ["everybody who reaches 0.0.0.0:0 may do everything; give --access-file"]


def test_the_access_file_of_the_page_is_right(tmp_path: Path) -> None:
    text, quotas, of_an_issuer = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert AccessText.model_validate(tomllib.loads(text + quotas)).roles["web"].quotas is not None
    assert AccessText.model_validate(tomllib.loads(of_an_issuer)).issuers["company"].audience == "pequod"
    path = tmp_path / "access.toml"
    path.write_text(text)
    rules = read_rules(path)
    web = rules.tenure_of(Credential.of_token("test"), 0.0).role
    assert web.may(Right.WRITE, b"s|", b"s}")
    assert not web.may(Right.JOIN, b"t|", b"t}")
    author = rules.tenure_of(Credential(None, ("batch.example.org",)), 0.0).role
    assert author.may(Right.JOIN, b"t|", b"t}")
    with pytest.raises(UnauthenticatedError):
        rules.tenure_of(Credential.of_token("batch.example.org"), 0.0)
    for right in Right:
        assert f"| `{right}` |" in PAGE


def test_options_and_variables_of_the_page_are_there() -> None:
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).stdout
    table = PAGE[PAGE.index("## Clients") :]
    for option in set(re.findall(r"`(--[\w-]+)", table)):
        assert option in shown, option
    for variable in set(re.findall(r"`(PEQUOD_\w+)", PAGE)):
        assert variable in shown, variable


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "access.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingError, match="access_file"):
        read_rules(tmp_path / "access.toml")


async def test_limits_hold_for_those_who_are_known(tmp_path: Path) -> None:
    access_file = tmp_path / "access.toml"
    access_file.write_text(access_text("web"))
    server = PequodServer(ServerConfig(listen="127.0.0.1:0", drain_s=0.5, access_file=access_file, streams_max=1))
    target = f"127.0.0.1:{await server.start()}"
    async with AsyncClient(target, token="web") as first:
        await first.put("p|1", "one")
        async with AsyncClient(target, token="web") as second:
            for _ in range(2):
                with pytest.raises(LimitExceededError, match="streams_max"):
                    await second.get("p|1")
            assert await second.joins() == []
            with pytest.raises(PermissionDeniedError):
                [row async for row in second.scan_iter("p|")]
    await server.stop()
