"""The parts of replies that a caller may not read, and that are left out: joins, keys, tables, figures of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pequod_proto import pequod_pb2 as pb

from pequod.engine import Engine
from pequod.language.ranges import within
from pequod.language.spec import DELIMITER
from pequod_server.access.grants import Right, Role, keys_of
from pequod_server.wire.handlers import SERVICE_PATH

#: Takes out of a reply the parts that a role may not see.
Trim = Callable[[Role, Any], None]


class Trims:
    """The trims of all calls."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._trims: dict[str, Trim] = {
            "ListJoins": self._trim_joins,
            "AddJoin": _trim_added,
            "CheckJoin": _trim_checked,
            "Explain": _trim_explanation,
            "Stats": self._trim_statistics,
            "ListBackfills": self._trim_backfills,
            "ListReplacements": self._trim_replacements,
        }

    def trim_of(self, method: str) -> Trim:
        """Return the trim of a method."""
        return self._trims.get(method.removeprefix(SERVICE_PATH), _trim_nothing)

    def _visible_joins(self, role: Role) -> set[str]:
        shown = (Right.READ, Right.ADMIN, Right.JOIN)
        return {
            join.name
            for join in self._engine.joins()
            if any(role.may(right, *keys_of(join.spec.output)) for right in shown)
        }

    def _trim_joins(self, role: Role, reply: pb.ListJoinsReply) -> None:
        visible = self._visible_joins(role)
        _keep(reply.joins, lambda join: join.name in visible)

    def _trim_backfills(self, role: Role, reply: pb.ListBackfillsReply) -> None:
        visible = self._visible_joins(role)
        _keep(reply.backfills, lambda backfill: backfill.join in visible)

    def _trim_replacements(self, role: Role, reply: pb.ListReplacementsReply) -> None:
        visible = self._visible_joins(role)
        _keep(reply.replacements, lambda replacement: replacement.join in visible)

    def _trim_statistics(self, role: Role, reply: pb.StatsReply) -> None:
        visible = self._visible_joins(role)
        _keep(reply.joins, lambda kept: kept.join in visible)
        for kept in reply.joins:
            for named in (kept.largest, kept.hottest):
                _keep(named, lambda context: _may_see(role, *within(context.prefix, b"", None)))
        _keep(reply.tables, lambda kept: _may_see(role, *within(kept.table + DELIMITER, b"", None)))
        _keep(reply.heat.groups, lambda one: _may_see(role, *within(one.group, b"", None)))
        _keep(reply.heat.ranges, lambda one: _may_see(role, one.first, one.last if one.HasField("last") else None))
        if not _may_see(role, b"", None):
            reply.heat.cores = 0
            reply.loose_keys = reply.expiring_keys = reply.expired_keys = 0
            # The error may say where a database is.
            for one in reply.databases:
                one.ClearField("error")
            for field in ("memory", "calls", "call_bounds_s", "commands"):
                reply.ClearField(field)


def _trim_added(role: Role, reply: pb.AddJoinReply) -> None:
    """Leave out the notes on keys that the role may not read."""
    for join in reply.joins:
        _trim_notes(role, join.notes)


def _trim_notes(role: Role, notes: Any) -> None:
    _keep(notes, lambda note: role.may(Right.READ, note.first, note.last))


def _trim_explanation(role: Role, reply: pb.ExplainReply) -> None:
    """Leave out the keys of sources that the role may not read, and notes on them.

    It may see how often values of sources gave no row.
    """
    if reply.WhichOneof("explanation") == "join":
        _trim_plan(role, reply.join)
    else:
        _trim_notes(role, reply.range.notes)


def _trim_plan(role: Role, plan: pb.JoinExplanation) -> None:
    _trim_notes(role, plan.notes)
    for source in plan.sources:
        for misfit in source.misfits:
            if not role.read.holds(misfit.key):
                misfit.ClearField("key")


def _trim_checked(role: Role, reply: pb.CheckJoinReply) -> None:
    """Leave out what an explanation does not show the role, and rows that it may not read."""
    for join in reply.joins:
        _trim_plan(role, join.explanation)
        rows = [(key, value) for key, value in zip(join.keys, join.values, strict=True) if role.read.holds(key)]
        join.keys[:], join.values[:] = [key for key, _ in rows], [value for _, value in rows]


def _keep(messages: Any, is_kept: Callable[[Any], bool]) -> None:
    """Remove the messages of a repeated field for which ``is_kept`` returns false."""
    kept = [message for message in messages if is_kept(message)]
    del messages[:]
    messages.extend(kept)


def _trim_nothing(_role: Role, _reply: object) -> None:
    pass


def _may_see(role: Role, first: bytes, last: bytes | None) -> bool:
    return role.may(Right.READ, first, last) or role.may(Right.ADMIN, first, last)
