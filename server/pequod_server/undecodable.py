"""Requests that are no messages: gRPC would answer UNKNOWN and log a traceback for each; here they are refused.

bytes -> deserializer -> message   -> service
-> DecodeError kept in its place -> INVALID_ARGUMENT
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError
from grpc import aio

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Context = aio.ServicerContext[Any, Any]


def refusing_undecodable(handler: Handler) -> Handler:
    """Return a handler that refuses what cannot be decoded; streams of requests refuse it by themselves."""
    if handler.request_streaming or handler.request_deserializer is None:
        return handler
    shape = (_keeping_errors(handler.request_deserializer), handler.response_serializer)
    if handler.response_streaming:
        assert inspect.isasyncgenfunction(handler.unary_stream), "streams of replies are generators"
        return grpc.unary_stream_rpc_method_handler(_checked_generator(handler.unary_stream), *shape)
    assert inspect.iscoroutinefunction(handler.unary_unary), "the service is asynchronous"
    return grpc.unary_unary_rpc_method_handler(_checked_coroutine(handler.unary_unary), *shape)


async def refuse(context: Context, error: DecodeError) -> None:
    """End a call whose request cannot be decoded."""
    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"the request is no message of this call: {error}")


def _keeping_errors(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def deserialized(data: bytes) -> Any:
        try:
            return deserialize(data)
        except DecodeError as error:
            return error

    return deserialized


def _checked_coroutine(
    behaviour: Callable[[Any, Context], Awaitable[Any]],
) -> Callable[[Any, Context], Awaitable[Any]]:
    async def checked(request: object, context: Context) -> object:
        if isinstance(request, DecodeError):
            await refuse(context, request)
        return await behaviour(request, context)

    return checked


def _checked_generator(
    behaviour: Callable[[Any, Context], AsyncIterator[Any]],
) -> Callable[[Any, Context], AsyncIterator[Any]]:
    async def checked(request: object, context: Context) -> AsyncIterator[Any]:
        if isinstance(request, DecodeError):
            await refuse(context, request)
        async for reply in behaviour(request, context):
            yield reply

    return checked
