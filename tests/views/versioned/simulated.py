"""A simulated store: replicas, messages that are late or lost, and a scheduler that a seed drives.

Each request of a process is a message to each replica. The scheduler picks what happens next: a message arrives, is
lost, or a process begins. A process goes on when a quorum has answered; other messages are still under way then.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pequod_views.versioned import QuorumError, StoredCell, StoredColumn, Update, VersionedView
from pequod_views.versioned.algorithms import (
    NoLiveRowError,
    Request,
    RowUnfinishedError,
    base_column,
    guesses,
    heal,
    propagate,
)
from pequod_views.versioned.records import Get, Put, merge

Record = dict[StoredColumn, StoredCell]
Replica = dict[tuple[str, str], Record]


class CoordinatorDiedError(Exception):
    """A coordinator ended between two requests; its locks are free then."""


@dataclass
class Message:
    """A request on its way to one replica."""

    replica: int
    request: Request
    call: Call


@dataclass
class Call:
    """A request of a process, and what came back so far."""

    process: Process
    request: Request
    left: int
    answers: list[Record] = field(default_factory=list)
    is_over: bool = False


@dataclass
class Process:
    """A coordinator's work on one update: the write, then the propagation, again until it is done."""

    update: Update
    steps: Generator[Any, Any, None]
    is_done: bool = False
    waits_for_lock: bool | None = None


class Simulation:
    """Processes over replicas.

    Args:
        quorum: Of the view's reads and writes; None: a majority.
        loss: The probability that a message never arrives.
        death: The probability, at each request, that a coordinator dies and another does its work from the beginning.
    """

    def __init__(
        self,
        seed: int,
        view: VersionedView,
        updates: list[Update],
        *,
        replicas: int = 3,
        quorum: int | None = None,
        base_quorum: int = 1,
        loss: float = 0.0,
        death: float = 0.0,
        on_done: Callable[[Simulation], None] | None = None,
    ) -> None:
        self._rng = random.Random(seed)
        self.view = view
        self.replicas: list[Replica] = [{} for _ in range(replicas)]
        self._quorum = replicas // 2 + 1 if quorum is None else quorum
        self._base_quorum = base_quorum
        self._loss, self._death = loss, death
        self._on_done = on_done
        self._messages: list[Message] = []
        self._locks: dict[str, list[Process]] = {}
        self._exclusive: set[str] = set()
        self.done: list[Update] = []
        #: Propagations that have begun to write and are not done.
        self.begun: set[int] = set()
        self._ready: list[tuple[Process, Any]] = []
        self._processes = []
        for update in updates:
            process = Process(update, iter(()))  # type: ignore[arg-type]
            process.steps = self._work(process)
            self._processes.append(process)
            self._ready.append((process, None))

    def run(self) -> None:
        """Run until all updates are propagated and all messages have arrived."""
        while self._ready or self._messages:
            choice = self._rng.randrange(len(self._ready) + len(self._messages))
            if choice < len(self._ready):
                process, reply = self._ready.pop(choice)
                self._resume(process, reply)
            else:
                at = choice - len(self._ready)
                self._messages[at], self._messages[-1] = self._messages[-1], self._messages[at]
                self._arrive(self._messages.pop())
        assert all(process.is_done for process in self._processes)
        for replica in self.replicas:
            for place, record in replica.items():
                merge(self.replicas[0].setdefault(place, {}), record)

    def view_records(self, replicas: list[Replica]) -> dict[str, Record]:
        """Return the records of the view as a read of these replicas has them."""
        found: dict[str, Record] = {}
        for replica in replicas:
            for (table, key), record in replica.items():
                if table == self.view.name:
                    merge(found.setdefault(key, {}), record)
        return found

    def _work(self, process: Process) -> Generator[Any, Any, None]:
        update, view = process.update, self.view
        column = base_column(view.key_column)
        old: list[StoredCell] = []
        try:
            answers = yield Get(view.base, update.key, (column,), self._base_quorum)
            old = [answer[column] for answer in answers if column in answer]
        except QuorumError:
            pass
        yield from self._again(Put(view.base, update.key, ((base_column(update.column), update.cell),), 1))
        keys, at = guesses(old), 0
        exclusive = update.column == view.key_column
        while True:
            try:
                yield ("lock", exclusive)
                self.begun.add(id(process))
                yield from self._insisted(partial(propagate, view, update, keys[at], self._quorum), heals=exclusive)
                break
            except NoLiveRowError:
                at += 1
            except CoordinatorDiedError:
                pass
            except RowUnfinishedError as error:
                self._unlock(process)
                try:
                    yield ("lock", True)
                    yield from self._insisted(partial(heal, view, error.base_key, error.key, self._quorum))
                except CoordinatorDiedError:
                    pass
            self._unlock(process)
        self._unlock(process)
        process.is_done = True
        self.begun.discard(id(process))
        self.done.append(update)
        if self._on_done is not None:
            self._on_done(self)

    def _again(self, request: Request) -> Generator[Any, Any, None]:
        while True:
            try:
                yield request
                return
            except QuorumError:
                pass

    def _insisted(
        self, steps: Callable[[], Generator[Request, Any, None]], *, heals: bool = False
    ) -> Generator[Any, Any, None]:
        while True:
            try:
                yield from self._merged(steps())
                return
            except RowUnfinishedError as error:
                if not heals:
                    raise
                yield from self._insisted(partial(heal, self.view, error.base_key, error.key, self._quorum))
            except QuorumError:
                pass

    def _merged(self, steps: Generator[Request, Any, None]) -> Generator[Any, Any, None]:
        reply: Any = None
        while True:
            try:
                request = steps.send(reply)
            except StopIteration:
                return
            if self._rng.random() < self._death:
                # What it had written stays, finished or not.
                raise CoordinatorDiedError
            answers = yield request
            reply = None
            if isinstance(request, Get):
                reply = {}
                for answer in answers:
                    merge(reply, answer)
                if request.columns is not None:
                    reply = {one: reply[one] for one in request.columns if one in reply}

    def _resume(self, process: Process, reply: Any) -> None:
        try:
            request = process.steps.throw(reply) if isinstance(reply, Exception) else process.steps.send(reply)
        except StopIteration:
            return
        if isinstance(request, tuple):
            process.waits_for_lock = request[1]
            self._grant(process.update.key)
            return
        call = Call(process, request, len(self.replicas))
        self._messages += [Message(number, request, call) for number in range(len(self.replicas))]

    def _grant(self, key: str) -> None:
        waiting = [one for one in self._processes if one.update.key == key and one.waits_for_lock is not None]
        self._rng.shuffle(waiting)
        for process in waiting:
            holders = self._locks.setdefault(key, [])
            if key in self._exclusive or (process.waits_for_lock and holders):
                continue
            if process.waits_for_lock:
                self._exclusive.add(key)
            holders.append(process)
            process.waits_for_lock = None
            self._ready.append((process, None))

    def _unlock(self, process: Process) -> None:
        key = process.update.key
        if process in self._locks.get(key, []):
            self._locks[key].remove(process)
            self._exclusive.discard(key)
            self._grant(key)

    def _arrive(self, message: Message) -> None:
        call, request = message.call, message.request
        call.left -= 1
        if self._rng.random() >= self._loss:
            record = self.replicas[message.replica].setdefault((request.table, request.key), {})
            if isinstance(request, Put):
                merge(record, dict(request.cells))
            call.answers.append(dict(record))
        if call.is_over:
            return
        if len(call.answers) >= request.quorum:
            call.is_over = True
            self._ready.append((call.process, call.answers))
        elif call.left == 0:
            call.is_over = True
            self._ready.append((call.process, QuorumError(request.quorum, len(call.answers))))


def random_updates(rng: random.Random, count: int, base_keys: int = 1) -> list[Update]:
    """Return updates with timestamps of their own, in any order."""
    times = rng.sample(range(1, 10 * count), count)
    return [
        Update("ticket", f"t{rng.randrange(base_keys)}", "assigned", StoredCell(rng.choice([*"abc", None]), time))
        if rng.random() < 0.65
        else Update("ticket", f"t{rng.randrange(base_keys)}", rng.choice(["status", "title"]),
                    StoredCell(rng.choice(["x", "y", None]), time))
        for time in times
    ]  # fmt: skip
