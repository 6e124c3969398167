"""A follower keeps one part of a view equal to its range.

    position unknown, or too old     watch with rows    one transaction: fence, differences, new position
    position known                   watch after it     one transaction for all waiting events: fence, rows, position

Whatever fails, the follower reads the position from the database again and goes on from there. So it does not matter
whether a transaction whose connection broke was committed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import aclosing, suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from pequod.calls import WatchEvent
from pequod.client import AsyncClient
from pequod.errors import ClosedError, DeadlineExceededError, PequodError, UnavailableError, WatchCompactedError
from pequod.escapes import shown
from pequod_views.definition import DurableView
from pequod_views.errors import OtherServerError, PartLostError, TargetAwayError
from pequod_views.ledger import Advance, HeldPart, PartLedger, Position
from pequod_views.origins import OriginNotes, as_origins, demand_same, known, origins_of
from pequod_views.steps import CHUNK_ROWS, position_of, replacement, step_of
from pequod_views.targets import Target, TargetTransaction
from pequod_views.waiting import WaitingEvents

log = logging.getLogger("pequod.views")

_PAUSE_S: Final = 0.1
_PAUSE_S_MAX: Final = 2.0
#: How long the client itself tries to reach the server again before the follower notes the trouble.
_RECONNECT_S: Final = 3.0
#: A position that stays the same is written again after this time, so that its age tells how old the table may be.
_STILL_S: Final = 5.0


@dataclass(slots=True)
class Counts:
    """What a manager has done since its start."""

    transactions: int = 0
    changes: int = 0
    replacements: int = 0
    target_failures: int = 0
    server_failures: int = 0
    parts_lost: int = 0


@dataclass(frozen=True, slots=True)
class FollowerSettings:
    """How followers work."""

    lease_s: float = 4.0
    #: After this time without changes the position is moved on, so that tokens are reached.
    progress_s: float = 1.0
    #: Changes that wait for a transaction; beyond it the server keeps them.
    changes_max: int = 20_000
    #: Installed before the rows of a range are read.
    joins: str = ""


class PartFollower:
    """Keeps one part that a manager holds."""

    def __init__(
        self,
        client: AsyncClient,
        target: Target,
        view: DurableView,
        held: HeldPart,
        settings: FollowerSettings,
        counts: Counts,
    ) -> None:
        self._client = client
        self._target = target
        self._ledger = PartLedger(target)
        self._view = view
        self.held = held
        self._settings = settings
        self._counts = counts
        #: The server cannot continue after the position, so all rows are read again.
        self._is_behind = False
        self._trouble = ""
        #: The server is not the one of the view.
        self.is_refused = False
        self._pause_s = _PAUSE_S
        #: When the position was written last.
        self._written_s = 0.0

    @property
    def trouble(self) -> str:
        """Why the part does not go on; empty if it does."""
        return self._trouble

    async def run(self) -> None:
        """Follow the range until another manager has the part."""
        while True:
            try:
                await self._follow(await self._ledger.position(self.held))
            except PartLostError as error:
                self._counts.parts_lost += 1
                log.warning("%s", error)
                return
            except WatchCompactedError as error:
                log.info("%s: its rows are read again: %s", self._name, error.reason)
                self._is_behind = True
            except TargetAwayError as error:
                self._counts.target_failures += 1
                await self._rest(str(error), is_told=False)
            except (UnavailableError, DeadlineExceededError) as error:
                self._counts.server_failures += 1
                await self._rest(str(error))
            except ClosedError:
                return
            except OtherServerError as error:
                self.is_refused = True
                await self._rest(str(error))
            except PequodError as error:
                # A refusal by the server or the target: a person has to mend it, and then it goes on.
                await self._rest(str(error))

    @property
    def _name(self) -> str:
        return f"{self.held.part.view} from {shown(self.held.part.first)}"

    async def _rest(self, trouble: str, *, is_told: bool = True) -> None:
        """Note the trouble, and wait a little longer each time."""
        if trouble != self._trouble:
            log.warning("%s waits: %s", self._name, trouble)
            self._trouble = trouble
        if is_told:
            with suppress(TargetAwayError):
                await self._ledger.tell_trouble(self.held, trouble)
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _PAUSE_S_MAX)

    def _is_well(self) -> None:
        if self._trouble:
            log.info("%s goes on", self._name)
        self._trouble, self._pause_s, self.is_refused = "", _PAUSE_S, False

    async def _follow(self, position: Position | None) -> None:
        part, settings = self.held.part, self._settings
        with_rows = position is None or self._is_behind
        noted = (await OriginNotes(self._target).of_all([part.view]))[part.view]
        if with_rows and settings.joins:
            # Another server is left as it is.
            demand_same(part.view, noted, await origins_of(self._client, self._view))
            await self._client.add_join(settings.joins)
        after = None
        if position is not None and not with_rows:
            after = WatchEvent(position.revision, [], server_id=position.server_id)
        events = self._client.watch(
            part.first,
            part.last,
            rows=with_rows,
            reconnect_s=_RECONNECT_S,
            progress_s=settings.progress_s,
            after=after,
        )
        async with aclosing(events):
            begin = await anext(events)
            demand_same(part.view, noted, known(as_origins(begin.origins)))
            if with_rows:
                await self._replace(position, begin)
                self._is_behind = False
                position = position_of(begin)
            assert position is not None, "a watch without rows continues after a position"
            del begin
            self._is_well()
            waiting = WaitingEvents(settings.changes_max)
            filling = asyncio.create_task(waiting.fill(events))
            try:
                while True:
                    position = await self._take_in(position, await waiting.take())
            finally:
                filling.cancel()
                await asyncio.gather(filling, return_exceptions=True)

    async def _replace(self, before: Position | None, event: WatchEvent) -> None:
        """Make the part what the event shows, in one transaction: readers see it before or after."""
        advance, chunks = await replacement(self._view, before, event)
        part, view = self.held.part, self._view
        # Each chunk stands for the keys from its first one up to that of the next chunk; the first chunk from the
        # beginning of the part on.
        bounds = [part.first, *(_key(chunk[0][0]) for chunk in chunks[1:]), part.last]
        async with self._target.transaction() as transaction:
            await self._begin(transaction, advance)
            for chunk, (first, last) in zip(chunks or [[]], pairwise(bounds), strict=True):
                assert first is not None, "only the last bound is open"
                await transaction.delete_others(view, first, last, [_key(row[0]) for row in chunk])
                if chunk:
                    await transaction.upsert(view, chunk)
            await self._ledger.renew(transaction, self.held, self._settings.lease_s)
        self._counts.transactions += 1
        self._counts.replacements += 1

    async def _take_in(self, position: Position, events: list[WatchEvent]) -> Position:
        """Take in events in one transaction; return the position behind them."""
        step = step_of(self._view, position, events)
        if step.advance.after == position and time.monotonic() - self._written_s < _STILL_S:
            return position
        async with self._target.transaction() as transaction:
            await self._begin(transaction, step.advance)
            for start in range(0, len(step.deleted), CHUNK_ROWS):
                await transaction.delete(self._view, step.deleted[start : start + CHUNK_ROWS])
            for start in range(0, len(step.written), CHUNK_ROWS):
                await transaction.upsert(self._view, step.written[start : start + CHUNK_ROWS])
        self._written_s = time.monotonic()
        self._counts.transactions += 1
        self._counts.changes += step.advance.change_count
        self._is_well()
        return step.advance.after

    async def _begin(self, transaction: TargetTransaction, advance: Advance) -> None:
        await self._ledger.advance(
            transaction, self.held, advance, lease_s=self._settings.lease_s, is_logged=self._view.is_logged
        )


def _key(cell: object) -> bytes:
    assert isinstance(cell, bytes), "the first cell of a row is its key"
    return cell
