"""The server of gRPC that the settings ask for, on the transport that was chosen."""

from __future__ import annotations

from collections.abc import Sequence

from grpc import aio

from pequod_server.config import ServerConfig
from pequod_server.memory.admission import message_bytes_max, messages_bytes_max
from pequod_server.memory.begun import connection_calls_max, unread_bytes_max
from pequod_server.transport.choice import Choice
from pequod_server.transport.server import Limits, WireServer
from pequod_server.wire.connections import SLACK, living_of_grpc
from pequod_server.wire.errors import status_of
from pequod_server.wire.undecodable import receive_bytes_max
from pequod_server.wire.under_way import queue_options


def make_server(
    config: ServerConfig,
    interceptors: Sequence[aio.ServerInterceptor],
    transport: Choice,
    *,
    is_shared: bool = False,
) -> aio.Server:
    """Return a server without services, which does not listen yet.

    Args:
        is_shared: Whether other processes of this user may listen at the same ports.
    """
    make = _native_server if transport.is_native else _grpc_server
    return make(config, interceptors, is_shared=is_shared)


def living_of(server: aio.Server) -> set[str]:
    """Return the peers of the present connections of a server; on gRPC's transport, of all servers of the process."""
    return server.peers() if isinstance(server, WireServer) else living_of_grpc()


def _native_server(
    config: ServerConfig, interceptors: Sequence[aio.ServerInterceptor], *, is_shared: bool
) -> WireServer:
    limits = Limits(
        message_bytes_max=receive_bytes_max(message_bytes_max(config)),
        held_bytes_max=messages_bytes_max(config),
        connections_max=config.connections_max + SLACK,
        streams_max=connection_calls_max(config),
        keepalive_s=config.keepalive_s,
        keepalive_timeout_s=config.keepalive_timeout_s,
        unread_bytes_max=unread_bytes_max(config),
    )
    return WireServer(interceptors, limits, status_of, is_shared=is_shared)


def _grpc_server(config: ServerConfig, interceptors: Sequence[aio.ServerInterceptor], *, is_shared: bool) -> aio.Server:
    return aio.server(
        interceptors=interceptors,
        options=[
            ("grpc.max_receive_message_length", receive_bytes_max(message_bytes_max(config))),
            ("grpc.max_send_message_length", -1),
            # A message that waits to be read stays with its client; a longer one is let in once it is asked for.
            ("grpc.http2.bdp_probe", 0),
            # Two servers on one port would share its connections at random, as workers are to.
            ("grpc.so_reuseport", int(is_shared)),
            ("grpc.max_allowed_incoming_connections", config.connections_max + SLACK),
            *queue_options(config),
            *_keepalive(config),
            # The connections need it, whether or not it is served.
            ("grpc.enable_channelz", 1),
        ],
    )


def _keepalive(config: ServerConfig) -> list[tuple[str, int]]:
    """Return how gRPC finds out that a client is gone whose connection was not closed."""
    if not config.keepalive_s:
        return []
    return [
        ("grpc.keepalive_time_ms", max(int(1000 * config.keepalive_s), 1)),
        ("grpc.keepalive_timeout_ms", max(int(1000 * config.keepalive_timeout_s), 1)),
        # The answer to the ping itself has a time of its own.
        ("grpc.http2.ping_timeout_ms", max(int(1000 * config.keepalive_timeout_s), 1)),
        # A connection without calls is asked, too.
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]
