"""channelz of the native transport: the server and its sockets; gRPC tells of the channels to other servers."""

from __future__ import annotations

from collections.abc import Awaitable
from itertools import islice
from typing import Final

import grpc
from google.protobuf.timestamp_pb2 import Timestamp
from grpc import aio
from grpc_channelz.v1 import channelz
from grpc_channelz.v1 import channelz_pb2 as pb

from pequod_server.transport.connection import WireConnection
from pequod_server.transport.server import WireServer

#: Numbers of ours begin here; gRPC counts its own from 1.
_FIRST_NUMBER: Final = 1 << 40
_SOCKETS_MAX: Final = 100

_Context = aio.ServicerContext[object, object]


class WireFigures(channelz.aio.ChannelzServicer):  # type: ignore[misc] # ships no types
    """Tells of one server."""

    def __init__(self, server: WireServer) -> None:
        self._server = server

    async def GetServers(self, request: pb.GetServersRequest, _context: _Context) -> pb.GetServersResponse:  # noqa: N802
        """Return the server."""
        is_wanted = request.start_server_id <= _FIRST_NUMBER
        return pb.GetServersResponse(server=[self._figures()] if is_wanted else [], end=True)

    async def GetServer(self, request: pb.GetServerRequest, context: _Context) -> pb.GetServerResponse:  # noqa: N802
        """Return the server."""
        if request.server_id != _FIRST_NUMBER:
            await _not_found(context)
        return pb.GetServerResponse(server=self._figures())

    async def GetServerSockets(  # noqa: N802
        self, request: pb.GetServerSocketsRequest, context: _Context
    ) -> pb.GetServerSocketsResponse:
        """Return a page of its sockets."""
        if request.server_id != _FIRST_NUMBER:
            await _not_found(context)
        start = request.start_socket_id - _FIRST_NUMBER
        left = (connection for connection in tuple(self._server.connections) if connection.number >= start)
        page = list(islice(left, min(request.max_results or _SOCKETS_MAX, _SOCKETS_MAX)))
        return pb.GetServerSocketsResponse(socket_ref=map(_ref, page), end=next(left, None) is None)

    async def GetSocket(self, request: pb.GetSocketRequest, context: _Context) -> pb.GetSocketResponse:  # noqa: N802
        """Return a socket; that of a channel to another server is gRPC's."""
        if request.socket_id < _FIRST_NUMBER:
            asked: Awaitable[pb.GetSocketResponse] = super().GetSocket(request, context)
            return await asked
        for connection in tuple(self._server.connections):
            if _ref(connection).socket_id == request.socket_id:
                data = pb.SocketData(streams_started=connection.begun_count, keep_alives_sent=connection.ping_count)
                socket = pb.Socket(ref=_ref(connection), data=data, remote_name=connection.peer)
                return pb.GetSocketResponse(socket=socket)
        await _not_found(context)
        return pb.GetSocketResponse()

    def _figures(self) -> pb.Server:
        counts = self._server.counts
        data = pb.ServerData(calls_started=counts.begun, calls_succeeded=counts.succeeded, calls_failed=counts.failed)
        if counts.last_begun_s:
            data.last_call_started_timestamp.CopyFrom(Timestamp(seconds=int(counts.last_begun_s)))
        return pb.Server(ref=pb.ServerRef(server_id=_FIRST_NUMBER, name="native"), data=data)


def _ref(connection: WireConnection) -> pb.SocketRef:
    # gRPC writes the names of sockets so, too: that of this side, a space, that of the client.
    name = f"{connection.own_name} {connection.peer}"
    return pb.SocketRef(socket_id=_FIRST_NUMBER + connection.number, name=name)


async def _not_found(context: _Context) -> None:
    await context.abort(grpc.StatusCode.NOT_FOUND, "no such server or socket")
