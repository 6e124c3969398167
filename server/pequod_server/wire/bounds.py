"""The ranges that requests name."""

from __future__ import annotations

from pequod_proto import pequod_pb2 as pb

from pequod.language.ranges import within

#: A range by its first key and its end, None if it is open.
Bounds = tuple[bytes, bytes | None]
#: Requests that may name a range with an end.
Bounded = pb.WatchRequest | pb.WatchedRange | pb.BeginBackfillRequest | pb.Range
#: Requests that name a range, or the part of it with a prefix.
Ranged = pb.ScanRequest | pb.CountRequest | pb.SplitsRequest | pb.RemoveRangeRequest


def last_of(request: Bounded | Ranged) -> bytes | None:
    """Return where the range ends, None if it is open."""
    return request.last if request.HasField("last") else None


def range_of(request: Ranged) -> Bounds:
    """Return the range, or the part of it with the prefix."""
    return within(request.prefix, request.first, last_of(request))
