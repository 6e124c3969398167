"""Calls of gRPC over HTTP/2 by the native core, in an event loop: a channel with the interface of `grpc.aio.Channel`.

It is there where the library nghttp2 is; elsewhere, calls go through gRPC's own channel.
"""
