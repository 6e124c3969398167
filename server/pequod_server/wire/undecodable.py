"""Requests that are too long or no messages: refused by name, before anything looks at them.

    bytes -> deserializer -> message, or the error in its place -> service, or the status of the error

Streams of requests meet the error where they read. gRPC by itself would answer UNKNOWN to what is no message, and log a
traceback; and it would refuse what is too long without the name of the setting. It still does so for what is beyond
`receive_bytes_max`, so that no client fills the memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from pequod_proto.contract import MESSAGE_SLACK_BYTES
from pequod_proto.pequod_pb2 import DESCRIPTOR

from pequod.engine import LimitExceededError, PequodError
from pequod.errors import BadRequestError
from pequod_server.config import ServerConfig
from pequod_server.memory.admission import message_bytes_max
from pequod_server.wire.contents import Contents
from pequod_server.wire.errors import status_of
from pequod_server.wire.handlers import Context, Handler, checked_first, end_call, method_of


def receive_bytes_max(bytes_max: int) -> int:
    """Return how long a message may be before gRPC itself refuses it, by its length, unread."""
    return min(bytes_max + MESSAGE_SLACK_BYTES, (1 << 31) - 1)


def refusing_undecodable(method: str, handler: Handler, config: ServerConfig) -> Handler:
    """Return a handler of one of our methods that refuses what is too long, holds too much, or cannot be decoded.

    One that reads a stream of requests meets a PequodError or a DecodeError, and has to refuse by itself.
    """
    if handler.request_deserializer is None:
        return handler
    # Batches are left as bytes: the call decodes what the native core does not.
    decode = bytes if handler.request_deserializer is bytes else Contents(request_type(method), config).message
    deserialize = _bounded(decode, message_bytes_max(config))
    if handler.request_streaming:
        behaviour, make = method_of(handler)
        return make(behaviour, deserialize, handler.response_serializer)
    return checked_first(handler, _refuse_error, _keeping_errors(deserialize))


def undecodable(error: DecodeError) -> BadRequestError:
    """Return the refusal of a request that cannot be decoded."""
    return BadRequestError(f"the request is no message of this call: {error}")


def request_type(method: str) -> type[Message]:
    """Return the class of the requests of one of our methods, by its path."""
    _, service, name = method.split("/")
    found = DESCRIPTOR.services_by_name[service.rpartition(".")[2]].methods_by_name[name]
    return GetMessageClass(found.input_type)


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
        except PequodError as error:
            return error
        except DecodeError as error:
            return undecodable(error)

    return deserialized


async def _refuse_error(request: object, _context: Context) -> None:
    if isinstance(request, PequodError):
        # Not raised as it is: its traceback would lead to the frames that hold it in the request's place.
        end_call(status_of(request))
