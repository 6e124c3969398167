"""Processes of the simulated store, and their messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pequod_views.versioned import QuorumError, StoredCell, StoredColumn
from pequod_views.versioned.algorithms import Request
from pequod_views.versioned.records import Forget, Get, Put, PutAll, merge

Record = dict[StoredColumn, StoredCell]
Replica = dict[tuple[str, str], Record]
Steps = Generator[Any, Any, Any]


class CoordinatorDiedError(Exception):
    """A coordinator ended; its locks are free then."""


@dataclass(frozen=True)
class Lock:
    """A process asks for the lock of a base record, and has no other."""

    key: str
    exclusive: bool


@dataclass
class Message:
    """A request on its way to one replica, or one record of it."""

    replica: int
    request: Request
    #: None: nobody waits for an answer.
    call: Call | None


@dataclass
class Call:
    """A request of a process, and what came back so far."""

    process: Process
    request: Request
    left: int
    answers: list[Record] = field(default_factory=list)
    #: How many replicas have done what they are to do with each record.
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    is_over: bool = False


@dataclass(eq=False)
class Process:
    """A coordinator's work on one thing."""

    #: Set at once, by work that knows its process.
    steps: Steps = field(init=False)
    #: The operating system's process that the coordinator is of.
    home: int = 0
    waits_for: Lock | None = None
    holds: Lock | None = None
    #: Its lease ran out, which it sees when it goes on.
    has_lost: bool = False
    #: The process may die.
    is_mortal: bool = True


def merged(steps: Steps, *, is_patient: bool) -> Steps:
    """Carry out an algorithm with the replies that replicas send, merged, and return its result.

    Args:
        is_patient: A request that too few replicas answer is sent again.
    """
    reply: Any = None
    while True:
        try:
            request = steps.send(reply)
        except StopIteration as stop:
            return stop.value
        answers = None
        while answers is None:
            try:
                answers = yield request
            except QuorumError:
                if not is_patient:
                    raise
        reply = None
        if isinstance(request, Get):
            reply = newest_of(answers)
            if request.columns is not None:
                reply = {one: reply[one] for one in request.columns if one in reply}


def newest_of(answers: Sequence[Record]) -> Record:
    """Return the newest of each cell that replicas have."""
    newest: Record = {}
    for answer in answers:
        merge(newest, answer)
    return newest


def alone(request: Request) -> Steps:
    """Yield one request, as an algorithm."""
    yield request


def parts_of(request: Request) -> tuple[Get | Put | Forget, ...]:
    """Return what a request is to each record."""
    return request.puts if isinstance(request, PutAll) else (request,)


def take(record: Record, request: Request) -> None:
    """Have a replica do what it is asked to."""
    if isinstance(request, Put):
        merge(record, dict(request.cells))
    elif isinstance(request, Forget):
        for column, cell in request.cells:
            if column in record and record[column].timestamp <= cell.timestamp:
                del record[column]


def records_of(table: str, replicas: Sequence[Replica]) -> dict[str, Record]:
    """Return the records of a table as a read of these replicas has them."""
    found: dict[str, Record] = {}
    for replica in replicas:
        for (name, key), record in replica.items():
            if name == table and record:
                merge(found.setdefault(key, {}), record)
    return found
