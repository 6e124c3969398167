"""From what a server refuses to gRPC status codes; the facts go along as google.rpc.ErrorInfo."""

from __future__ import annotations

from typing import Final

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status
from pequod_proto.contract import STOPPING
from pequod_proto.pequod_pb2 import CommandError

from pequod.engine import PequodError
from pequod.errors import QuotaExceededError
from pequod.refusals import REFUSALS
from pequod_server.wire.publishing import public

#: The domain of our ErrorInfo reasons.
DOMAIN: Final = "pequod.v1"

#: The message travels in metadata twice, in one of them with three characters for each byte that is not ASCII.
_MESSAGE_BYTES_MAX: Final = 1024


def code_of(error: PequodError) -> grpc.StatusCode:
    """Return the canonical code of an error."""
    refusal = REFUSALS.get(type(error))
    return grpc.StatusCode.UNKNOWN if refusal is None else grpc.StatusCode[refusal.code]


def facts_of(error: PequodError) -> dict[str, str]:
    """Return the facts that an error carries, as text."""
    refusal = REFUSALS.get(type(error))
    return {} if refusal is None else refusal.say(error)


def command_error(error: PequodError) -> CommandError:
    """Encode why one command failed."""
    error = public(error)
    return CommandError(
        code=code_of(error).value[0], message=str(error), reason=type(error).__name__, facts=facts_of(error)
    )


def status_of(error: PequodError) -> grpc.Status:
    """Return the status of an error, with its details, as clients may know them."""
    error = public(error)
    retry_s = error.retry_s if isinstance(error, QuotaExceededError) else None
    return _status(code_of(error), str(error), type(error).__name__, facts_of(error), retry_s)


def stopping_status() -> grpc.Status:
    """Return the status of calls that a stopping server refuses, and of batches that it leaves without a reply.

    Requires:
        Nothing of what got no reply was applied: clients rely on it and send it to the next server.
    """
    return _status(grpc.StatusCode.UNAVAILABLE, "the server is stopping", STOPPING, {})


def version_status(speaks: int, version_min: int, version_max: int) -> grpc.Status:
    """Return the status of a server's call in versions of their protocol that this one does not speak."""
    text = (
        f"this server speaks version {speaks} of the protocol between servers, and the caller {version_min} to "
        f"{version_max}; bring the older one up to date"
    )
    return _status(grpc.StatusCode.FAILED_PRECONDITION, text, "PeerVersionError", {})


def _status(
    code: grpc.StatusCode, message: str, reason: str, facts: dict[str, str], retry_s: float | None = None
) -> grpc.Status:
    infos: list[Message] = [error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN, metadata=facts)]
    if retry_s is not None:
        delay = duration_pb2.Duration()
        delay.FromNanoseconds(round(retry_s * 1e9))
        infos.append(error_details_pb2.RetryInfo(retry_delay=delay))
    details = [any_pb2.Any() for _ in infos]
    for detail, info in zip(details, infos, strict=True):
        detail.Pack(info)
    number, _ = code.value
    status: grpc.Status = rpc_status.to_status(
        status_pb2.Status(code=number, message=_shortened(message), details=details)
    )
    return status


def _shortened(message: str) -> str:
    data = message.encode()
    if len(data) <= _MESSAGE_BYTES_MAX:
        return message
    return f"{data[:_MESSAGE_BYTES_MAX].decode(errors='ignore')}…"
