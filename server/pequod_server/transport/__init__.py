"""gRPC over HTTP/2 by the native core, in the event loop: a server with the interface of `grpc.aio.Server`.

socket -> asyncio (TLS) -> WireConnection -> the native session -> events
                               |            streams, windows, frames
                               v
            CallTurns -> Exchange, a task -> interceptors -> handler -> session -> WireConnection -> socket
"""
