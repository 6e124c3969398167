"""From what the engine refuses to gRPC status codes; the facts go along as google.rpc.ErrorInfo."""

from __future__ import annotations

from typing import Final

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status
from pequod_proto.commands import STOPPING

from pequod.engine import (
    BackedKeyError,
    ComputedKeyError,
    InvalidKeyError,
    JoinError,
    LimitExceededError,
    NotWatchableError,
    PequodError,
    UnknownJoinError,
)
from pequod.errors import PermissionDeniedError, UnauthenticatedError, WatchCompactedError
from pequod_server.backing import (
    BackingStaleError,
    BackingUnavailableError,
    PackError,
    SchemaError,
    WriteRefusedError,
)

#: The domain of our ErrorInfo reasons.
DOMAIN: Final = "pequod.v1"

#: Details travel in metadata, which gRPC keeps below 8 KiB: of longer keys and names the beginning must do.
_KEY_MAX: Final = 1024
_SPAN: Final = ("start", "end", "line", "column")

_CODES: Final[dict[type[PequodError], grpc.StatusCode]] = {
    JoinError: grpc.StatusCode.INVALID_ARGUMENT,
    InvalidKeyError: grpc.StatusCode.INVALID_ARGUMENT,
    LimitExceededError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    BackedKeyError: grpc.StatusCode.FAILED_PRECONDITION,
    BackingUnavailableError: grpc.StatusCode.UNAVAILABLE,
    BackingStaleError: grpc.StatusCode.UNAVAILABLE,
    SchemaError: grpc.StatusCode.FAILED_PRECONDITION,
    PackError: grpc.StatusCode.INVALID_ARGUMENT,
    WriteRefusedError: grpc.StatusCode.FAILED_PRECONDITION,
    ComputedKeyError: grpc.StatusCode.FAILED_PRECONDITION,
    UnknownJoinError: grpc.StatusCode.NOT_FOUND,
    NotWatchableError: grpc.StatusCode.FAILED_PRECONDITION,
    WatchCompactedError: grpc.StatusCode.OUT_OF_RANGE,
    UnauthenticatedError: grpc.StatusCode.UNAUTHENTICATED,
    PermissionDeniedError: grpc.StatusCode.PERMISSION_DENIED,
}


def code_of(error: PequodError) -> grpc.StatusCode:
    """Return the canonical code of an error."""
    return _CODES.get(type(error), grpc.StatusCode.UNKNOWN)


def facts_of(error: PequodError) -> dict[str, str]:
    """Return the facts that an error carries, as text; keys in hexadecimal, since they may be any bytes."""
    match error:
        case JoinError(reason=reason, hint=hint, span=span):
            place = {} if span is None else {name: str(getattr(span, name)) for name in _SPAN}
            return {"reason": reason, "hint": hint, **place}
        case LimitExceededError(setting=setting, size=size, maximum=maximum):
            return {"setting": setting, "size": str(size), "maximum": str(maximum)}
        case ComputedKeyError(key=key, join=join):
            return {"key_hex": key[:_KEY_MAX].hex(), "join": join}
        case InvalidKeyError(key=key) | BackedKeyError(key=key):
            return {"key_hex": key[:_KEY_MAX].hex()}
        case NotWatchableError(join=join, reason=reason):
            return {"join": join, "reason": reason}
        case WatchCompactedError(reason=reason):
            return {"reason": reason}
        case UnknownJoinError(name=name):
            return {"name": name[:_KEY_MAX]}
        case PermissionDeniedError(role=role, right=right, first=first, last=last):
            end = {} if last is None else {"last_hex": last.hex()}
            return {"role": role, "right": right, "first_hex": first.hex(), **end}
        case _:
            return {}


def status_of(error: PequodError) -> grpc.Status:
    """Return the status of an error, with its details."""
    return _status(code_of(error), str(error), type(error).__name__, facts_of(error))


def stopping_status() -> grpc.Status:
    """Return the status of calls that a stopping server refuses, and of batches that it leaves without a reply.

    Requires:
        Nothing of what got no reply was applied: clients rely on it and send it to the next server.
    """
    return _status(grpc.StatusCode.UNAVAILABLE, "the server is stopping", STOPPING, {})


def _status(code: grpc.StatusCode, message: str, reason: str, facts: dict[str, str]) -> grpc.Status:
    info = error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN, metadata=facts)
    detail = any_pb2.Any()
    detail.Pack(info)
    number, _ = code.value
    status: grpc.Status = rpc_status.to_status(status_pb2.Status(code=number, message=message, details=[detail]))
    return status
