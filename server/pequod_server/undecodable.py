"""Requests that are too long or no messages: refused by name, before anything looks at them.

    bytes -> deserializer -> message, or the error in its place -> service, or the status of the error

Streams of requests meet the error where they read. gRPC by itself would answer UNKNOWN to what is no message, and log a
traceback; and it would refuse what is too long without the name of the setting. It still does so for what is beyond
`receive_bytes_max`, so that nobody fills the memory.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from google.protobuf.message import DecodeError
from pequod_proto.commands import MESSAGE_SLACK_BYTES

from pequod.engine import LimitExceededError, PequodError
from pequod.errors import BadRequestError
from pequod_server.config import ServerConfig
from pequod_server.handlers import Context, Handler, method_of, refuse


def receive_bytes_max(config: ServerConfig) -> int:
    """Return how long a message may be before gRPC itself refuses it."""
    return min(config.message_bytes_max + MESSAGE_SLACK_BYTES, (1 << 31) - 1)


def refusing_undecodable(handler: Handler, bytes_max: int) -> Handler:
    """Return a handler that refuses requests of more than ``bytes_max``, and what cannot be decoded.

    One that reads a stream of requests meets a LimitExceededError or a DecodeError, and has to refuse by itself.
    """
    if handler.request_deserializer is None:
        return handler
    behaviour, make = method_of(handler)
    deserialize = _bounded(handler.request_deserializer, bytes_max)
    if handler.request_streaming:
        return make(behaviour, deserialize, handler.response_serializer)
    checked = _checked_generator if inspect.isasyncgenfunction(behaviour) else _checked_coroutine
    return make(checked(behaviour), _keeping_errors(deserialize), handler.response_serializer)


def undecodable(error: DecodeError) -> BadRequestError:
    """Return the refusal of a request that cannot be decoded."""
    return BadRequestError(f"the request is no message of this call: {error}")


def _bounded(deserialize: Callable[[bytes], Any], bytes_max: int) -> Callable[[bytes], Any]:
    def deserialized(data: bytes) -> Any:
        if len(data) > bytes_max:
            raise LimitExceededError("message_bytes_max", len(data), bytes_max)
        return deserialize(data)

    return deserialized


def _keeping_errors(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def deserialized(data: bytes) -> Any:
        try:
            return deserialize(data)
        except LimitExceededError as error:
            return error
        except DecodeError as error:
            return undecodable(error)

    return deserialized


def _checked_coroutine(
    behaviour: Callable[[Any, Context], Awaitable[Any]],
) -> Callable[[Any, Context], Awaitable[Any]]:
    async def checked(request: object, context: Context) -> object:
        if isinstance(request, PequodError):
            await refuse(context, request)
        return await behaviour(request, context)

    return checked


def _checked_generator(
    behaviour: Callable[[Any, Context], AsyncIterator[Any]],
) -> Callable[[Any, Context], AsyncIterator[Any]]:
    async def checked(request: object, context: Context) -> AsyncIterator[Any]:
        if isinstance(request, PequodError):
            await refuse(context, request)
        async for reply in behaviour(request, context):
            yield reply

    return checked
