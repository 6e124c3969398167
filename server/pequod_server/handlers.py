"""What every interceptor needs of gRPC's handlers: their method and its kind, and how a call is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

import grpc
from grpc import aio

from pequod.engine import PequodError
from pequod_server.errors import status_of

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Context = aio.ServicerContext[Any, Any]


def method_of(handler: Handler) -> tuple[Any, Callable[..., Handler]]:
    """Return the method of a handler, and what makes a handler of the same kind."""
    if handler.request_streaming:
        if handler.response_streaming:
            return handler.stream_stream, grpc.stream_stream_rpc_method_handler
        return handler.stream_unary, grpc.stream_unary_rpc_method_handler
    if handler.response_streaming:
        return handler.unary_stream, grpc.unary_stream_rpc_method_handler
    return handler.unary_unary, grpc.unary_unary_rpc_method_handler


def refusing(status: grpc.Status) -> Handler:
    """Return a handler that refuses a call of any kind without reading its request."""

    async def refuse_call(_requests: object, context: Context) -> None:
        await end_call(context, status)

    # Fits every kind of call: nothing is read, and nothing but the status is sent.
    return grpc.stream_stream_rpc_method_handler(refuse_call)


async def refuse(context: Context, error: PequodError) -> NoReturn:
    """End a call with an error and its details."""
    await end_call(context, status_of(error))


async def end_call(context: Context, status: grpc.Status) -> NoReturn:
    """End a call with a status."""
    await context.abort(status.code, status.details, status.trailing_metadata)
    raise AssertionError("aborting raises")
