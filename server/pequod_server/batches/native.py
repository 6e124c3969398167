"""What the native core does of a batch: quick commands, in Python one that is not, quick ones again.

native batch: quick commands -> one that is not: the engine, in Python -> quick ones ... -> all have run
                                it waits, or the reply is long: what has run so far, and why it stops
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from pequod_proto.pequod_pb2 import CommandError, ExecuteReply, ExecuteRequest

from pequod.commands.kinds import COUNT, GET, PUT, REMOVE, SCAN_DOWN
from pequod.engine import BackedKeyError, Engine, MissingError, PequodError, Rows
from pequod.native import NativeBatch, parse_batch
from pequod_server.batches.columns import ReadColumns, commands
from pequod_server.wire.errors import command_error

#: So few commands are not made a message for the native core: it would take longer than they do.
FEW: Final = 8
_NO_ROWS: Final = Rows([], [])


class Stop(NamedTuple):
    """Why a native batch ends before all of its commands have run: neither is there where no room is left."""

    #: What the next command waits for.
    waits_for: MissingError | BackedKeyError | None = None
    #: The rows of the next command, or its value, if there are more of them than fit.
    excess: Rows = _NO_ROWS


class BegunBatch(NamedTuple):
    """What has run of a batch elsewhere."""

    #: What it returned; statuses of all commands.
    reply: ExecuteReply
    #: How many commands have run, and how many arguments and numbers they took.
    commands: int
    arguments: int
    numbers: int
    #: How many bytes the piece still has room for.
    room: int
    stop: Stop


def run_batch(engine: Engine, batch: NativeBatch, rows_max: int, now: float, errors: list[CommandError]) -> Stop | None:
    """Run the commands of a batch; return None if all have run.

    Args:
        errors: Takes why commands failed.
    """
    while engine.run_quick(batch, now):
        try:
            excess = _answer(engine, batch, rows_max, now)
            if excess is not None:
                return Stop(excess=excess)
        except (MissingError, BackedKeyError) as error:
            return Stop(error)
        except PequodError as error:
            failure = command_error(error)
            errors.append(failure)
            if not batch.failed(failure.SerializeToString()):
                return Stop()
    return None


def begun(batch: NativeBatch, stop: Stop | None) -> BegunBatch:
    """Return what has run of a native batch."""
    reply = ExecuteReply.FromString(batch.reply(0, 0))
    return BegunBatch(reply, batch.index, batch.argument_at, batch.number_at, batch.room, stop or Stop())


def run_rest(engine: Engine, rest: ExecuteRequest, rows_max: int, room: int, now: float) -> BegunBatch | None:
    """Run what is left of a batch; None if that is not for the native core, and nothing has run."""
    if engine.is_timed or len(rest.kinds) < FEW:
        return None
    batch = parse_batch(rest.SerializeToString(), len(rest.kinds), rows_max, room)
    return None if batch is None else begun(batch, run_batch(engine, batch, rows_max, now, []))


def slow_reads(
    engine: Engine, reads: ReadColumns, rows_max: int, room: int, now: float
) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the kind and the arguments of reads that take more than a look-up and a copy: all if nothing is native.

    Args:
        room: How many bytes the others may copy.
    """
    batch = None
    if not engine.is_timed and len(reads.kinds) >= FEW:
        request = ExecuteRequest(kinds=reads.kinds, arguments=reads.arguments)
        batch = parse_batch(request.SerializeToString(), len(reads.kinds), rows_max, room)
    if batch is None:
        for _, kind, first, last in commands(*reads):
            yield kind, first, last
        return
    while engine.run_quick(batch, now):
        kind, first, last, _ = batch.command()
        yield kind, first, last
        batch.absent()


def _answer(engine: Engine, batch: NativeBatch, rows_max: int, now: float) -> Rows | None:
    """Run the next command of a batch in Python; return its rows, or its value, if that is too much for the reply."""
    kind, first, second, asked = batch.command()
    if kind == PUT:
        engine.put(first, second)
        batch.done()
    elif kind == GET:
        value = engine.get(first, now=now)
        if value is None:
            batch.absent()
        elif not batch.value(value):
            return Rows([], [value])
    elif kind == REMOVE:
        if engine.remove(first):
            batch.done()
        else:
            batch.absent()
    elif kind == COUNT:
        batch.count(engine.count(first, second or None, now=now))
    else:
        limit = min(asked or rows_max, rows_max)
        rows = engine.scan(first, second or None, limit=limit, reverse=kind == SCAN_DOWN, now=now)
        if len(rows.keys) == limit != asked or not batch.rows(*rows):
            return rows
    return None
