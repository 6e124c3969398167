"""The calls by which a join takes the place of another: begun by one, built between the others, looked at and ended.

ReplaceJoin --> engine.begin_replacement --> task: slice | calls of others | slice | ... | switch | slice ...
ListReplacements, EndReplacement              one at a time; the latest that ended are listed
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from pequod_grammar import parse_one
from pequod_proto import pequod_pb2 as pb

from pequod.engine import Engine, JoinError, JoinSpec, MissingError, NotReplaceableError, PequodError, Replacement
from pequod_server.backing.turns import ended
from pequod_server.calls.served import ServedEngine
from pequod_server.joins import JoinLimits, joins_of_settings
from pequod_server.wire.handlers import Context

#: A slice of building takes this long, and as long a pause follows: reads go on beside it.
SLICE_S: Final = 0.001
#: How many replacements that ended are still listed.
_ENDED_MAX: Final = 16


class Shown:
    """A replacement as callers see it."""

    def __init__(self, replacement: Replacement) -> None:
        self.id = secrets.randbits(63)
        self.replacement = replacement
        self._begun_s = time.monotonic()
        self._ended_s: float | None = None

    def message(self) -> pb.Replacement:
        """Return it as a message."""
        found = self.replacement
        if found.ended is not None and self._ended_s is None:
            self._ended_s = time.monotonic()
        return pb.Replacement(
            id=self.id,
            join=found.name,
            text=str(found.new.spec),
            ranges_built=found.ranges_built,
            ranges_expected=found.ranges_expected,
            age_s=(time.monotonic() if self._ended_s is None else self._ended_s) - self._begun_s,
            in_place=found.is_in_place,
            ended=found.ended or "",
        )


class ReplaceCalls:
    """Answers ReplaceJoin, ListReplacements and EndReplacement.

    Args:
        is_member: Whether the server belongs to a cluster, whose joins are in its map.
    """

    def __init__(self, served: ServedEngine, *, is_member: bool) -> None:
        self._served = served
        self._engine: Engine = served.engine
        #: Called when the joins are others.
        self.on_joins: Callable[[], None] = _nothing
        self._is_member = is_member
        self._join_limits = JoinLimits(served.config)
        #: The latest ones, the newest first.
        self._shown: deque[Shown] = deque(maxlen=_ENDED_MAX)
        self._task: asyncio.Task[None] | None = None

    async def replace(self, request: pb.ReplaceJoinRequest, _context: Context) -> pb.ReplaceJoinReply:
        """Begin to put a join in the place of another, or return how far that is."""
        self._refuse(request.name)
        try:
            replacement = self._engine.begin_replacement(request.name, self._spec(request))
        except JoinError as error:
            raise error.with_text(request.text) from None
        shown = next((one for one in self._shown if one.replacement is replacement), None)
        if shown is None:
            shown = Shown(replacement)
            self._shown.appendleft(shown)
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._go_on(), name="pequod replacement")
        return pb.ReplaceJoinReply(header=self._served.header(), replacement=shown.message())

    async def list_all(self, _request: pb.ListReplacementsRequest, _context: Context) -> pb.ListReplacementsReply:
        """List the replacement under way and the latest that ended."""
        shown = [one.message() for one in self._shown]
        return pb.ListReplacementsReply(header=self._served.header(), replacements=shown)

    async def end(self, request: pb.EndReplacementRequest, _context: Context) -> pb.EndReplacementReply:
        """End a replacement that is not in its place yet."""
        replacement = self._engine.replacement
        if replacement is not None and replacement.name == request.name:
            self._engine.end_replacement(replacement, "it was cancelled")
        return pb.EndReplacementReply(header=self._served.header())

    async def stop(self) -> None:
        """End what is under way; the old join stays."""
        if self._task is not None:
            await ended((self._task,))
        if (replacement := self._engine.replacement) is not None:
            self._engine.end_replacement(replacement, "the server is stopping")

    def _refuse(self, name: str) -> None:
        """Refuse to replace a join that this server does not have for itself.

        Raises:
            NotReplaceableError: It is of a cluster, or of settings that bring it back at the next start.
        """
        if self._is_member:
            raise NotReplaceableError(
                name,
                "the joins of a cluster are in its map; add the new join under another name, move the readers, and "
                "drop this one",
            )
        if self._served.config.data is None:
            return
        fixed = joins_of_settings(self._served.config)
        if any(join.name == name and join.spec in fixed for join in self._engine.joins()):
            raise NotReplaceableError(
                name,
                "it is in the settings, which would install it at the next start beside what the folder of data keeps; "
                "change it there and start again, or take it out and add it by a client",
            )

    def _spec(self, request: pb.ReplaceJoinRequest) -> JoinSpec:
        if request.undo:
            return self._engine.replaced_spec(request.name)
        self._join_limits.refuse_text(request.text)
        return parse_one(request.text)

    async def _go_on(self) -> None:
        """Build, switch and clear, slice by slice, until there is nothing more to do."""
        while True:
            begun_s = time.perf_counter()
            replacement = self._engine.replacement
            if replacement is None:
                if not self._slice(time.monotonic()):
                    return
            else:
                old = replacement.old
                try:
                    await self._served.read(self._slice, old.first, old.last, None)
                except PequodError as error:
                    self._engine.end_replacement(replacement, str(error))
            await asyncio.sleep(min(time.perf_counter() - begun_s, SLICE_S))

    def _slice(self, now: float) -> bool:
        """Go on for a slice; return whether there is more to do."""
        begun_s = time.perf_counter()
        is_first = True
        while True:
            replacement = self._engine.replacement
            try:
                more = self._engine.replace_some(now=now)
            except MissingError:
                if is_first:
                    raise
                # The next slice waits for it: its attempts are counted anew.
                return True
            is_first = False
            if replacement is not None and replacement.is_in_place:
                # In the turn of the switch: no answer that shows it leaves before it is kept.
                self.on_joins()
            if not more or time.perf_counter() >= begun_s + SLICE_S:
                return more


def _nothing() -> None:
    return None
