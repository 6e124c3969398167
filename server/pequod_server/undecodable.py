"""Requests that are no messages: gRPC would answer UNKNOWN and log a traceback for each; here they are refused.

    bytes -> deserializer -> message, or the DecodeError in its place -> service, or INVALID_ARGUMENT

Streams of requests meet the error where they read.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from pequod_server.handlers import Context, Handler, method_of


def refusing_undecodable(handler: Handler) -> Handler:
    """Return a handler that refuses what cannot be decoded; streams of requests refuse it by themselves."""
    if handler.request_streaming or handler.request_deserializer is None:
        return handler
    behaviour, make = method_of(handler)
    checked = _checked_generator if inspect.isasyncgenfunction(behaviour) else _checked_coroutine
    return make(checked(behaviour), _keeping_errors(handler.request_deserializer), handler.response_serializer)


async def refuse_undecodable(context: Context, error: DecodeError) -> None:
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
            await refuse_undecodable(context, request)
        return await behaviour(request, context)

    return checked


def _checked_generator(
    behaviour: Callable[[Any, Context], AsyncIterator[Any]],
) -> Callable[[Any, Context], AsyncIterator[Any]]:
    async def checked(request: object, context: Context) -> AsyncIterator[Any]:
        if isinstance(request, DecodeError):
            await refuse_undecodable(context, request)
        async for reply in behaviour(request, context):
            yield reply

    return checked
