"""Messages to records, and errors of the wire to exceptions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import grpc
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status
from pequod_proto import pequod_pb2 as pb
from pequod_proto.commands import MESSAGE_SLACK_BYTES, STOPPING

from pequod.calls import BackingStatistics, Join, ServerStatistics
from pequod.engine.explain import (
    CoverageExplanation,
    JoinExplanation,
    PartExplanation,
    PartState,
    RangeExplanation,
    SourceExplanation,
    Upkeep,
)
from pequod.engine.statistics import JoinStatistics, TableStatistics
from pequod.errors import (
    BackedKeyError,
    ComputedKeyError,
    DeadlineExceededError,
    InvalidKeyError,
    JoinError,
    LimitExceededError,
    NotWatchableError,
    PequodError,
    PermissionDeniedError,
    Span,
    UnauthenticatedError,
    UnavailableError,
    UnknownJoinError,
    WatchCompactedError,
)

#: How gRPC begins to say that it reached nobody; then nothing was applied.
_NOT_CONNECTED: Final = ("failed to connect", "DNS resolution failed")
#: How gRPC says that it refused a message, without asking the server.
_TOO_LONG: Final = re.compile(r"^SERVER: Received message larger than max \((\d+) vs\. (\d+)\)")


def joins(messages: list[pb.Join]) -> list[Join]:
    """Decode installed joins."""
    return [Join(message.name, message.text, tuple(message.warnings)) for message in messages]


def join_explanation(message: pb.JoinExplanation) -> JoinExplanation:
    """Decode a join's plan."""
    return JoinExplanation(
        name=message.name,
        text=message.text,
        maintenance=message.maintenance,
        is_unique=message.is_unique,
        warnings=tuple(message.warnings),
        sources=tuple(
            SourceExplanation(
                source=source.source,
                reads=source.reads,
                narrowed_by=source.narrowed_by or None,
                binds=tuple(source.binds),
                upkeep=Upkeep(source.upkeep),
                computed_by=tuple(source.computed_by),
            )
            for source in message.sources
        ),
    )


def range_explanation(first: bytes, last: bytes | None, message: pb.RangeExplanation) -> RangeExplanation:
    """Decode what a read would find."""
    return RangeExplanation(
        first,
        last,
        message.stored_keys,
        tuple(
            CoverageExplanation(
                coverage.join,
                tuple(
                    PartExplanation(
                        part.first, part.last, PartState(part.state), part.rows, part.updaters, part.log_entries
                    )
                    for part in coverage.parts
                ),
                coverage.next_read,
            )
            for coverage in message.joins
        ),
    )


def statistics(message: pb.StatsReply) -> ServerStatistics:
    """Decode the statistics of a server."""
    return ServerStatistics(
        revision=message.header.revision,
        loose_keys=message.loose_keys,
        tables={
            table.table: TableStatistics(table.keys, table.key_bytes, table.value_bytes, table.groups)
            for table in message.tables
        },
        joins={
            join.join: JoinStatistics(
                rows=join.rows,
                key_bytes=join.key_bytes,
                contexts=join.contexts,
                status_ranges=join.status_ranges,
                updaters=join.updaters,
                log_entries=join.log_entries,
                age_s=join.age_s,
                hits=join.hits,
                computed_ranges=join.computed_ranges,
                rows_computed=join.rows_computed,
                log_applied=join.log_applied,
                invalidations=join.invalidations,
                not_a_number=join.not_a_number,
            )
            for join in message.joins
        },
        backing=_backing(message.backing) if message.HasField("backing") else None,
    )


def _backing(message: pb.BackingStatistics) -> BackingStatistics:
    return BackingStatistics(
        mode=message.mode,
        state=message.state,
        error=message.error,
        position=message.position if message.HasField("position") else None,
        lag=message.lag if message.HasField("lag") else None,
        age_s=message.age_s if message.HasField("age_s") else None,
        loaded_ranges=message.loaded_ranges,
        feed_failures=message.feed_failures,
        reloads=message.reloads,
        flights=message.flights,
        ranges=message.ranges,
        rows=message.rows,
        changes=message.changes,
        changes_applied=message.changes_applied,
        writes=message.writes,
    )


def command_error(error: pb.CommandError) -> PequodError:
    """Return the exception of one command of a batch."""
    return _rebuild(error.reason, error.message, dict(error.facts), None)


def unavailable(target: str, reason: str, metadata: grpc.aio.Metadata | None) -> UnavailableError:
    """Return the exception of a server that is not there, or went away, by what gRPC says of it."""
    is_unapplied = reason.startswith(_NOT_CONNECTED) or STOPPING in map(_info_reason, _details(metadata))
    if not is_unapplied:
        reason += " (whether writes under way were applied is not known)"
    return UnavailableError(target, reason, is_unapplied=is_unapplied)


def _details(metadata: grpc.aio.Metadata | None) -> list[Any]:
    for key, value in metadata or ():
        if key == "grpc-status-details-bin" and isinstance(value, bytes):
            return list(status_pb2.Status.FromString(value).details)
    return []


def _info_reason(detail: Any) -> str | None:
    info = error_details_pb2.ErrorInfo()
    return info.reason if detail.Unpack(info) else None


def call_error(error: grpc.aio.AioRpcError, target: str, timeout_s: float, text: str | None = None) -> PequodError:
    """Return the exception of a failed call; ``text`` is what a join error points into."""
    code = error.code()
    if code is grpc.StatusCode.UNAVAILABLE:
        return unavailable(target, error.details() or "the connection was lost", error.trailing_metadata())
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlineExceededError(target, timeout_s)
    return refusal(error, target, text)


def refusal(error: grpc.aio.AioRpcError, target: str, text: str | None = None) -> PequodError:
    """Return the exception of a call that the server refused."""
    code = error.code()
    message = error.details() or code.name
    status = rpc_status.from_call(error)
    for detail in status.details if status is not None else ():
        if detail.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
            info = error_details_pb2.ErrorInfo()
            detail.Unpack(info)
            return _rebuild(info.reason, message, dict(info.metadata), text)
    if (sizes := _TOO_LONG.search(message)) is not None:
        size, maximum = map(int, sizes.groups())
        return LimitExceededError("message_bytes_max", size, maximum - MESSAGE_SLACK_BYTES)
    return PequodError(f"{target} answered {code.name}: {message}")


def _rebuild(reason: str, message: str, facts: Mapping[str, str], text: str | None) -> PequodError:
    try:
        match reason:
            case "JoinError":
                return _join_error(facts, text)
            case "ComputedKeyError":
                return ComputedKeyError(bytes.fromhex(facts["key_hex"]), facts["join"])
            case "BackedKeyError":
                return BackedKeyError(bytes.fromhex(facts["key_hex"]))
            case "LimitExceededError":
                return LimitExceededError(facts["setting"], int(facts["size"]), int(facts["maximum"]))
            case "InvalidKeyError":
                return InvalidKeyError(bytes.fromhex(facts["key_hex"]), message.partition(" is not valid: ")[2])
            case "NotWatchableError":
                return NotWatchableError(facts["join"], facts["reason"])
            case "WatchCompactedError":
                return WatchCompactedError(facts["reason"])
            case "UnknownJoinError":
                return UnknownJoinError(facts["name"])
            case "UnauthenticatedError":
                return UnauthenticatedError(message)
            case "PermissionDeniedError":
                last = bytes.fromhex(facts["last_hex"]) if "last_hex" in facts else None
                return PermissionDeniedError(facts["role"], facts["right"], bytes.fromhex(facts["first_hex"]), last)
            case _:
                return PequodError(message)
    except (KeyError, ValueError):
        # A server of another version; its message still says what is wrong.
        return PequodError(message)


def _join_error(facts: Mapping[str, str], text: str | None) -> JoinError:
    span = None
    if "line" in facts:
        span = Span(int(facts["start"]), int(facts["end"]), int(facts["line"]), int(facts["column"]))
    return JoinError(facts["reason"], hint=facts["hint"], span=span, text=text)
