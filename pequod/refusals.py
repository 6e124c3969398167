"""Refusals on the wire: one table of exceptions, their canonical codes and their facts.

    server:  exception -> code, message, name of its class, facts as text -> google.rpc.ErrorInfo, or a CommandError
    client:  name, message and facts -> the same exception

docs/api.md shows the table; facts have the names of the exceptions' attributes. Keys are in hexadecimal under
``..._hex``, since they may be any bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pequod.errors import (
    BackedKeyError,
    BackfillEndedError,
    BackingStaleError,
    BackingUnavailableError,
    BadRequestError,
    ClusterMapError,
    ComputedKeyError,
    CoordinatorUnavailableError,
    DiskFullError,
    InvalidConditionError,
    InvalidDeltaError,
    InvalidKeyError,
    InvalidPieceError,
    InvalidTokenError,
    InvalidTtlError,
    JoinError,
    LimitExceededError,
    MapChangedError,
    MapFixedError,
    MixedWriteError,
    NoClusterError,
    NoDeadlineError,
    NotBackfillableError,
    NotHomeError,
    NotNumberError,
    NotReplaceableError,
    NotWatchableError,
    PackError,
    PequodError,
    PermissionDeniedError,
    QuotaExceededError,
    ReplacementEndedError,
    SchemaError,
    SnapshotError,
    Span,
    StaleError,
    SumTooLongError,
    TokenLostError,
    TransactionError,
    UnassignedKeyError,
    UnauthenticatedError,
    UnknownBackfillError,
    UnknownJoinError,
    WatchCompactedError,
    WriteRefusedError,
)

#: A refusal travels in metadata, which gRPC keeps below 8 KiB: longer texts are cut to their beginning.
_FACT_MAX: Final = 1024
_SPAN: Final = ("start", "end", "line", "column")

Facts = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Refusal:
    """How the exceptions of one class are written on the wire."""

    #: The name of the canonical code.
    code: str
    #: The facts of an exception as text, and back.
    say: Callable[[Any], dict[str, str]]
    rebuild: Callable[[Facts], PequodError]


@dataclass(frozen=True, slots=True)
class _Kind:
    """How a fact of one type is written."""

    say: Callable[[Any], str]
    read: Callable[[str], Any]
    suffix: str = ""
    #: Whether it may be None; None is not sent.
    is_optional: bool = False


_TEXT: Final = _Kind(lambda text: text[:_FACT_MAX], str)
_ADVICE: Final = replace(_TEXT, is_optional=True)
_LINES: Final = _Kind(lambda lines: "\n".join(lines)[:_FACT_MAX], str.splitlines)
_INT: Final = _Kind(str, int)
_SECONDS: Final = _Kind(repr, float)
_AGE: Final = replace(_SECONDS, is_optional=True)
_WAIT: Final = replace(_SECONDS, is_optional=True)
_KEY: Final = _Kind(lambda key: key[:_FACT_MAX].hex(), bytes.fromhex, "_hex")
_BOUND: Final = replace(_KEY, is_optional=True)


def _with(code: str, make: Callable[..., PequodError], **kinds: _Kind) -> Refusal:
    """Return the refusal for a class whose attributes are its arguments."""

    def say(error: PequodError) -> dict[str, str]:
        values = ((name, kind, getattr(error, name)) for name, kind in kinds.items())
        return {name + kind.suffix: kind.say(value) for name, kind, value in values if value is not None}

    def rebuild(facts: Facts) -> PequodError:
        names = {name: name + kind.suffix for name, kind in kinds.items()}
        absent = {name for name, kind in kinds.items() if kind.is_optional and names[name] not in facts}
        return make(**{name: None if name in absent else kind.read(facts[names[name]]) for name, kind in kinds.items()})

    return Refusal(code, say, rebuild)


def _say_join(error: JoinError) -> dict[str, str]:
    place = {} if error.span is None else {name: str(getattr(error.span, name)) for name in _SPAN}
    return {"reason": error.reason, "hint": error.hint, **place}


def _rebuild_join(facts: Facts) -> JoinError:
    span = Span(*(int(facts[name]) for name in _SPAN)) if "line" in facts else None
    return JoinError(facts["reason"], hint=facts["hint"], span=span)


REFUSALS: Final[dict[type[PequodError], Refusal]] = {
    BadRequestError: _with("INVALID_ARGUMENT", BadRequestError, reason=_TEXT),
    JoinError: Refusal("INVALID_ARGUMENT", _say_join, _rebuild_join),
    InvalidConditionError: _with("INVALID_ARGUMENT", InvalidConditionError, number=_INT),
    TransactionError: _with("INVALID_ARGUMENT", TransactionError, reason=_TEXT, hint=_TEXT),
    InvalidDeltaError: _with("INVALID_ARGUMENT", InvalidDeltaError, delta=_KEY),
    InvalidTtlError: _with("INVALID_ARGUMENT", InvalidTtlError, ttl=_TEXT, rule=_TEXT),
    InvalidKeyError: _with("INVALID_ARGUMENT", InvalidKeyError, key=_KEY, reason=_TEXT),
    PackError: _with("INVALID_ARGUMENT", PackError, place=_TEXT, reason=_TEXT),
    UnknownJoinError: _with("NOT_FOUND", UnknownJoinError, name=_TEXT),
    ComputedKeyError: _with("FAILED_PRECONDITION", ComputedKeyError, key=_KEY, join=_TEXT),
    NotNumberError: _with("FAILED_PRECONDITION", NotNumberError, key=_KEY),
    SumTooLongError: _with("OUT_OF_RANGE", SumTooLongError, key=_KEY, maximum=_INT),
    BackedKeyError: _with("FAILED_PRECONDITION", BackedKeyError, key=_KEY),
    NoDeadlineError: _with("FAILED_PRECONDITION", NoDeadlineError, key=_KEY),
    UnassignedKeyError: _with("FAILED_PRECONDITION", UnassignedKeyError, key=_KEY),
    NotWatchableError: _with("FAILED_PRECONDITION", NotWatchableError, join=_TEXT, reason=_TEXT),
    WriteRefusedError: _with("FAILED_PRECONDITION", WriteRefusedError, store=_TEXT, reason=_TEXT),
    SchemaError: _with("FAILED_PRECONDITION", SchemaError, store=_TEXT, problems=_LINES),
    MixedWriteError: _with("FAILED_PRECONDITION", MixedWriteError, place=_TEXT),
    SnapshotError: _with("FAILED_PRECONDITION", SnapshotError, place=_TEXT, reason=_TEXT),
    NotBackfillableError: _with("FAILED_PRECONDITION", NotBackfillableError, join=_TEXT, reason=_TEXT),
    NotReplaceableError: _with("FAILED_PRECONDITION", NotReplaceableError, join=_TEXT, reason=_TEXT),
    ReplacementEndedError: _with("ABORTED", ReplacementEndedError, join=_TEXT, reason=_TEXT),
    InvalidPieceError: _with("INVALID_ARGUMENT", InvalidPieceError, first=_KEY, last=_KEY, reason=_TEXT),
    UnknownBackfillError: _with("NOT_FOUND", UnknownBackfillError, number=_INT),
    BackfillEndedError: _with("ABORTED", BackfillEndedError, join=_TEXT, reason=_TEXT),
    ClusterMapError: _with("INVALID_ARGUMENT", ClusterMapError, place=_TEXT, reason=_TEXT),
    NoClusterError: _with("FAILED_PRECONDITION", NoClusterError, reason=_TEXT),
    NotHomeError: _with("FAILED_PRECONDITION", NotHomeError, key=_KEY, map_version=_INT),
    WatchCompactedError: _with("OUT_OF_RANGE", WatchCompactedError, reason=_TEXT),
    LimitExceededError: _with(
        "RESOURCE_EXHAUSTED", LimitExceededError, setting=_TEXT, size=_INT, maximum=_INT, advice=_ADVICE
    ),
    QuotaExceededError: _with(
        "RESOURCE_EXHAUSTED", QuotaExceededError, role=_TEXT, quota=_TEXT, maximum=_SECONDS, retry_s=_WAIT
    ),
    DiskFullError: _with("RESOURCE_EXHAUSTED", DiskFullError, folder=_TEXT, free_bytes=_INT),
    UnauthenticatedError: _with("UNAUTHENTICATED", UnauthenticatedError, reason=_TEXT),
    PermissionDeniedError: _with(
        "PERMISSION_DENIED", PermissionDeniedError, role=_TEXT, right=_TEXT, first=_KEY, last=_BOUND
    ),
    BackingUnavailableError: _with("UNAVAILABLE", BackingUnavailableError, store=_TEXT, reason=_TEXT),
    StaleError: _with("UNAVAILABLE", StaleError, age_s=_AGE, wait_s=_SECONDS, reason=_TEXT),
    TokenLostError: _with("FAILED_PRECONDITION", TokenLostError, reason=_TEXT),
    InvalidTokenError: _with("INVALID_ARGUMENT", InvalidTokenError, reason=_TEXT),
    CoordinatorUnavailableError: _with("UNAVAILABLE", CoordinatorUnavailableError, coordinator=_TEXT, reason=_TEXT),
    MapChangedError: _with("ABORTED", MapChangedError, version=_INT),
    MapFixedError: _with("FAILED_PRECONDITION", MapFixedError, place=_TEXT, version=_INT),
    BackingStaleError: _with("UNAVAILABLE", BackingStaleError, age_s=_SECONDS, stale_max_s=_SECONDS, reason=_TEXT),
}

_BY_NAME: Final = {kind.__name__: refusal for kind, refusal in REFUSALS.items()}


def rebuilt(name: str, message: str, facts: Facts) -> PequodError:
    """Return the exception for a server's refusal.

    Args:
        name: The name of its class; if it is unknown here, the message still says what is wrong.
    """
    refusal = _BY_NAME.get(name)
    if refusal is None:
        return PequodError(message)
    try:
        return refusal.rebuild(facts)
    except (KeyError, ValueError):
        # The server has another version.
        return PequodError(message)
