"""How calls end: as gRPC says it, from what HTTP/2 and the server have said."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from grpc import StatusCode

from pequod.native.http2.client import CANCEL, REFUSED, End
from pequod.wire.metadata import metadata_of, text_of

_CODES: Final = {code.value[0]: code for code in StatusCode}
#: What a status of HTTP without one of gRPC means.
_OF_HTTP: Final = {
    400: StatusCode.INTERNAL,
    401: StatusCode.UNAUTHENTICATED,
    403: StatusCode.PERMISSION_DENIED,
    404: StatusCode.UNIMPLEMENTED,
    429: StatusCode.UNAVAILABLE,
    502: StatusCode.UNAVAILABLE,
    503: StatusCode.UNAVAILABLE,
    504: StatusCode.UNAVAILABLE,
}
#: What a reset of a stream means, by HTTP/2's codes.
_OF_RESETS: Final = {
    REFUSED: StatusCode.UNAVAILABLE,
    CANCEL: StatusCode.CANCELLED,
    11: StatusCode.RESOURCE_EXHAUSTED,
    12: StatusCode.PERMISSION_DENIED,
}
#: What is said of a call that the server has certainly not begun.
NOT_BEGUN: Final = "the server did not begin the call"
#: The beginnings of a transport's text if no server has begun a call; then nothing was applied.
NOT_APPLIED: Final = ("failed to connect", "DNS resolution failed", NOT_BEGUN)


class Status(NamedTuple):
    """How a call has ended."""

    code: StatusCode
    details: str
    trailing: list[tuple[str, str | bytes]]


OK: Final = Status(StatusCode.OK, "", [])


def status_of(end: End) -> Status:
    """Return the status of a call that the server has ended, one way or another."""
    if end.code >= 0:
        code = _OF_RESETS.get(end.code, StatusCode.INTERNAL)
        why = NOT_BEGUN if end.code == REFUSED else f"the server reset the stream with HTTP/2's code {end.code}"
        return Status(code, why, [])
    if end.is_overlong:
        return Status(StatusCode.RESOURCE_EXHAUSTED, "the trailing metadata are too long", [])
    if not end.is_grpc and end.status < 0:
        code = _OF_HTTP.get(end.http_status, StatusCode.UNKNOWN)
        return Status(code, f"the reply is none of gRPC's, its HTTP status is {end.http_status}", [])
    if end.status < 0:
        return Status(StatusCode.UNKNOWN, "the server ended the call without a status", metadata_of(end.fields))
    if end.status == 0 and end.is_cut:
        return Status(StatusCode.INTERNAL, "the last message of the reply is cut short", [])
    text = text_of(unquote_to_bytes(end.text)) if end.text else ""
    return Status(_CODES.get(end.status, StatusCode.UNKNOWN), text, metadata_of(end.fields))


def overlong(size: int, bytes_max: int) -> Status:
    """Return the status of a call whose reply is longer than the client lets in."""
    return Status(
        StatusCode.RESOURCE_EXHAUSTED, f"CLIENT: Received message larger than max ({size} vs. {bytes_max})", []
    )
