"""A follower keeps parts of views equal to their ranges, all by one watch.

    position unknown, or too old     the watch gives rows      a transaction a part: fence, differences, new position
    position known                   the watch goes on         a transaction a beat: all fences, rows and positions

Whatever fails, the follower reads the positions from the database again and goes on from there. So it does not matter
whether a transaction whose connection broke was committed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import aclosing, suppress
from itertools import pairwise
from typing import Final

from pequod.answers.rows import Rows
from pequod.client import AsyncClient
from pequod.client.watch_ranges import RangesEvent, WatchedRange
from pequod.errors import ClosedError, DeadlineExceededError, PequodError, UnavailableError, WatchCompactedError
from pequod_views.errors import OtherServerError, TargetAwayError, TargetBusyError, TargetRefusedError
from pequod_views.fence import PartFence
from pequod_views.followed import Counts, FollowedPart, FollowerSettings, PartRefusedError
from pequod_views.origins import OriginNotes, as_origins, demand_same, known, origins_of
from pequod_views.parts import Advance
from pequod_views.steps import CHUNK_ROWS, PartStep, changes_of, position_of, replacement, step_of
from pequod_views.targets import Target, TargetTransaction
from pequod_views.waiting import WaitingEvents

log = logging.getLogger("pequod.views")

_PAUSE_S: Final = 0.1
_PAUSE_S_MAX: Final = 2.0
#: A position that stays the same is written again after this time, so that its age tells how old the table may be.
_STILL_S: Final = 5.0


class Follower:
    """Follows some parts of a manager, until they are to be shared out to followers anew.

    Invariants:
        1. ``parts`` are the parts that the manager has given it and that it has not lost.
    """

    def __init__(
        self,
        client: AsyncClient,
        target: Target,
        parts: Sequence[FollowedPart],
        settings: FollowerSettings,
        counts: Counts,
    ) -> None:
        self.parts = list(parts)
        #: Whether its watch stands, and all parts go on by changes.
        self.is_level = False
        #: Whether the server is not the one of the views.
        self.is_refused = False
        self._client = client
        self._target = target
        self._fence = PartFence(target)
        self._settings = settings
        self._counts = counts
        self._pause_s = _PAUSE_S

    @property
    def takes_others(self) -> bool:
        """Whether parts that go on by changes may join its own."""
        return self.is_level and all(part.goes_on for part in self.parts)

    @property
    def has_parts_to_leave(self) -> bool:
        """Whether the manager has taken parts from it, and all others go on by changes."""
        return self.is_level and not all(part.is_held for part in self.parts)

    async def run(self) -> None:
        """Follow the ranges until a part is lost, needs its rows again, or has to be alone."""
        while self.parts:
            try:
                return await self._follow()
            except WatchCompactedError as error:
                log.info("rows are read again: %s", error.reason)
                for part in self.parts:
                    part.is_behind = True
            except TargetBusyError as error:
                await self._rest(str(error), is_told=False)
            except TargetAwayError as error:
                self._counts.target_failures += 1
                await self._rest(str(error), is_told=False)
            except (UnavailableError, DeadlineExceededError) as error:
                self._counts.server_failures += 1
                await self._rest(str(error))
            except ClosedError:
                return None
            except OtherServerError as error:
                self.is_refused = True
                await self._rest(str(error))
            except PartRefusedError as error:
                if self._goes_apart([error.part]):
                    return None
                await self._rest(str(error))
            except PequodError as error:
                # A refusal by the server or the target: a person has to mend it, and then it goes on.
                if self._goes_apart(self.parts):
                    return None
                await self._rest(str(error))
        return None

    def _goes_apart(self, refused: Sequence[FollowedPart]) -> bool:
        """Have parts be followed alone if others are here, which shall not wait for them; return whether they are."""
        if len(self.parts) == 1:
            return False
        for part in refused:
            part.is_apart = True
        return True

    async def _rest(self, trouble: str, *, is_told: bool = True) -> None:
        """Note the trouble, and wait a little longer each time."""
        self.is_level = False
        fresh = [part for part in self.parts if part.trouble != trouble]
        for part in fresh:
            part.trouble = trouble
        if fresh:
            log.warning("%s: %s", _named(fresh, "waits", "wait"), trouble)
        if is_told:
            # A database that refuses the note as well has lost its ledger, which the manager finds at its next beat.
            with suppress(TargetAwayError, TargetRefusedError):
                await self._fence.tell_trouble([part.held for part in self.parts], trouble)
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _PAUSE_S_MAX)

    def _is_well(self, parts: Sequence[FollowedPart]) -> None:
        """Note that parts have gone forward."""
        mended = [part for part in parts if part.trouble]
        if mended:
            log.info("%s", _named(mended, "goes on", "go on"))
        for part in parts:
            part.trouble, part.is_apart = "", False
        self._pause_s, self.is_refused = _PAUSE_S, False

    def _lose(self, parts: Sequence[FollowedPart]) -> None:
        for part in parts:
            part.is_held = False
            self.parts.remove(part)
            self._counts.parts_lost += 1
            log.warning("the part of %s has been taken by another manager", part)

    async def _follow(self) -> None:
        """Follow the ranges; return when the parts are to be shared out anew."""
        self.parts = [part for part in self.parts if part.is_held]
        if not self.parts:
            return
        positions = await self._fence.positions(self.parts[0].held.owner)
        self._lose([part for part in self.parts if not part.read(positions)])
        if not self.parts:
            return
        parts, views = list(self.parts), list({part.view.name: part.view for part in self.parts}.values())
        noted = await OriginNotes(self._target).of_all([view.name for view in views])
        if self._settings.joins and any(part.needs_rows for part in parts):
            # Another server is left as it is.
            origins = await origins_of(self._client, views[0])
            for view in views:
                demand_same(view.name, noted[view.name], origins)
            await self._client.add_join(self._settings.joins)
        events = self._client.watch_ranges(list(map(_range_of, parts)), progress_s=self._settings.progress_s)
        async with aclosing(events):
            begin = await anext(events)
            origins = known(as_origins(begin.origins))
            for view in views:
                demand_same(view.name, noted[view.name], origins)
            if not await self._begin(parts, begin):
                return
            del begin
            self.is_level = True
            waiting = WaitingEvents(self._settings.changes_max)
            filling = asyncio.create_task(waiting.fill(events))
            try:
                while await self._take_in(parts, await waiting.take()):
                    pass
            finally:
                self.is_level = False
                filling.cancel()
                await asyncio.gather(filling, return_exceptions=True)

    async def _begin(self, parts: Sequence[FollowedPart], begin: RangesEvent) -> bool:
        """Replace the rows of parts that need it; return whether all parts go on from here."""
        refusals = list[PartRefusedError]()
        for number, part in enumerate(parts):
            if not part.is_held:
                continue
            if number in begin.ended:
                reason = begin.ended[number]
                if part.needs_rows:
                    refusals.append(PartRefusedError(part, reason))
                else:
                    log.info("%s: its rows are read again: %s", part, reason)
                part.is_behind = True
            elif number in begin.rows or part.needs_rows:
                try:
                    await self._replace(part, begin, number)
                except TargetRefusedError as error:
                    refusals.append(PartRefusedError(part, str(error)))
        if refusals and not self._goes_apart([one.part for one in refusals]):
            raise refusals[0]
        return not begin.ended and not refusals and len(parts) == len(self.parts)

    async def _replace(self, part: FollowedPart, begin: RangesEvent, number: int) -> None:
        """Make the part what the event shows, in one transaction: readers see it before or after."""
        view = part.view
        advance, chunks = await replacement(view, part.position, begin, begin.rows.pop(number, Rows([], [])))
        # Each chunk stands for the keys from its first one up to that of the next chunk; the first chunk from the
        # beginning of the part on.
        bounds = [part.held.part.first, *(_key(chunk[0][0]) for chunk in chunks[1:]), part.held.part.last]
        async with self._target.transaction() as transaction:
            moved = await self._advance(transaction, [(part, advance)])
            if moved:
                for chunk, (first, last) in zip(chunks or [[]], pairwise(bounds), strict=True):
                    assert first is not None, "only the last bound is open"
                    await transaction.delete_others(view, first, last, [_key(row[0]) for row in chunk])
                    if chunk:
                        await transaction.upsert(view, chunk)
                await self._fence.renew(transaction, [part.held], self._settings.lease_s)
        if not moved:
            self._lose([part])
            return
        self._counts.transactions += 1
        self._counts.replacements += 1
        part.is_behind = False
        part.position, part.unfit_count, part.written_s = advance.after, advance.unfit_count, time.monotonic()
        self._is_well([part])

    async def _take_in(self, parts: Sequence[FollowedPart], events: Sequence[RangesEvent]) -> bool:
        """Take in events in one transaction; return whether all parts go on."""
        last, changes, now_s = events[-1], changes_of(events), time.monotonic()
        ended = {number: reason for event in events for number, reason in event.ended.items()}
        steps = list[tuple[FollowedPart, PartStep]]()
        for number, part in enumerate(parts):
            if part.is_held and number not in ended and (number in changes or self._is_due(part, last, now_s)):
                found = changes.get(number, ())
                steps.append((part, step_of(part.view, part.position, last, found, unfit_count=part.unfit_count)))
        if steps:
            await self._write(steps)
        for number, reason in ended.items():
            log.info("%s: its rows are read again: %s", parts[number], reason)
            parts[number].is_behind = True
        return not ended and len(self.parts) == len(parts)

    def _is_due(self, part: FollowedPart, last: RangesEvent, now_s: float) -> bool:
        """Return whether the position of a part without changes is to be moved, for tokens and for its age."""
        wait_s = _STILL_S if position_of(last) == part.position else self._settings.progress_s
        return bool(part.trouble) or now_s - part.written_s >= wait_s

    async def _write(self, steps: Sequence[tuple[FollowedPart, PartStep]]) -> None:
        """Take steps of parts in one transaction; parts that were taken by another manager are left out, and lost.

        Raises:
            PartRefusedError: The target refuses rows of a part; nothing was written.
        """
        writing: FollowedPart | None = None
        began_s = time.monotonic()
        try:
            async with self._target.transaction() as transaction:
                moved = await self._advance(transaction, [(part, step.advance) for part, step in steps])
                for part, step in steps:
                    if part in moved:
                        writing = part
                        await _write_rows(transaction, part, step)
                writing = None
                if time.monotonic() - began_s > self._settings.lease_s / 2:
                    await self._fence.renew(transaction, [part.held for part in moved], self._settings.lease_s)
        except TargetRefusedError as error:
            if writing is None:
                raise
            raise PartRefusedError(writing, str(error)) from error
        now_s = time.monotonic()
        self._counts.transactions += 1
        for part, step in steps:
            if part in moved:
                part.take(step, now_s)
                self._counts.changes += step.advance.change_count
        self._is_well(moved)
        self._lose([part for part, _ in steps if part not in moved])

    async def _advance(
        self, transaction: TargetTransaction, steps: Sequence[tuple[FollowedPart, Advance]]
    ) -> list[FollowedPart]:
        """Move parts at the beginning of a transaction; return those that are moved."""
        held = [(part.held, advance) for part, advance in steps]
        places = await self._fence.advance_all(transaction, held, self._settings.lease_s)
        moved = [(part, advance) for part, advance in steps if part.held.part.place in places]
        logged = [(part.held, advance) for part, advance in moved if part.view.is_logged]
        if logged:
            await self._fence.note(transaction, logged)
        return [part for part, _ in moved]


async def _write_rows(transaction: TargetTransaction, part: FollowedPart, step: PartStep) -> None:
    for start in range(0, len(step.deleted), CHUNK_ROWS):
        await transaction.delete(part.view, step.deleted[start : start + CHUNK_ROWS])
    for start in range(0, len(step.written), CHUNK_ROWS):
        await transaction.upsert(part.view, step.written[start : start + CHUNK_ROWS])


def _range_of(part: FollowedPart) -> WatchedRange:
    """Return the range of a part as its watch begins."""
    first, last, position = part.held.part.first, part.held.part.last, part.position
    if position is None or part.needs_rows:
        return WatchedRange(first, last, rows=True)
    return WatchedRange(first, last, after=(position.server_id, position.revision))


def _named(parts: Sequence[FollowedPart], one: str, many: str) -> str:
    """Return parts with a verb, for messages."""
    return f"{parts[0]} {one}" if len(parts) == 1 else f"{parts[0]} and {len(parts) - 1} more parts {many}"


def _key(cell: object) -> bytes:
    assert isinstance(cell, bytes), "the first cell of a row is its key"
    return cell
