"""The replies of a watch of many ranges with changes: columns, encoded natively where the core is.

A message for each change would take far longer to make and to read; of columns, most of the time goes into their copies
in protobuf's own form.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pequod_proto import pequod_pb2 as pb

from pequod.engine import Change, Expired
from pequod.native import core
from pequod_server.calls.revision_changes import RevisionChanges

#: A change has both values; see `kinds` in a WatchRangesReply.
_BOTH: Final = b"\x03"


class ToldColumns(NamedTuple):
    """A WatchRangesReply with changes."""

    data: bytes
    #: The keys of the changes, of which there is nothing but the number.
    keys: range


def told_columns(reply: pb.WatchRangesReply, batch: RevisionChanges) -> ToldColumns:
    """Return a reply with the changes of a batch.

    Args:
        reply: What is said beside them.
        batch: The changes.
    """
    keys = range(len(batch.changes))
    if core is not None:
        data = core.encode_changes(reply.SerializeToString(), batch.changes)
        return ToldColumns(data, keys)
    add_columns(reply, batch)
    return ToldColumns(reply.SerializeToString(), keys)


def add_columns(reply: pb.WatchRangesReply, batch: RevisionChanges) -> None:
    """Add the changes of a batch to a reply."""
    changes = batch.changes
    if not changes:
        return
    keys, olds, news = zip(*changes, strict=True)
    numbers, counts = zip(*changes.runs(), strict=True)
    reply.ranges.extend(numbers)
    reply.counts.extend(counts)
    reply.keys.extend(keys)
    if None in olds or None in news or Expired in set(map(type, changes)):
        reply.kinds = bytes(map(_kind, changes))
        reply.olds.extend([old or b"" for old in olds])
        reply.values.extend([new or b"" for new in news])
    else:
        reply.kinds = _BOTH * len(changes)
        reply.olds.extend(olds)
        reply.values.extend(news)


def encoded(reply: ToldColumns | pb.WatchRangesReply) -> bytes:
    """Return the bytes of a reply."""
    return reply.data if isinstance(reply, ToldColumns) else reply.SerializeToString()


def _kind(change: Change) -> int:
    """Return which values a change has, and whether the key has expired, as the columns have it."""
    return (change.old is not None) | (change.new is not None) << 1 | isinstance(change, Expired) << 2
