"""The levels of freshness that calls demand, and the token and age of replies as bytes."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from pequod_proto import pequod_pb2 as pb

from pequod.freshness import TOKEN_BYTES_MAX, WAIT_S, After, AnyState, Freshness, Latest, MaxAge, Token, varint
from pequod_server.backing import Place
from pequod_server.database.loader import Loader

#: Requests that read.
Leveled = (
    pb.GetRequest
    | pb.MultiGetRequest
    | pb.ScanRequest
    | pb.CountRequest
    | pb.TtlRequest
    | pb.WatchRequest
    | pb.WatchRangesRequest
    | pb.ExecuteRequest
    | pb.TransactionRequest
)
#: The longest wait, whatever a request says: a stream of batches has no deadline.
WAIT_S_MAX: Final = 60.0
#: A level with the longest token, and the time to wait for it.
_LEVEL_BYTES_MAX: Final = TOKEN_BYTES_MAX + 32
_TOKEN_TAG: Final = bytes([10 << 3 | 2])
_AGE_TAG: Final = bytes([11 << 3])


class Demand:
    """The level that one call asks for, from the moment at which the call began."""

    __slots__ = ("began_s", "deadline_s", "level", "places")

    def __init__(self, level: Freshness, began_s: float) -> None:
        self.level = level
        self.began_s = began_s
        self.deadline_s = began_s + level.wait_s
        #: The places of databases when they were asked for their latest state.
        self.places: dict[Loader, Place] = {}


def level_of(request: Leveled) -> Freshness | None:
    """Return what a request asks for; None if that is what the server's settings say.

    Raises:
        InvalidTokenError: It asks for a state after something that is no token.
    """
    return read_level(request.freshness) if request.HasField("freshness") else None


def read_level(message: pb.Freshness) -> Freshness | None:
    """Return the level that a message describes; None if it names none.

    Raises:
        InvalidTokenError: It names a state after something that is no token.
    """
    wait_s = min(message.wait_ms / 1000, WAIT_S_MAX) if message.HasField("wait_ms") else WAIT_S
    match message.WhichOneof("level"):
        case "after":
            return After(Token.parse(message.after), wait_s)
        case "latest" if message.latest:
            return Latest(wait_s)
        case "max_age_ms":
            return MaxAge(message.max_age_ms / 1000, wait_s)
    return None


def known_level(message: bytes) -> Freshness | None:
    """Return the level that a message, as bytes, describes; those that come again and again are read once.

    Raises:
        InvalidTokenError, DecodeError: It describes none.
    """
    # What is longer has fields that this server does not know, as many bytes of them as its caller likes.
    return _known(message) if len(message) <= _LEVEL_BYTES_MAX else _read(message)


def _read(message: bytes) -> Freshness | None:
    return read_level(pb.Freshness.FromString(message))


_known: Final = lru_cache(maxsize=1024)(_read)


def kind_of(level: Freshness | None) -> str:
    """Return the name of a level for people and metrics."""
    match level:
        case After():
            return "after"
        case Latest():
            return "latest"
        case MaxAge():
            return "max_age"
        case AnyState() | None:
            return "any"


def token_field(token: bytes) -> bytes:
    """Return the token as a field of an ExecuteReply; empty for an empty token."""
    return _TOKEN_TAG + varint(len(token)) + token if token else b""


def age_field(age_ms: int) -> bytes:
    """Return the age as a field of an ExecuteReply."""
    return _AGE_TAG + varint(age_ms)
