"""What the clients of a simulated server do: calls of its handlers, whose answers the oracle judges.

An answer is judged in the turn of the loop in which it was made: a handler computes it and returns without a pause. A
healthy server may refuse a call only because the database does not answer, or because a level cannot be had.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from math import inf
from typing import TypeVar

from pequod_proto import pequod_pb2 as pb
from pequod_server.backing import BackingUnavailableError, RowChange
from pequod_server.wire.handlers import CallEnded

from pequod.errors import BadRequestError, NotNumberError, StaleError, TokenLostError, WatchCompactedError
from pequod.freshness import Token
from pequod.language.conditions import Condition
from tests.simulation.batches import BatchStream, Command, Put, answers_of, request_of
from tests.simulation.database import Database, Rows
from tests.simulation.decided import Add, Decided, WriteIf, outcome_of
from tests.simulation.levels import Demand, Level, demand
from tests.simulation.machine import NO_CONTEXT, Machine
from tests.simulation.moments import Moment
from tests.simulation.oracle import Ask, Oracle, Since, State, WrongError
from tests.simulation.reads import Chunk, Count, Get, MultiGet
from tests.simulation.sessions import Session

T = TypeVar("T")
#: Ends that a watch may come to: too many changes, or a join of its range that reports none.
WATCH_ENDS = (WatchCompactedError,)


class Clients:
    """The clients of all servers."""

    def __init__(self, database: Database, oracle: Oracle) -> None:
        self._database = database
        self._oracle = oracle
        #: Calls, and commands of batches, that failed, by their errors.
        self.refused: Counter[str] = Counter()
        #: Writes, each of a value of its own, that their clients have given up, and where the database was before.
        self._unknown: list[tuple[RowChange, Moment]] = []
        #: Nothing else writes such a value.
        self._own_value = 1_000_000

    # Reads.

    async def get(self, machine: Machine, reader: Reader, key: bytes) -> None:
        """Get a value."""
        demanded = self._demand(reader)
        request = pb.GetRequest(key=key, freshness=demanded.level.message())
        reply = await self._reply(machine, reader, demanded, lambda: machine.call("Get")(request, NO_CONTEXT))
        if reply is not None:
            found = reply.value if reply.HasField("value") else None
            self._judge(machine, reader, demanded, found, Get(key), reply.header)

    async def multi_get(self, machine: Machine, reader: Reader, keys: tuple[bytes, ...]) -> None:
        """Get many values."""
        demanded = self._demand(reader)
        request = pb.MultiGetRequest(keys=keys, freshness=demanded.level.message())
        reply = await self._reply(machine, reader, demanded, lambda: machine.call("MultiGet")(request, NO_CONTEXT))
        if reply is not None:
            pairs = zip(reply.values, reply.present, strict=True)
            found = [value if is_present else None for value, is_present in pairs]
            self._judge(machine, reader, demanded, found, MultiGet(keys), reply.header)

    async def count(self, machine: Machine, reader: Reader, first: bytes, last: bytes | None) -> None:
        """Count keys."""
        demanded = self._demand(reader)
        request = pb.CountRequest(first=first, last=last, freshness=demanded.level.message())
        reply = await self._reply(machine, reader, demanded, lambda: machine.call("Count")(request, NO_CONTEXT))
        if reply is not None:
            self._judge(machine, reader, demanded, reply.count, Count(first, last), reply.header)

    async def scan(
        self, machine: Machine, reader: Reader, first: bytes, last: bytes | None, *, reverse: bool = False
    ) -> None:
        """Read a range; each chunk is an answer of its own."""
        demanded = self._demand(reader)
        request = pb.ScanRequest(first=first, last=last, reverse=reverse, freshness=demanded.level.message())
        async with aclosing(machine.call("Scan")(request, NO_CONTEXT)) as replies:
            while True:
                reply = await self._reply(machine, reader, demanded, lambda: anext(replies, None))
                if reply is None:
                    return
                found = list(zip(reply.keys, reply.values, strict=True))
                has_more = reply.HasField("resume_key")
                chunk = Chunk(first, last, reverse, len(found) if has_more else None)
                self._judge(machine, reader, demanded, found, chunk, reply.header)
                if has_more:
                    first, last = (first, reply.resume_key) if reverse else (reply.resume_key, last)

    async def execute(self, machine: Machine, reader: Reader, commands: Sequence[Command], fresh: Fresh) -> None:
        """Send a batch.

        Args:
            fresh: The level of single commands that is not that of the batch.
        """
        demanded = self._demand(reader)
        demands = [demand(fresh[at], self._database) if at in fresh else demanded for at in range(len(commands))]
        since = Since(machine.moment(), machine.join_changes)
        began = self._database.moment
        stream = BatchStream(request_of(commands, demanded.level, fresh))
        with suppress(CallEnded):
            await machine.call("Execute")(None, stream)
        answers: list[tuple[Demand, Ask, object]] = []
        written: list[RowChange] = []
        decided: list[tuple[Decided, object]] = []
        for demanded_here, (command, answer) in zip(demands, answers_of(commands, stream.replies), strict=True):
            match command, answer:
                case Add(), pb.CommandError(reason=NotNumberError.__name__):
                    self.refused[NotNumberError.__name__] += 1
                    self._oracle.judge_refused(machine, command, began)
                case _, pb.CommandError():
                    self._judge_error(machine, demanded_here, answer.reason, in_batch=True)
                    if answer.reason == TokenLostError.__name__ and isinstance(reader, Session):
                        reader.begin_anew()
                case Put(key, value), _:
                    written.append(RowChange(key, value))
                case WriteIf() | Add(), _:
                    decided.append((command, answer))
                case _:
                    answers.append((demanded_here, command, answer))
        state = _state(stream.replies[0])
        self._oracle.judge_in_order(machine, answers, since, state)
        moments = [self._judge_write(machine, began, change, state) for change in written]
        moments += [self._oracle.judge_decided(machine, *one, state, began) for one in decided]
        if isinstance(reader, Session):
            if answers:
                reader.answered(state.token, state.moment)
            reader.wrote(state.token, moments)

    # Writes.

    async def put(self, machine: Machine, session: Session, rows: dict[bytes, bytes]) -> None:
        """Write rows through a server."""
        if len(rows) == 1:
            (row,) = rows.items()
            request = pb.PutRequest(key=row[0], value=row[1])
            await self._write(machine, session, [RowChange(*row)], lambda: machine.call("Put")(request, NO_CONTEXT))
        else:
            many = pb.MultiPutRequest(keys=rows.keys(), values=rows.values())
            changes = [RowChange(*row) for row in rows.items()]
            await self._write(machine, session, changes, lambda: machine.call("MultiPut")(many, NO_CONTEXT))

    async def remove(self, machine: Machine, session: Session, key: bytes) -> None:
        """Remove a key through a server."""
        request = pb.RemoveRequest(key=key)
        await self._write(machine, session, [RowChange(key, None)], lambda: machine.call("Remove")(request, NO_CONTEXT))

    async def put_within(
        self, machine: Machine, session: Session, key: bytes, condition: Condition | None, within_s: float
    ) -> None:
        """Write a row of a value of its own, and give up after a deadline: then nobody knows whether it is done."""
        self._own_value += 1
        # What is added to it and taken off again is spelled without an exponent.
        change = RowChange(key, b"%de0" % self._own_value)
        began = self._database.moment
        try:
            async with asyncio.timeout(within_s):
                if condition is None:
                    await self.put(machine, session, {key: change.value or b""})
                else:
                    await self.decide(machine, session, WriteIf(key, change.value, condition))
        except TimeoutError:
            self._unknown.append((change, began))

    def judge_unknown(self) -> None:
        """See that what was given up is done once or not at all, now that nothing is under way."""
        for change, began in self._unknown:
            moments = self._database.committed(change, began)
            if len({moment.timeline for moment in moments}) < len(moments):
                raise WrongError(f"{change} was given up, and is done more than once: at {moments}")
            self.refused["given up, done" if moments else "given up, not done"] += 1
        self._unknown.clear()

    async def decide(self, machine: Machine, session: Session, command: Decided) -> None:
        """Write a key by its present value through a server."""
        began = self._database.moment
        name = "Add" if isinstance(command, Add) else "WriteIf"
        try:
            reply = await machine.call(name)(command.request, NO_CONTEXT)
        except (BackingUnavailableError, NotNumberError) as error:
            self.refused[type(error).__name__] += 1
            if isinstance(error, NotNumberError):
                self._oracle.judge_refused(machine, command, began)
            return
        state = _state(reply.header)
        moment = self._oracle.judge_decided(machine, command, outcome_of(reply), state, began)
        session.wrote(state.token, [moment])

    async def remove_range(self, machine: Machine, session: Session, first: bytes, last: bytes) -> None:
        """Remove the keys of a range through a server."""
        request = pb.RemoveRangeRequest(first=first, last=last)
        await self._write(machine, session, [], lambda: machine.call("RemoveRange")(request, NO_CONTEXT))

    async def _write(
        self, machine: Machine, session: Session, changes: list[RowChange], call: Callable[[], Awaitable[object]]
    ) -> None:
        began = self._database.moment
        try:
            reply = await call()
        except BackingUnavailableError as error:
            self.refused[type(error).__name__] += 1
            return
        state = _state(reply.header)  # type: ignore[attr-defined]
        session.wrote(state.token, [self._judge_write(machine, began, change, state) for change in changes])

    def _judge_write(self, machine: Machine, began: Moment, change: RowChange, state: State) -> Moment:
        """See that an acknowledged write is in the database and in the reply's token, and return where it is."""
        return self._oracle.judge_write(machine, change, state, self._database.committed(change, began))

    # Watches.

    async def watch(
        self, machine: Machine, reader: Reader, first: bytes, last: bytes | None, watched: list[Watched]
    ) -> None:
        """Follow a range until the task is cancelled or the watch ends."""
        demanded = self._demand(reader)
        request = pb.WatchRequest(first=first, last=last, rows=True, freshness=demanded.level.message())
        following, chunk = Watched(machine, first, last, Rows()), Chunk(first, last, reverse=False, count=None)
        try:
            async with aclosing(machine.call("Watch")(request, NO_CONTEXT)) as replies:
                while True:
                    reply = await self._reply(machine, reader, demanded, lambda: anext(replies, None))
                    if reply is None:
                        return
                    following.rows.update(zip(reply.keys, reply.values, strict=True))
                    for change in reply.changes:
                        _follow(following, change)
                    if reply.ready:
                        watched.append(following)
                        self._judge(machine, reader, demanded, sorted(following.rows.items()), chunk, reply.header)
        except WATCH_ENDS:
            pass
        except BadRequestError:
            assert last is not None, "a range without an end is not empty"
            assert last <= first, "only a watch of an empty range is no request"
        finally:
            if following in watched:
                watched.remove(following)

    # Pieces.

    def _demand(self, reader: Reader) -> Demand:
        if isinstance(reader, Session):
            return demand(reader.next_level, self._database, tuple(reader.seen))
        return demand(reader, self._database)

    async def _reply(
        self, machine: Machine, reader: Reader, demanded: Demand, call: Callable[[], Awaitable[T]]
    ) -> T | None:
        """Return the reply of a call, None if it was refused with reason."""
        try:
            return await call()
        except (BackingUnavailableError, StaleError, TokenLostError) as error:
            self._judge_error(machine, demanded, type(error).__name__)
            if isinstance(error, TokenLostError) and isinstance(reader, Session):
                reader.begin_anew()
            return None

    def _judge_error(self, machine: Machine, demanded: Demand, reason: str, *, in_batch: bool = False) -> None:
        self.refused[reason] += 1
        match reason:
            case StaleError.__name__:
                # A batch tells it with all other results.
                self._oracle.judge_stale(machine, demanded, by_s=inf if in_batch else demanded.error_by_s)
            case TokenLostError.__name__:
                self._oracle.judge_lost(machine, demanded)
            case BackingUnavailableError.__name__:
                pass
            case _:
                raise WrongError(f"{machine.name} refused a command with {reason}")

    def _judge(
        self, machine: Machine, reader: Reader, demanded: Demand, found: object, ask: Ask, header: pb.Header
    ) -> None:
        state = _state(header)
        self._oracle.judge(machine, demanded, found, ask, state)
        if isinstance(reader, Session):
            reader.answered(state.token, state.moment)


#: Who reads: a session, or a client that asks for a level of its own.
Reader = Session | Level
#: The level of single commands of a batch, by their numbers.
Fresh = dict[int, Level]


class Watched:
    """A watch that is open, and the rows that one who follows it has."""

    def __init__(self, machine: Machine, first: bytes, last: bytes | None, rows: Rows) -> None:
        self.machine = machine
        self.first = first
        self.last = last
        self.rows = rows


def _follow(watched: Watched, change: pb.Change) -> None:
    old = change.old if change.HasField("old") else None
    new = change.new if change.HasField("new") else None
    if watched.rows.get(change.key) != old or old == new:
        had = watched.rows.get(change.key)
        raise WrongError(
            f"a watch at {watched.machine.name} tells {change.key!r}: {old!r} -> {new!r}, and it was {had!r}"
        )
    if new is None:
        del watched.rows[change.key]
    else:
        watched.rows[change.key] = new


def _state(header: pb.Header | pb.ExecuteReply) -> State:
    """Return what a reply says of its state."""
    assert header.token, "a reply without a token"
    age_s = header.age_ms / 1000 if header.HasField("age_ms") else None
    return State(Token.parse(header.token), age_s)
