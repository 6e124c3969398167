"""What others see: keys in explanations, the standard services behind an access file, files and ports that are open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio
from grpc_channelz.v1 import channelz_pb2, channelz_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server import ServerConfig
from pequod_server.access.exposed import warn_of_exposed
from pequod_server.access.grants import Right

from pequod.errors import PermissionDeniedError
from tests.server.roles import access_text
from tests.server.serving import connect, serving


def _config(folder: Path, **settings: Any) -> ServerConfig:
    access_file = folder / "access.toml"
    access_file.write_text(access_text("web", "root", "nobody", "watch"))
    access_file.chmod(0o600)
    return ServerConfig(listen="127.0.0.1:0", drain_s=0.5, access_file=access_file, **settings)


def _as(name: str) -> Any:
    return aio.Metadata(("authorization", f"Bearer {name}"))


@pytest.mark.parametrize(("name", "key"), [("root", b"i|SECRET"), ("watch", b"")])
async def test_an_explanation_names_keys_of_sources_only_to_those_who_may_read_them(
    tmp_path: Path, name: str, key: bytes
) -> None:
    async with serving(_config(tmp_path)) as port, connect(port) as channel:
        stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
        text = "t|<colour>|<id> = copy i|<id> with colour = <colour>"
        await stub.AddJoin(pb.AddJoinRequest(text=text), metadata=_as("root"))
        await stub.Put(pb.PutRequest(key=b"i|SECRET", value=b"no record"), metadata=_as("root"))
        _ = [chunk async for chunk in stub.Scan(pb.ScanRequest(prefix=b"t|red|"), metadata=_as("root"))]
        (source,) = (await stub.Explain(pb.ExplainRequest(join="t"), metadata=_as(name))).join.sources
        assert [(misfit.count > 0, misfit.key) for misfit in source.misfits] == [(True, key)]


async def _listed(channel: aio.Channel, name: str, service: str) -> list[str]:
    async def requests() -> AsyncIterator[reflection_pb2.ServerReflectionRequest]:
        yield reflection_pb2.ServerReflectionRequest(list_services="")

    ask: Any = channel.stream_stream(
        f"/grpc.reflection.{service}.ServerReflection/ServerReflectionInfo",
        reflection_pb2.ServerReflectionRequest.SerializeToString,
        reflection_pb2.ServerReflectionResponse.FromString,
    )
    replies = [reply async for reply in ask(requests(), metadata=_as(name), timeout=10)]
    return [one.name for reply in replies for one in reply.list_services_response.service]


@pytest.mark.parametrize("service", ["v1", "v1alpha"])
async def test_reflection_answers_known_callers_behind_an_access_file(tmp_path: Path, service: str) -> None:
    async with serving(_config(tmp_path)) as port, connect(port) as channel:
        assert "pequod.v1.Pequod" in await _listed(channel, "nobody", service)
        with pytest.raises(aio.AioRpcError) as caught:
            await _listed(channel, "unknown", service)
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_the_blocking_reflection_client_is_answered_behind_an_access_file(tmp_path: Path) -> None:
    async with serving(_config(tmp_path)) as port:

        def ask() -> int:
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
                request = reflection_pb2.ServerReflectionRequest(file_containing_symbol="pequod.v1.Pequod")
                call = stub.ServerReflectionInfo(
                    iter([request]), metadata=[("authorization", "Bearer web")], timeout=10
                )
                return sum(len(reply.file_descriptor_response.file_descriptor_proto) for reply in call)

        assert await asyncio.to_thread(ask) > 0


async def test_channelz_is_for_those_who_may_do_everything(tmp_path: Path) -> None:
    async with serving(_config(tmp_path, channelz=True)) as port, connect(port) as channel:
        stub: Any = channelz_pb2_grpc.ChannelzStub(channel)
        request = channelz_pb2.GetServersRequest()
        assert len((await stub.GetServers(request, metadata=_as("root"))).server) >= 1
        with pytest.raises(aio.AioRpcError) as caught:
            await stub.GetServers(request, metadata=_as("web"))
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED


def test_a_refusal_spells_the_right_as_the_access_file_does() -> None:
    error = PermissionDeniedError("web", Right.READ, b"p|", b"p}")
    assert str(error).startswith("role 'web' lacks the right 'read' on all of ['p|', 'p}')")


def test_a_server_warns_of_files_and_ports_that_others_reach(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = _config(tmp_path, metrics="0.0.0.0:9100")
    assert config.access_file is not None
    warn_of_exposed(config)
    assert [record.message.split(";")[0] for record in caplog.records] == [
        "everybody who reaches 0.0.0.0:9100 may read the metrics, which name tables and joins"
    ]
    caplog.clear()
    config.access_file.chmod(0o646)
    warn_of_exposed(config)
    (message,) = [record.message for record in caplog.records if "access_file" in record.message]
    fault = f"other users may read and write {config.access_file}"
    assert message == f"access_file: {fault}; take the rights away: chmod o-rw {config.access_file}"
