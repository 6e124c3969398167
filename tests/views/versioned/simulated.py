"""A simulated store: replicas, messages that are late or lost, and a scheduler that a seed drives.

Each request of a process is a message to each replica. The scheduler picks what happens next: a message arrives, is
lost, or a process goes on. A process goes on when a quorum has answered; other messages are still under way then. A
coordinator may die at each request, before it is sent or while it is under way; nobody does its work again, but sweeps.
Coordinators are of one process or several; a process has the lease of a base record, which may run out at any moment,
while its coordinators are at work and their messages are under way.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from pequod_views.versioned import LeaseLostError, NoLiveRowError, QuorumError
from pequod_views.versioned.algorithms import Propagated, Request, RowBrokenError, decide, get_view, propagate
from pequod_views.versioned.mending import broken_rows, collect, forget, mend
from pequod_views.versioned.records import EMPTY, Get, Put, merge
from pequod_views.versioned.rows import (
    Update,
    VersionedView,
    base_column,
    guesses,
    likely_row,
    marks_of,
    row_in,
    undone,
)
from pequod_views.versioned.shown import SweptRows, swept_rows
from pequod_views.versioned.turns import TurnStamps

from tests.views.versioned.processes import (
    Call,
    CoordinatorDiedError,
    Lock,
    Message,
    Process,
    Record,
    Replica,
    Steps,
    alone,
    merged,
    newest_of,
    parts_of,
    records_of,
    take,
)

#: Far beyond what any schedule takes: pointers that run in a circle would be followed for ever.
_EVENTS_MAX = 1_000_000
#: With three messages of ten lost, a sweep that changes nothing more comes long before.
_SWEEPS_MAX = 20


class Simulation:
    """Processes over replicas.

    Args:
        updates: Each is propagated by a coordinator of its own; a tuple is of one record, and written at once.
        quorum: Of the view's reads and writes; None: a majority.
        loss: The probability that a message never arrives.
        death: The probability, at each request, that a coordinator dies.
        read_repair: Replicas that answered a read with less than others are sent what they lack.
        homes: How many processes the coordinators are of.
        expiry: The probability, at each event, that a lease runs out.
        has_leases: Without them each process has locks of its own, which the others do not see.
    """

    def __init__(
        self,
        seed: int,
        view: VersionedView,
        updates: Sequence[Update | tuple[Update, ...]],
        *,
        replicas: int = 3,
        quorum: int | None = None,
        base_quorum: int = 1,
        loss: float = 0.0,
        death: float = 0.0,
        read_repair: bool = False,
        homes: int = 1,
        expiry: float = 0.0,
        has_leases: bool = True,
        on_done: Callable[[Simulation], None] | None = None,
    ) -> None:
        self._rng = random.Random(seed)
        self.view = view
        self.replicas: list[Replica] = [{} for _ in range(replicas)]
        self._quorum = replicas // 2 + 1 if quorum is None else quorum
        self._base_quorum = base_quorum
        self._loss, self._death, self._read_repair = loss, death, read_repair
        self._homes, self._expiry, self._has_leases = homes, expiry, has_leases
        self._on_done = on_done
        #: The process that has the lease of a record, and the stamps of its epoch.
        self._leases: dict[str, tuple[int, TurnStamps]] = {}
        self._epoch = 0
        self._messages: list[Message] = []
        self._locks: dict[str, list[Process]] = {}
        self._waiting: list[Process] = []
        self._ready: list[tuple[Process, Any]] = []
        self.done: list[Update] = []
        #: Updates whose coordinators have died; those of one coordinator were to be propagated at once.
        self.dead: list[tuple[Update, ...]] = []
        #: Propagations, repairs and collections that have begun to write and are not done, the dead among them.
        self.begun: set[object] = set()
        for update in updates:
            self._start(partial(self._update, (update,) if isinstance(update, Update) else update))

    def _start(self, work: Callable[[Process], Steps], *, is_mortal: bool = True) -> None:
        process = Process(home=self._rng.randrange(self._homes), is_mortal=is_mortal)
        process.steps = work(process)
        self._ready.append((process, None))

    def read_beside(self, key: str) -> None:
        """Have a process read a key of the view at some moment; it finishes rows that are half made."""
        self._start(partial(self._read, key))

    def collect_beside(self) -> None:
        """Have a process sweep the view's records at some moment, and leave tombstones where rows are stale."""
        self._start(self._tidy)

    def run(self) -> None:
        """Run until all processes are done or dead and all messages have arrived."""
        for _ in range(_EVENTS_MAX):
            if not self._ready and not self._messages:
                break
            if self._expiry and self._rng.random() < self._expiry:
                self._expire()
            choice = self._rng.randrange(len(self._ready) + len(self._messages))
            if choice < len(self._ready):
                process, reply = self._ready.pop(choice)
                self._resume(process, reply)
            else:
                at = choice - len(self._ready)
                self._messages[at], self._messages[-1] = self._messages[-1], self._messages[at]
                self._arrive(self._messages.pop())
        else:
            raise AssertionError("it does not end")
        assert not self._waiting, "a lock is never free"

    def spread(self) -> None:
        """Bring all replicas to one state (anti-entropy)."""
        for source in self.replicas:
            for replica in self.replicas:
                for place, record in source.items():
                    merge(replica.setdefault(place, {}), record)

    def finish(self) -> None:
        """Finish all rows that are half made, as readers of all keys do, again and again.

        A repair whose messages are lost is made anew, and a late message of the first attempt may undo its end.
        """
        for _ in range(_SWEEPS_MAX):
            self._start(partial(self._tidy, collects=False), is_mortal=False)
            self.run()
            if not any(swept.unfinished or swept.misplaced for swept in self._swept()):
                return
        raise AssertionError("rows stay unfinished")

    def sweep(self) -> None:
        """Complete, finish and collect everything, again and again: what is finished may be stale then."""
        self._start(self._complete, is_mortal=False)
        self.run()
        for _ in range(_SWEEPS_MAX):
            self._start(self._tidy, is_mortal=False)
            self.run()
            if not any(swept.unfinished or swept.misplaced or swept.stale for swept in self._swept()):
                return
        raise AssertionError("there is always something to sweep")

    def _swept(self) -> list[SweptRows]:
        return [swept_rows(self.view, key, cells) for key, cells in self.records(self.view.name).items()]

    def forget(self) -> None:
        """Remove the rows that were collected. What a removal misses comes back, for the next.

        Requires:
            No message is under way.
        """
        for _ in range(_SWEEPS_MAX):
            if not any(swept.collected for swept in self._swept()):
                return
            self._start(partial(self._tidy, forgets=True), is_mortal=False)
            self.run()
            self.spread()
        raise AssertionError("rows stay collected")

    def records(self, table: str, replicas: list[Replica] | None = None) -> dict[str, Record]:
        """Return the records of a table as a read of these replicas, or all, has them."""
        return records_of(table, self.replicas if replicas is None else replicas)

    # What processes do.

    def _update(self, updates: tuple[Update, ...], process: Process) -> Steps:
        view, column = self.view, base_column(self.view.key_column)
        old: list[Record] = []
        try:
            with suppress(QuorumError):
                columns = tuple(map(base_column, view.deciders))
                old = yield Get(view.base, updates[0].key, columns, self._base_quorum)
            yield from self._persisted(updates)
            old = sorted(old, key=lambda answer: -answer.get(column, EMPTY).timestamp)
            rows = [row for answer in old if (row := likely_row(view, answer)) is not None]
            is_marked = yield from self._propagated(process, updates, guesses(*rows))
        except CoordinatorDiedError:
            self.dead.append(updates)
            self._unlock(process)
            return
        self.done += updates
        if self._on_done is not None:
            self._on_done(self)
        if not is_marked:
            with suppress(CoordinatorDiedError):
                yield from self._marked(updates)

    def _persisted(self, updates: Sequence[Update]) -> Steps:
        cells = tuple((base_column(update.column), update.cell) for update in updates)
        yield from merged(alone(Put(self.view.base, updates[0].key, cells, 1)), is_patient=True)

    def _marked(self, updates: Sequence[Update]) -> Steps:
        with suppress(QuorumError):
            yield Put(self.view.base, updates[0].key, tuple(marks_of(self.view, updates).items()), 1)

    def _propagated(self, process: Process, updates: Sequence[Update], keys: list[str]) -> Steps:
        at, exclusive = 0, decide(self.view, updates)
        while True:
            try:
                steps = partial(propagate, self.view, updates, keys[at], self._quorum)
                lock = Lock(updates[0].key, exclusive)
                propagated: Propagated = yield from self._locked(process, lock, steps, is_patient=True)
                return propagated.is_marked
            except NoLiveRowError:
                at += 1
            except RowBrokenError as error:
                yield from self._mended(process, error)

    def _mended(self, process: Process, broken: RowBrokenError) -> Steps:
        yield from self._alone(process, broken.base_key, partial(mend, self.view, broken, self._quorum))

    def _alone(self, process: Process, base_key: str, steps: Callable[[TurnStamps], Steps]) -> Steps:
        waiting = [steps]
        while waiting:
            try:
                yield from self._locked(process, Lock(base_key, True), waiting[-1], is_patient=True)
                waiting.pop()
            except RowBrokenError as broken:
                waiting.append(partial(mend, self.view, broken, self._quorum))

    def _locked(self, process: Process, lock: Lock, steps: Callable[[TurnStamps], Steps], *, is_patient: bool) -> Steps:
        work, has_lost = object(), False
        while True:
            try:
                yield lock
                self.begun.add(work)
                result = yield from merged(steps(self._stamps(process, lock.key)), is_patient=is_patient)
                self.begun.discard(work)
                return result
            except LeaseLostError:
                has_lost = True
            except (NoLiveRowError, RowBrokenError):
                if not has_lost:
                    self.begun.discard(work)
                raise
            finally:
                self._unlock(process)

    def _stamps(self, process: Process, key: str) -> TurnStamps:
        home, stamps = self._leases.get(key, (-1, None))
        if home != process.home or stamps is None or not self._has_leases:
            self._epoch += 1
            stamps = TurnStamps(self._epoch)
            self._leases[key] = process.home, stamps
        return stamps

    def _read(self, key: str, process: Process) -> Steps:
        try:
            while True:
                try:
                    yield from merged(get_view(self.view, key, self._quorum), is_patient=False)
                    return
                except RowBrokenError as error:
                    yield from self._mended(process, error)
        except (QuorumError, CoordinatorDiedError):
            pass

    def _complete(self, process: Process) -> Steps:
        for key, cells in sorted(self.records(self.view.base).items()):
            if updates := undone(self.view, key, cells):
                yield from self._persisted(updates)
                if not (yield from self._propagated(process, updates, guesses())):
                    yield from self._marked(updates)

    def _tidy(self, process: Process, *, collects: bool = True, forgets: bool = False) -> Steps:
        try:
            for record, cells in sorted(self.records(self.view.name).items()):
                found = swept_rows(self.view, record, cells)
                for broken in broken_rows(self.view, record, found):
                    yield from self._mended(process, broken)
                for base_key in found.stale if collects else ():
                    steps = partial(collect, self.view, base_key, row_in(record, base_key), self._quorum)
                    yield from self._alone(process, base_key, steps)
                for base_key, stamp in found.collected.items() if forgets else ():
                    row = row_in(record, base_key)
                    steps = partial(forget, self.view, base_key, row, stamp, len(self.replicas))
                    yield from self._alone(process, base_key, steps)
        except CoordinatorDiedError:
            pass

    # The scheduler.

    def _resume(self, process: Process, reply: Any) -> None:
        if process.has_lost and not isinstance(reply, CoordinatorDiedError):
            reply = LeaseLostError(0)
        process.has_lost = False
        try:
            request = process.steps.throw(reply) if isinstance(reply, Exception) else process.steps.send(reply)
        except StopIteration:
            return
        if isinstance(request, Lock):
            if not self._has_leases:
                request = Lock(f"{process.home} {request.key}", request.exclusive)
            process.waits_for = request
            self._waiting.append(process)
            self._grant(request.key)
            return
        dies = process.is_mortal and self._rng.random() < self._death
        if dies and self._rng.random() < 0.5:
            self._ready.append((process, CoordinatorDiedError()))
            return
        # A replica gets all records of a request with one message, or each with its own.
        parts = (request,) if self._rng.random() < 0.5 else parts_of(request)
        call = Call(process, request, len(parts) * len(self.replicas), is_over=dies)
        self._messages += [Message(number, part, call) for number in range(len(self.replicas)) for part in parts]
        if dies:
            self._ready.append((process, CoordinatorDiedError()))

    def _grant(self, key: str) -> None:
        waiting = [one for one in self._waiting if one.waits_for is not None and one.waits_for.key == key]
        self._rng.shuffle(waiting)
        holders = self._locks.setdefault(key, [])
        for process in waiting:
            lock = process.waits_for
            assert lock is not None
            others = [one for one in holders if one.home != process.home or (one.holds and one.holds.exclusive)]
            if others or (holders and lock.exclusive):
                continue
            self._waiting.remove(process)
            process.waits_for, process.holds = None, lock
            holders.append(process)
            self._ready.append((process, None))

    def _unlock(self, process: Process) -> None:
        if process.holds is not None:
            key, process.holds = process.holds.key, None
            self._locks[key].remove(process)
            self._grant(key)

    def _expire(self) -> None:
        """Have a lease run out: whoever works under it goes on until its next look at the clock."""
        keys = sorted(key for key, holders in self._locks.items() if holders)
        if keys:
            key = self._rng.choice(keys)
            self._leases.pop(key, None)
            for process in list(self._locks[key]):
                process.has_lost = True
                self._unlock(process)

    def _arrive(self, message: Message) -> None:
        call, request = message.call, message.request
        if call is not None:
            call.left -= 1
        if self._rng.random() >= self._loss:
            for part in parts_of(request):
                record = self.replicas[message.replica].setdefault((part.table, part.key), {})
                take(record, part)
                if call is not None:
                    call.counts[part.table, part.key] += 1
                    call.answers.append(dict(record))
        if call is None or call.is_over:
            return
        answered = min(call.counts[part.table, part.key] for part in parts_of(call.request))
        if answered >= call.request.quorum:
            call.is_over = True
            self._repair(request, call.answers)
            self._ready.append((call.process, call.answers))
        elif call.left == 0:
            call.is_over = True
            self._ready.append((call.process, QuorumError(call.request.quorum, answered)))

    def _repair(self, request: Request, answers: list[Record]) -> None:
        if not self._read_repair or not isinstance(request, Get):
            return
        newest = newest_of(answers)
        if any(answer != newest for answer in answers):
            put = Put(request.table, request.key, tuple(newest.items()), 0)
            self._messages += [Message(number, put, None) for number in range(len(self.replicas))]
