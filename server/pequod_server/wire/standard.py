"""The services that every gRPC server offers: health, reflection and, if asked for, channelz."""

from __future__ import annotations

from typing import Final

import grpc
from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc
from pequod_proto import pequod_pb2

from pequod_server.transport.server import WireServer
from pequod_server.wire.handlers import Unregistered

SERVICE: Final = pequod_pb2.DESCRIPTOR.services_by_name["Pequod"].full_name
#: The names that health is asked for: the whole server, and the service.
_NAMES: Final = ("", SERVICE)


class StandardServices:
    """Health and reflection on a server; not ready before `ready` is called."""

    def __init__(self, server: aio.Server, *, channelz: bool) -> None:
        unregistered = Unregistered(server)
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, unregistered)
        names = [SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME]
        if channelz:
            # Figures of every connection are for clients that ask for them by name.
            from grpc_channelz.v1 import channelz as figures  # noqa: PLC0415
            from grpc_channelz.v1 import channelz_pb2_grpc  # noqa: PLC0415

            from pequod_server.transport.figures import WireFigures  # noqa: PLC0415

            teller = WireFigures(server) if isinstance(server, WireServer) else figures.aio.ChannelzServicer()
            channelz_pb2_grpc.add_ChannelzServicer_to_server(teller, unregistered)
            names.append("grpc.channelz.v1.Channelz")
        # Not by the functions of these packages that add their services to a server: they add the servicers of threads
        # to all but `aio.Server`, and interceptors know only coroutines.
        servicer = reflection.aio.ReflectionServicer(names)
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, unregistered)
        _add_reflection_v1(servicer, server)

    async def starting(self) -> None:
        """Answer NOT_SERVING, before the first request can come."""
        await self._set(health_pb2.HealthCheckResponse.NOT_SERVING)

    async def ready(self) -> None:
        """Answer SERVING from now on."""
        await self._set(health_pb2.HealthCheckResponse.SERVING)

    async def stopping(self) -> None:
        """Answer NOT_SERVING for good."""
        await self._health.enter_graceful_shutdown()

    async def _set(self, status: int) -> None:
        for name in _NAMES:
            await self._health.set(name, status)


def _add_reflection_v1(servicer: reflection.aio.ReflectionServicer, server: aio.Server) -> None:
    """Serve reflection under its final name too, which newer clients ask for; its messages are those of v1alpha."""
    method = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    service = "grpc.reflection.v1.ServerReflection"
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"ServerReflectionInfo": method}),))
