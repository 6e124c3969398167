"""Connections of HTTP/2 in the native core, from the client's side: a state machine without I/O.

    open, send, finish, take -> calls;    bytes of a socket -> receive -> events;    output -> bytes for the socket

A call with one reply that ends well is one event with its message: nothing is made of its headers.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple, Protocol, TypeAlias

from pequod.native import core
from pequod.native.http2 import Fields

#: A message as it came, or a compressed one with its encoding; the size of one that is too long.
Taken: TypeAlias = bytes | tuple[bytes, bytes] | int
#: Codes of HTTP/2 with which streams end.
REFUSED, CANCEL = 7, 8
#: A stream's window: what of it may come before a caller wants it.
STREAM_WINDOW_BYTES: Final = 1 << 20
#: Trailing metadata of one call, each with 32 bytes more, and the text of a status.
HEADER_BYTES_MAX: Final = 16 << 10


class ClientEvent(IntEnum):
    """What has happened; see pequod/native/http2/client.hpp."""

    DONE = 0
    MESSAGE = 1
    EMPTIED = 2
    ENDED = 3
    GREETED = 4
    LEAVING = 5


class End(NamedTuple):
    """How a call has ended, if it is not one with one reply that went well."""

    #: gRPC's status; -1: none has come.
    status: int
    text: bytes
    #: The trailing metadata.
    fields: Fields
    #: Messages that came before and were not taken.
    rest: list[Taken]
    #: The status of HTTP, 0 if there is none; the code with which the stream was reset, -1 if it was not.
    http_status: int
    code: int
    #: Whether the response was one of gRPC at all; its trailing metadata was too long; its last message is cut short.
    is_grpc: int
    is_overlong: int
    is_cut: int


class NativeClientSession(Protocol):
    """One connection, from the client's side."""

    #: Bytes of messages that came and were not taken, and of those that are not sent.
    unread_bytes: int
    unsent_bytes: int
    stream_count: int

    @property
    def has_output(self) -> bool:
        """Whether `output` may have bytes."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come or go."""

    def receive(self, data: bytes | memoryview, /) -> list[tuple[int, int, object]]:
        """Take bytes of the socket, and return the events since the last call: kind, stream and detail.

        The detail of DONE is the message, that of MESSAGE as `take` returns it, that of ENDED an `End` as a tuple.

        Raises:
            ConnectionError: They are no HTTP/2.
        """

    def events(self) -> list[tuple[int, int, object]]:
        """Return the events since the last call, which sending made."""

    def output(self, most: int, /) -> bytes:
        """Return bytes for the socket: the frames up to the one that brings them to ``most``."""

    def open(
        self,
        path: bytes,
        timeout: bytes | None,
        metadata: Fields | None,
        message: bytes | None,
        is_unary: bool,  # noqa: FBT001 - native
        /,
    ) -> int:
        """Begin a call and return its stream; 0: the connection takes no more.

        Args:
            message: The only one of the request; None: `send` and `finish` will say.
            is_unary: The reply is one message, which comes with the end of the call.
        """

    def send(self, stream: int, message: bytes, /) -> int:
        """Send a message; return how many bytes of the stream wait, -1 if it takes no more."""

    def finish(self, stream: int, /) -> None:
        """End the request."""

    def take(self, stream: int, /) -> Taken | bool | None:
        """Return the next message; None: it is not there, and MESSAGE will bring it. False: the call is over."""

    def when_emptied(self, stream: int, /) -> bool:
        """Return whether something of a stream waits; then EMPTIED will tell when it has gone."""

    def reset(self, stream: int, code: int, /) -> None:
        """End a call at once; nothing more is told of it."""

    def ping(self) -> None:
        """Send a ping."""

    def terminate(self) -> None:
        """End the connection, once the output has told the server."""

    def close(self) -> None:
        """Let go of all calls; nothing happens any more."""


def new_client_session(
    authority: bytes,
    agent: bytes,
    message_bytes_max: int,
    *,
    is_secure: bool,
    window_bytes: int = STREAM_WINDOW_BYTES,
) -> NativeClientSession:
    """Return a connection that has just been made.

    Args:
        authority: What the server is called.
        agent: What the client is.
        message_bytes_max: Longer messages are not let in.

    Requires:
        `why_absent` has returned None.
    """
    limits = message_bytes_max, HEADER_BYTES_MAX, window_bytes
    session: NativeClientSession = core.ClientSession(*limits, authority, agent, is_secure)  # type: ignore[union-attr]
    return session
