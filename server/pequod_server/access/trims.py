"""What is left out of replies about joins that the caller may see: keys and tables that it may not read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pequod_proto import pequod_pb2 as pb

from pequod_server.access.grants import Right, Role


def trim_added(role: Role, reply: pb.AddJoinReply) -> None:
    """Leave out the notes on keys that the role may not read."""
    for join in reply.joins:
        _trim_notes(role, join.notes)


def _trim_notes(role: Role, notes: Any) -> None:
    keep(notes, lambda note: role.may(Right.READ, note.first, note.last))


def trim_explanation(role: Role, reply: pb.ExplainReply) -> None:
    """Leave out the keys of sources that the role may not read, and notes on them.

    It may see how often values of sources gave no row.
    """
    _trim_notes(role, reply.join.notes if reply.WhichOneof("explanation") == "join" else reply.range.notes)
    for source in reply.join.sources:
        for misfit in source.misfits:
            if not role.read.holds(misfit.key):
                misfit.ClearField("key")


def keep(messages: Any, is_kept: Callable[[Any], bool]) -> None:
    """Remove the messages of a repeated field for which ``is_kept`` returns false."""
    kept = [message for message in messages if is_kept(message)]
    del messages[:]
    messages.extend(kept)
