"""What the clients of a simulated server do: calls of its handlers, whose answers the oracle judges.

An answer is judged in the turn of the loop in which it was made: a handler computes it and returns without a pause. The
only refusal that a healthy server may give is that the database does not answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing, suppress

from pequod_proto import pequod_pb2 as pb
from pequod_server.backing import Change
from pequod_server.wire.handlers import CallEnded

from pequod.errors import WatchCompactedError
from tests.simulation.batches import BatchStream, Command, Put, answers_of, reads_of, request_of
from tests.simulation.database import Database, Rows
from tests.simulation.machine import NO_CONTEXT, Machine
from tests.simulation.oracle import Oracle, WrongError
from tests.simulation.reads import Chunk, Count, Get, MultiGet

#: Ends that a watch may come to: too many changes, or a join of its range that reports none.
WATCH_ENDS = (WatchCompactedError,)


class Clients:
    """The clients of all servers."""

    def __init__(self, database: Database, oracle: Oracle) -> None:
        self._database = database
        self._oracle = oracle
        #: Commands of batches that the database did not answer.
        self.refused = 0

    async def get(self, machine: Machine, key: bytes) -> None:
        """Get a value."""
        since = self._oracle.moment(machine)
        reply = await machine.call("Get")(pb.GetRequest(key=key), NO_CONTEXT)
        self._oracle.judge(machine, since, _value(reply), Get(key))

    async def multi_get(self, machine: Machine, keys: tuple[bytes, ...]) -> None:
        """Get many values."""
        since = self._oracle.moment(machine)
        reply = await machine.call("MultiGet")(pb.MultiGetRequest(keys=keys), NO_CONTEXT)
        pairs = zip(reply.values, reply.present, strict=True)
        found = [value if is_present else None for value, is_present in pairs]
        self._oracle.judge(machine, since, found, MultiGet(keys))

    async def count(self, machine: Machine, first: bytes, last: bytes | None) -> None:
        """Count keys."""
        since = self._oracle.moment(machine)
        reply = await machine.call("Count")(pb.CountRequest(first=first, last=last), NO_CONTEXT)
        self._oracle.judge(machine, since, reply.count, Count(first, last))

    async def scan(self, machine: Machine, first: bytes, last: bytes | None, *, reverse: bool) -> None:
        """Read a range; each chunk is an answer of its own."""
        since = self._oracle.moment(machine)
        request = pb.ScanRequest(first=first, last=last, reverse=reverse)
        async with aclosing(machine.call("Scan")(request, NO_CONTEXT)) as replies:
            async for reply in replies:
                found = list(zip(reply.keys, reply.values, strict=True))
                has_more = reply.HasField("resume_key")
                chunk = Chunk(first, last, reverse, len(found) if has_more else None)
                self._oracle.judge(machine, since, found, chunk)
                if has_more:
                    first, last = (first, reply.resume_key) if reverse else (reply.resume_key, last)
                since = self._oracle.moment(machine)

    async def execute(self, machine: Machine, commands: Sequence[Command]) -> None:
        """Send a batch."""
        since = self._oracle.moment(machine)
        began = self._database.timeline, self._database.position
        stream = BatchStream(request_of(commands))
        with suppress(CallEnded):
            await machine.call("Execute")(None, stream)
        answers = list(answers_of(commands, stream.replies))
        self._oracle.judge_in_order(machine, since, reads_of(answers))
        for command, answer in answers:
            match command, answer:
                case _, pb.CommandError(reason="BackingUnavailableError"):
                    self.refused += 1
                case Put(key, value), None:
                    self._judge_write(machine, began, Change(key, value))

    async def put(self, machine: Machine, rows: dict[bytes, bytes]) -> None:
        """Write rows through a server."""
        began = self._database.timeline, self._database.position
        if len(rows) == 1:
            (row,) = rows.items()
            await machine.call("Put")(pb.PutRequest(key=row[0], value=row[1]), NO_CONTEXT)
        else:
            await machine.call("MultiPut")(pb.MultiPutRequest(keys=rows.keys(), values=rows.values()), NO_CONTEXT)
        for key, value in rows.items():
            self._judge_write(machine, began, Change(key, value))

    async def remove(self, machine: Machine, key: bytes) -> None:
        """Remove a key through a server."""
        began = self._database.timeline, self._database.position
        await machine.call("Remove")(pb.RemoveRequest(key=key), NO_CONTEXT)
        self._judge_write(machine, began, Change(key, None))

    async def remove_range(self, machine: Machine, first: bytes, last: bytes) -> None:
        """Remove the keys of a range through a server."""
        await machine.call("RemoveRange")(pb.RemoveRangeRequest(first=first, last=last), NO_CONTEXT)

    def _judge_write(self, machine: Machine, began: tuple[int, int], change: Change) -> None:
        """See that an acknowledged write is in the database, and has landed at the server."""
        timeline, position = began
        if self._database.timeline != timeline or machine.store.timelines != (timeline,):
            # A failover: acknowledged writes may be lost with the end of the log.
            return
        written = self._database.positions_of(change, timeline, position)
        if not written:
            raise WrongError(f"{machine.name} acknowledged {change}, and the database has not got it")
        if machine.landing.position < written[0]:
            raise WrongError(f"{machine.name} acknowledged {change} before it landed")

    async def watch(self, machine: Machine, first: bytes, last: bytes | None, watched: list[Watched]) -> None:
        """Follow a range until the task is cancelled or the watch ends."""
        request, rows = pb.WatchRequest(first=first, last=last, rows=True), Rows()
        following = Watched(machine, first, last, rows)
        try:
            async with aclosing(machine.call("Watch")(request, NO_CONTEXT)) as replies:
                async for reply in replies:
                    rows.update(zip(reply.keys, reply.values, strict=True))
                    if reply.ready:
                        watched.append(following)
                    for change in reply.changes:
                        _follow(following, change)
        except WATCH_ENDS:
            pass
        finally:
            if following in watched:
                watched.remove(following)


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


def _value(reply: pb.GetReply) -> bytes | None:
    return reply.value if reply.HasField("value") else None
