"""Messages to records, and errors of the wire to exceptions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import fields
from typing import Final, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2
from pequod_proto import pequod_pb2 as pb
from pequod_proto.contract import MESSAGE_SLACK_BYTES, STOPPING

from pequod.answers.explanations import (
    CoverageExplanation,
    DroppedExplanation,
    IndexExplanation,
    JoinExplanation,
    MisfitExplanation,
    Note,
    PartExplanation,
    PartState,
    RangeExplanation,
    SourceExplanation,
    Upkeep,
)
from pequod.answers.heat import GroupHeat, HeatStatistics, RangeHeat
from pequod.answers.joins import Join, ReplacementStatus
from pequod.answers.statistics import ContextStatistics, JoinStatistics, MemoryStatistics, TableStatistics
from pequod.calls import BackfillStatus, BackingStatistics, PeerStatistics, ServerStatistics
from pequod.errors import DeadlineExceededError, JoinError, LimitExceededError, PequodError, UnavailableError
from pequod.freshness import NO_TOKEN
from pequod.language.ranges import Range
from pequod.refusals import rebuilt
from pequod.wire.ends import NOT_APPLIED

T = TypeVar("T")

#: gRPC's message if it refused a message without asking the server.
_TOO_LONG: Final = re.compile(r"^SERVER: Received message larger than max \((\d+) vs\. (\d+)\)")


def joins(messages: list[pb.Join]) -> list[Join]:
    """Decode installed joins."""
    return [
        Join(message.name, message.text, (*message.warnings, *(note.text for note in message.notes)))
        for message in messages
    ]


def replacement(message: pb.Replacement) -> ReplacementStatus:
    """Decode the progress of a replacement."""
    waits_for = tuple(message.waits_for)
    return _filled(ReplacementStatus, message, is_in_place=message.in_place, waits_for=waits_for)


def _notes(messages: Iterable[pb.Note]) -> tuple[Note, ...]:
    return tuple(Note(message.text, message.first, message.last) for message in messages)


def join_explanation(message: pb.JoinExplanation) -> JoinExplanation:
    """Decode a join's plan."""
    return JoinExplanation(
        name=message.name,
        text=message.text,
        maintenance=message.maintenance,
        is_unique=message.is_unique,
        warnings=tuple(message.warnings),
        notes=_notes(message.notes),
        sources=tuple(
            SourceExplanation(
                source=source.source,
                reads=source.reads,
                narrowed_by=source.narrowed_by or None,
                binds=tuple(source.binds),
                upkeep=Upkeep(source.upkeep),
                computed_by=tuple(source.computed_by),
                index=_index(source.index) if source.HasField("index") else None,
                misfits=tuple(MisfitExplanation(one.reason, one.count, one.key) for one in source.misfits),
            )
            for source in message.sources
        ),
    )


def range_explanation(first: bytes, last: bytes | None, message: pb.RangeExplanation) -> RangeExplanation:
    """Decode what a read of a range would find."""
    return RangeExplanation(
        first,
        last,
        message.stored_keys,
        tuple(
            CoverageExplanation(
                coverage.join,
                tuple(_filled(PartExplanation, part, state=PartState(part.state)) for part in coverage.parts),
                coverage.next_read,
            )
            for coverage in message.joins
        ),
        tuple(_filled(DroppedExplanation, one) for one in message.dropped),
        message.freshness,
        _notes(message.notes),
    )


def statistics(message: pb.StatsReply) -> ServerStatistics:
    """Decode the statistics of a server."""
    return ServerStatistics(
        version=message.version,
        revision=message.header.revision,
        loose_keys=message.loose_keys,
        expiring_keys=message.expiring_keys,
        expired_keys=message.expired_keys,
        tables={table.table: _filled(TableStatistics, table) for table in message.tables},
        joins={
            join.join: _filled(JoinStatistics, join, largest=_contexts(join.largest), hottest=_contexts(join.hottest))
            for join in message.joins
        },
        memory=_filled(MemoryStatistics, message.memory),
        databases=tuple(_filled(BackingStatistics, one) for one in message.databases),
        peers=tuple(_filled(PeerStatistics, one) for one in message.peers),
        subscription_bounds=message.subscription_bounds,
        heat=HeatStatistics(
            message.heat.cores,
            tuple(_filled(GroupHeat, one) for one in message.heat.groups),
            tuple(_filled(RangeHeat, one) for one in message.heat.ranges),
        ),
    )


def _index(message: pb.IndexExplanation) -> IndexExplanation:
    return IndexExplanation(message.order, message.is_made, message.rows, message.bytes)


def _contexts(messages: Iterable[pb.ContextStatistics]) -> tuple[ContextStatistics, ...]:
    return tuple(_filled(ContextStatistics, one) for one in messages)


def _filled(record: type[T], message: Message, **others: object) -> T:
    """Return a record with the fields of a message that have the names of its own; None for those that are absent."""
    given = {}
    for name in {field.name for field in fields(record)} - others.keys():  # type: ignore[arg-type]
        is_absent = message.DESCRIPTOR.fields_by_name[name].has_presence and not message.HasField(name)
        given[name] = None if is_absent else getattr(message, name)
    return record(**given, **others)


def backfill(message: pb.Backfill) -> BackfillStatus:
    """Decode a backfill."""
    sources = tuple(Range(source.first, source.last) for source in message.sources)
    return _filled(BackfillStatus, message, sources=sources, token=NO_TOKEN)


def age_ms_of(message: pb.Header | pb.ExecuteReply) -> int | None:
    """Return the age of the state that a message shows, None if the server does not know it."""
    return message.age_ms if message.HasField("age_ms") else None


def command_error(error: pb.CommandError) -> PequodError:
    """Return the exception of one command of a batch."""
    return rebuilt(error.reason, error.message, dict(error.facts))


def unavailable(target: str, reason: str, metadata: grpc.aio.Metadata | None) -> UnavailableError:
    """Return the exception for a server that is not there, or went away, from gRPC's message."""
    info = _info(metadata)
    is_unapplied = reason.startswith(NOT_APPLIED) or (info is not None and info.reason == STOPPING)
    return UnavailableError(target, reason, is_unapplied=is_unapplied)


def call_error(error: grpc.aio.AioRpcError, target: str, timeout_s: float, text: str | None = None) -> PequodError:
    """Return the exception of a failed call; ``text`` is the text that a join error points into."""
    code = error.code()
    info = _info(error.trailing_metadata())
    if code is grpc.StatusCode.UNAVAILABLE and (info is None or info.reason == STOPPING):
        return unavailable(target, error.details() or "the connection was lost", error.trailing_metadata())
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlineExceededError(target, timeout_s)
    refused = refusal(error, target)
    return refused.with_text(text) if isinstance(refused, JoinError) and text is not None else refused


def refusal(error: grpc.aio.AioRpcError, target: str) -> PequodError:
    """Return the exception of a call that the server refused."""
    code = error.code()
    message = error.details() or code.name
    info = _info(error.trailing_metadata())
    if info is not None:
        return rebuilt(info.reason, message, dict(info.metadata))
    if (sizes := _TOO_LONG.search(message)) is not None:
        size, maximum = map(int, sizes.groups())
        return LimitExceededError("message_bytes_max", size, maximum - MESSAGE_SLACK_BYTES)
    return PequodError(f"{target} answered {code.name}: {message}")


def _info(metadata: grpc.aio.Metadata | None) -> error_details_pb2.ErrorInfo | None:
    """Return the details of a status, if it has any."""
    for key, value in metadata or ():
        if key == "grpc-status-details-bin" and isinstance(value, bytes):
            info = error_details_pb2.ErrorInfo()
            try:
                details = status_pb2.Status.FromString(value).details
            except DecodeError:
                return None
            return next((info for detail in details if detail.Unpack(info)), None)
    return None
