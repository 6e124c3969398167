"""Propagations and repairs over a store: the algorithms, their turns, and patience while replicas are away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from pequod_views.versioned.algorithms import NoLiveRowError, Request, RowBrokenError, decide, propagate
from pequod_views.versioned.leases import ShareLeases
from pequod_views.versioned.mending import mend
from pequod_views.versioned.records import (
    Forget,
    ForgettingStore,
    Get,
    JoiningStore,
    Put,
    PutAll,
    QuorumError,
    RecordStore,
)
from pequod_views.versioned.rows import Update, VersionedView, base_column, check_cells, marks_of
from pequod_views.versioned.turns import LeaseLostError, Turn

T = TypeVar("T")
_PAUSE_S: Final = 0.01
_PAUSE_S_MAX: Final = 1.0
#: Some megabytes.
_ROWS_MAX: Final = 20_000

#: Begins an algorithm in a turn.
Steps: TypeAlias = Callable[[Turn], Generator[Request, Any, None]]


class Propagator:
    """Carries out algorithms over a store.

    Args:
        leases: Those of the process.
    """

    def __init__(self, store: RecordStore, leases: ShareLeases) -> None:
        self.store = store
        self.majority = store.replica_count // 2 + 1
        self._leases = leases
        #: The row that was live after the last propagation here, by view and base key: a guess that needs no read.
        self._rows: dict[tuple[str, str], str] = {}

    def row_of(self, view: VersionedView, base_key: str) -> str | None:
        """Return the row of a base record that was live when this process looked last, if it remembers one."""
        return self._rows.get((view.name, base_key))

    async def propagate(self, view: VersionedView, updates: Sequence[Update], guesses: Sequence[str]) -> bool:
        """Propagate updates of a base record, however long the replicas are away; return whether they are marked.

        Args:
            guesses: See `rows.guesses`.
        """
        exclusive, at = decide(view, updates), 0
        base_key = updates[0].key
        while True:
            try:
                async with self._leases.hold(view.name, base_key, exclusive=exclusive) as turn:
                    steps = propagate(view, updates, guesses[at], self.majority, turn)
                    propagated = await self.carry_out(steps, turn, is_patient=True)
                break
            except NoLiveRowError:
                # The last guess is the root, which never fails.
                at += 1
            except LeaseLostError:
                # Perhaps all was done in time; doing it twice is as good as once.
                continue
            except RowBrokenError as broken:
                await self.mend(view, broken)
        self._rows[view.name, base_key] = propagated.row
        if len(self._rows) > _ROWS_MAX:
            del self._rows[next(iter(self._rows))]
        return propagated.is_marked and isinstance(self.store, JoiningStore)

    async def mark(self, view: VersionedView, updates: Sequence[Update]) -> None:
        """Say in the base record that updates have been propagated."""
        try:
            await self.store.put(updates[0].table, updates[0].key, marks_of(view, updates), 1)
        except QuorumError:
            # A sweep propagates them once more.
            return

    async def mend(self, view: VersionedView, broken: RowBrokenError) -> None:
        """Mend what was left broken, however long the replicas are away."""

        def steps(turn: Turn) -> Generator[Request, Any, None]:
            return mend(view, broken, self.majority, turn)

        await self.alone(view, broken.base_key, steps, is_patient=True)

    async def alone(self, view: VersionedView, base_key: str, steps: Steps, *, is_patient: bool = False) -> None:
        """Carry out steps while nothing else propagates updates of the record.

        Raises:
            QuorumError: Too few replicas answer, and the call is not patient.
        """
        waiting = [steps]
        while waiting:
            try:
                async with self._leases.hold(view.name, base_key, exclusive=True) as turn:
                    await self.carry_out(waiting[-1](turn), turn, is_patient=is_patient)
                waiting.pop()
            except LeaseLostError:
                continue
            except RowBrokenError as broken:
                waiting.append(partial(mend, view, broken, self.majority))

    async def persist(self, updates: Sequence[Update]) -> None:
        """Make a write of unknown fate, so that the base has what is propagated."""
        cells = {base_column(update.column): update.cell for update in updates}
        await _insist(lambda: self.store.put(updates[0].table, updates[0].key, cells, 1))

    async def carry_out(
        self, steps: Generator[Request, Any, T], turn: Turn | None = None, *, is_patient: bool = False
    ) -> T:
        """Send the requests of an algorithm to the store, and return its result.

        Args:
            is_patient: A request that too few replicas answer is sent again, until enough do. The record stays held, so
                that nobody builds on half of the work.

        Raises:
            EarlierFormatError: A record of the view is of an earlier version.
            LeaseLostError: Another process may have propagated updates of the record meanwhile.
            QuorumError: Too few replicas answer, and the call is not patient.
        """
        reply: Any = None
        while True:
            try:
                request = steps.send(reply)
            except StopIteration as stop:
                if turn is not None:
                    turn.check()
                result: T = stop.value
                return result
            reply = await (_insist(partial(self._ask, request, turn)) if is_patient else self._ask(request, turn))

    async def _ask(self, request: Request, turn: Turn | None) -> Any:
        if turn is not None:
            turn.check()
        match request:
            case Get(table, key, columns, quorum):
                cells = await self.store.get(table, key, columns, quorum)
                check_cells(table, key, cells)
                return cells
            case Forget(table, key, cells, quorum):
                assert isinstance(self.store, ForgettingStore), "a sweep looks before"
                return await self.store.forget(table, key, dict(cells), quorum)
            case PutAll(puts, quorum) if isinstance(self.store, JoiningStore):
                return await self.store.put_all(puts, quorum)
            case PutAll((Put(table, key, cells, quorum), *_)) | Put(table, key, cells, quorum):
                # Those behind the first one are marks, which are sent after the turn then.
                return await self.store.put(table, key, dict(cells), quorum)
            case _:
                raise AssertionError("there are four kinds")


async def _insist(ask: Callable[[], Any]) -> Any:
    """Ask again until enough replicas have answered."""
    pause_s = _PAUSE_S
    while True:
        try:
            return await ask()
        except QuorumError:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)
