"""Connections of HTTP/2 in the native core: a state machine without I/O, on the library nghttp2.

The library is found when a process first asks for it: beside the core, where a wheel may have put it, or where the
system has it. There is no twin in Python; a server without it uses another transport.

    bytes of a socket -> receive -> events;    take, send, finish;    output -> bytes for the socket
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from pequod.native import KeyBounds, NativeBatch, core, why_pure

#: What a wheel may bring, by the systems that look for libraries under such names.
_BESIDE: Final = ("libnghttp2.so.14", "libnghttp2.14.dylib")

#: HTTP/2's own window of a stream.
WINDOW_BYTES: Final = (64 << 10) - 1

Fields = list[tuple[bytes, bytes]]


#: Ranges of keys, where they start and where they end; None: all keys.
Ranges = KeyBounds | None
#: The methods that hot calls may have, by the numbers that the core has for them; 0 is none.
HOT_METHODS: Final = (
    *("", "Get", "Put", "Remove", "Count", "Scan", "MultiGet", "MultiPut", "WriteIf", "Add", "Expire", "Ttl"),
)
#: The number of a method, seconds, headers, and the request of a call that took long.
SlowCall = tuple[int, float, Fields, bytes]
#: Seconds, kinds, first argument (None: there is none) and number of rows of a batch that took long.
SlowBatch = tuple[float, bytes, bytes | None, int]
#: A key, or where a range starts, and whether it was written; how many seconds of answering it stands for, and how many
#: of them a command like this one takes.
Sample = tuple[bytes, bool, float, float]
#: How many there were, their seconds, and how many fell into each bucket.
Tally = tuple[int, float, list[int]]


#: What holds while some hot calls run; a plain tuple, as `HotRan`, since each read of a socket makes one of both. The
#: time in seconds; the token of replies, and whether it is the server's own, behind which the revision goes; the age of
#: the data in milliseconds, if it is known; whether reads are as fresh as the server's settings say; the keys that this
#: server takes writes of; how many bytes of rows the reply of a batch may have.
HotTurn = tuple[float, bytes, bool, int | None, bool, Ranges, int]
#: What a run of hot calls did: how many calls were answered; slow calls; the streams whose batches ran, and slow ones
#: of these. And a stream with its batch that has run up to a command that is not quick, or whose reply is long: it is
#: Python's to go on with at once.
HotRan = tuple[int, list[SlowCall] | None, list[int] | None, list[SlowBatch] | None, tuple[int, NativeBatch] | None]


#: The longest message of a hot call, as pequod/native/http2/hot_calls.hpp has it.
HOT_BYTES_MAX: Final = 16 << 10


class HotLimits(NamedTuple):
    """The limits of hot calls, as the server's settings have them."""

    rows_max: int
    commands_max: int
    reply_bytes_max: int
    chunk_bytes: int


class RememberedIds(Protocol):
    """The request ids of writes that may come again."""

    def is_new(self, batch_id: bytes) -> bool:
        """Return whether no write with an id of this batch is remembered."""

    def remember_all(self, batch_id: bytes, outcomes: bytes, count: int) -> None:
        """Keep what writes with ids of a batch have given, one behind the other."""


class NativeHotCalls(Protocol):
    """The hot calls of one server."""

    #: How many calls were answered; and how many of these, and of the batches, read.
    answered: int
    reads: int
    #: When the last call was answered, by the clock of `time.monotonic`.
    answered_s: float
    #: The time that a sample stands for, at the least; 0: each call is one.
    sample_every_s: float
    #: How many calls are on their way to other workers; how many have gone there, and how many of these came back
    #: unanswered.
    relayed_count: int
    passed: int
    returned: int

    def tallies(self) -> list[Tally]:
        """Return a tally of the calls of each of `HOT_METHODS`."""

    def samples(self) -> list[Sample]:
        """Return what the time of calls and batches went to since the last look."""

    def batch_tallies(self) -> tuple[Tally, list[int], int, list[int]]:
        """Return a tally of the batches, how their sizes fell into buckets, all their commands, and those by kind."""


class EventKind(IntEnum):
    """What happened to a stream; see pequod/native/http2/session.hpp."""

    OPENED = 0
    READABLE = 1
    DRAINED = 2
    CLOSED = 3


class NativeSession(Protocol):
    """One connection, from the server's side."""

    #: Bytes of messages that came and were not taken; those among them that nobody waits for.
    unread_bytes: int
    held_bytes: int
    #: Bytes of messages that are not sent.
    unsent_bytes: int
    #: Bytes of the headers of open streams.
    header_bytes: int
    #: All that it holds: unread, unsent and headers.
    total_bytes: int
    stream_count: int
    #: How many hot calls were answered.
    hot_answered: int
    #: When bytes were taken last, by the clock of `time.monotonic`; 0: none were.
    read_s: float
    #: Set by Python: whether it has nothing to do for the connection; and `total_bytes` as they were last noted.
    is_calm: bool
    noted_bytes: int
    #: Calls that may be hot and have come as a whole, and calls with batches, that have not been run.
    hot_count: int

    @property
    def has_output(self) -> bool:
        """Whether `output` may have bytes."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come or go."""

    def receive(self, data: bytes | memoryview) -> list[tuple[int, int, object] | None]:
        """Take bytes of the socket, and return the events since the last call: kind, stream and detail.

        The detail of OPENED are the headers, None if they are too long; that of CLOSED is HTTP/2's code.

        Raises:
            ConnectionError: They are no HTTP/2, or the client keeps back what it owes.
        """

    def events(self) -> list[tuple[int, int, object] | None]:
        """Return the events since the last call, which sending made."""

    def output(self, most: int) -> bytes:
        """Return bytes for the socket: the frames up to the one that brings them to ``most``."""

    def take(self, stream: int) -> bytes | tuple[bytes] | bool | int | None:
        """Return the next message of a stream.

        None: it is not there yet, and READABLE will tell. False: none will come. A number: it is too long, by its
        size. A tuple: it is compressed.
        """

    def send(self, stream: int, message: bytes) -> int:
        """Send a message; return how many bytes of the stream wait, -1 if the stream is over."""

    def begin(self, stream: int, fields: Fields) -> bool:
        """Begin a response with headers of its own; return False if it has begun, or the stream is over."""

    def finish(self, stream: int, trailers: Fields | None, message: bytes | None) -> int:
        """Send a last message, if there is one, and the status: OK without trailers. Return as `send` does."""

    def ignore(self, stream: int) -> None:
        """Drop what nobody took of a stream, and whatever else its client sends on it."""

    def is_half_closed(self, stream: int) -> bool:
        """Return whether the client of a stream has sent everything; of a stream that is over, too."""

    def when_drained(self, stream: int) -> bool:
        """Return whether something of a stream waits; then DRAINED will tell when it has gone."""

    def reset(self, stream: int, code: int) -> None:
        """End a stream at once; what was not sent is dropped."""

    def ping(self) -> None:
        """Send a ping."""

    def say_last(self, is_notice: bool, /) -> None:  # noqa: FBT001 - native
        """Say that no more streams are taken; a notice says that this will come."""

    def use_hot(self, calls: NativeHotCalls, has_guard: bool, /) -> None:  # noqa: FBT001 - native
        """Keep calls back that may be hot: `run_hot` or `hand_over` comes when there are some."""

    def run_hot(self, most: int, unsent_max: int, turn: HotTurn, /) -> HotRan:
        """Answer hot calls; those that are not quick are opened, and nothing of them has happened.

        So are batches run: the messages of calls of Execute whose handlers wait for them, from the second one on. It
        ends behind a batch that is Python's to go on with.

        Args:
            most: How many calls and batches are looked at.
            unsent_max: No further call is begun while as many bytes of replies wait.
        """

    def attach(
        self,
        buffer: memoryview,
        turn: Callable[[], HotTurn | None] | None,
        write: Callable[[bytes], None],
        rest: Callable[[Exception | HotRan | None], None],
        most: int,
        unsent_max: int,
        output_max: int,
        /,
    ) -> None:
        """Have the event loop call `buffer` and `updated` for reads of the socket, until `close`.

        Args:
            buffer: What `buffer` returns.
            turn: Says what holds for hot calls that have come alone; None: they are of the rest.
            write: Sends their replies.
            rest: Called for what else a read brings: with an error, with a run that is to be noted, whose replies
                `output` has, or with None: there are events, or calls that are kept back, or output.
            most, unsent_max: As of `run_hot`.
            output_max: As of `output`.
        """

    def buffer(self, size: int, /) -> memoryview:
        """Return where the bytes of the next read go."""

    def updated(self, size: int, /) -> None:
        """Take as many bytes of the buffer."""

    def hand_over(self) -> None:
        """Open all calls that were kept back, and leave all messages to their handlers."""

    def stranger(self) -> bytes | None:
        """Return the header `authorization` of a call whose rights are not known; empty: it has none. None: no such."""

    def admit(
        self,
        authorization: bytes,
        readable: Ranges,
        writable: Ranges,
        lease: NativeLease | None = ...,
        relay_as: bytes | None = ...,
        /,
    ) -> None:
        """Let calls with this header read and write keys, until `forget_rights`.

        Args:
            lease: What they may use; without it, they may use everything.
            relay_as: By which header of this name other workers know the role; without it, they do not.
        """

    def waited_s(self, stream: int, /) -> float:
        """Return how long ago a call went to another worker that has not answered it, in seconds; 0: it did not."""

    def forget_rights(self) -> None:
        """Forget what `admit` has said."""

    def close(self) -> None:
        """Let go of all streams; nothing happens any more."""


class NativeLease(Protocol):
    """What hot calls of a role with quotas may use; they lower it. Below zero means nothing."""

    commands: int
    keys: int
    bytes: int


def why_absent() -> str | None:
    """Return why there are no such connections, in words; None if there are."""
    if core is None:
        return f"without the native core ({why_pure()})"
    beside = [path for name in _BESIDE if (path := Path(__file__).parents[1] / name).exists()]
    reason: str | None = core.load_nghttp2(str(beside[0]) if beside else "")
    return None if reason is None else f"the library nghttp2 is not there: {reason}"


def new_session(
    message_bytes_max: int, header_bytes_max: int, streams_max: int, window_bytes: int = WINDOW_BYTES
) -> NativeSession:
    """Return a connection that has just been accepted.

    Args:
        message_bytes_max: Longer messages are not let in.
        header_bytes_max: The headers of one request, each with 32 bytes more.
        streams_max: How many streams its client may have open.
        window_bytes: How much of a stream its client may send before a handler wants a longer message.

    Requires:
        `why_absent` has returned None.
    """
    limits = message_bytes_max, header_bytes_max, streams_max, window_bytes
    session: NativeSession = core.Session(*limits)  # type: ignore[union-attr]
    return session


def new_hot_calls(
    engine: object, server_id: int, limits: HotLimits, slow_s: float, ids: RememberedIds
) -> NativeHotCalls:
    """Return the hot calls of a server.

    Args:
        engine: A native one.
        slow_s: Calls that take longer are told of.
        ids: Those of the writes that came last.
    """
    made: NativeHotCalls = core.HotCalls(engine, server_id, *limits, slow_s, ids.is_new, ids.remember_all)  # type: ignore[union-attr]
    return made


def new_lease() -> NativeLease:
    """Return a lease of nothing.

    Requires:
        There is a native core.
    """
    lease: NativeLease = core.Lease()  # type: ignore[union-attr]
    return lease
