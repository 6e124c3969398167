"""Health, reflection and channelz, as clients meet them that know nothing of Pequod."""

import subprocess
import sys
from typing import Any

import grpc
import pytest
from grpc import aio
from grpc_channelz.v1 import channelz_pb2, channelz_pb2_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from pequod_server import ServerConfig
from pequod_server.wire.standard import SERVICE, StandardServices

from tests.forked import started_server
from tests.server.serving import connect, serving

STRANGER = """
import sys

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

with grpc.insecure_channel(sys.argv[1]) as channel:
    reflection = ProtoReflectionDescriptorDatabase(channel)
    print(*sorted(reflection.get_services()))
    pool = descriptor_pool.DescriptorPool(reflection)
    service = pool.FindServiceByName("pequod.v1.Pequod")

    def call(name, **fields):
        method = service.methods_by_name[name]
        kind = "unary_stream" if method.server_streaming else "unary_unary"
        request, reply = (message_factory.GetMessageClass(part) for part in (method.input_type, method.output_type))
        ask = getattr(channel, kind)(
            f"/{service.full_name}/{name}", request.SerializeToString, reply.FromString
        )
        return ask(request(**fields), timeout=10)

    joins = call("AddJoin", text="t|<u>|<x>|<p> = check s|<u>|<p> copy p|<p>|<x>").joins
    print(joins[0].name, joins[0].text)
    call("Put", key=b"s|ann|bob", value=b"1")
    call("Put", key=b"p|bob|1", value=b"Hi")
    for chunk in call("Scan", first=b"t|ann|", last=b"t|ann}"):
        print(list(zip(chunk.keys, chunk.values)))
    try:
        call("Put", key=b"t|ann|1|bob", value=b"forged")
    except grpc.RpcError as error:
        print(error.code().name)
assert not any(name.startswith("pequod") for name in sys.modules)
"""


def test_a_client_that_knows_only_reflection_lists_and_calls_the_api() -> None:
    with started_server() as (target, _):
        command = [sys.executable, "-c", STRANGER, target]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "grpc.health.v1.Health grpc.reflection.v1alpha.ServerReflection pequod.v1.Pequod",
        "t t|<u>|<x>|<p> = check s|<u>|<p> copy p|<p>|<x>",
        "[(b't|ann|1|bob', b'Hi')]",
        "FAILED_PRECONDITION",
    ]


@pytest.mark.parametrize("service", ["", "pequod.v1.Pequod"])
async def test_a_started_server_is_healthy(service: str) -> None:
    async with serving(ServerConfig(listen="127.0.0.1:0")) as port, connect(port) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        reply = await health.Check(health_pb2.HealthCheckRequest(service=service))
        assert reply.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(aio.AioRpcError) as caught:
            await health.Check(health_pb2.HealthCheckRequest(service="other"))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_health_follows_the_life_of_a_server() -> None:
    server = aio.server()
    standard = StandardServices(server, channelz=False)
    await standard.starting()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with connect(port) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)

        async def statuses() -> list[str]:
            replies = [await health.Check(health_pb2.HealthCheckRequest(service=name)) for name in ("", SERVICE)]
            return [health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status) for reply in replies]

        assert await statuses() == ["NOT_SERVING", "NOT_SERVING"]
        await standard.ready()
        assert await statuses() == ["SERVING", "SERVING"]
        await standard.stopping()
        assert await statuses() == ["NOT_SERVING", "NOT_SERVING"]
        await standard.ready()
        assert await statuses() == ["NOT_SERVING", "NOT_SERVING"], "for good"
    await server.stop(None)


async def test_channelz_is_there_only_if_asked_for() -> None:
    request = channelz_pb2.GetServersRequest()
    async with serving(ServerConfig(listen="127.0.0.1:0", channelz=True)) as port, connect(port) as channel:
        stub: Any = channelz_pb2_grpc.ChannelzStub(channel)
        sockets = []
        # It tells of the servers that other tests have closed, too; their connections are gone.
        for server in (await stub.GetServers(request)).server:
            asked = channelz_pb2.GetServerSocketsRequest(server_id=server.ref.server_id)
            sockets += (await stub.GetServerSockets(asked)).socket_ref
        assert len(sockets) == 1, "ours"
    async with serving(ServerConfig(listen="127.0.0.1:0")) as port, connect(port) as channel:
        with pytest.raises(aio.AioRpcError) as caught:
            await channelz_pb2_grpc.ChannelzStub(channel).GetServers(request)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_reflection_is_there_under_its_final_name_as_well() -> None:
    async with serving(ServerConfig(listen="127.0.0.1:0")) as port, connect(port) as channel:
        replies = {}
        for version in ("v1", "v1alpha"):
            call: Any = channel.stream_stream(
                f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
                reflection_pb2.ServerReflectionRequest.SerializeToString,
                reflection_pb2.ServerReflectionResponse.FromString,
            )()
            await call.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE))
            replies[version] = await call.read()
            await call.done_writing()
            assert await call.read() is aio.EOF
    assert replies["v1"] == replies["v1alpha"]
    assert replies["v1"].file_descriptor_response.file_descriptor_proto
