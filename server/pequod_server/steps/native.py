"""What the native core does of a batch: quick commands, in Python one that is not, quick ones again.

native batch: quick commands -> one that is not: the engine, in Python -> quick ones ... -> all have run
                                it waits, or the reply is long: what has run so far, and why it stops
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from pequod_proto.pequod_pb2 import CommandError, ExecuteReply, ExecuteRequest

from pequod.commands.columns import commands, needs
from pequod.commands.kinds import ARGUMENT_COUNTS, GET, GIVES, KINDS, SCAN, SCANS, Gives
from pequod.engine import BackedKeyError, Engine, MissingError, PequodError, Rows
from pequod.engine.answer import Answer, answer
from pequod.engine.batch import BatchRun, Waits, is_short_of_memory, is_whole
from pequod.language.conditions import Unmet
from pequod.language.deadlines import to_remaining_ms
from pequod.native import NativeBatch, core, parse_batch
from pequod_server.wire.errors import command_error

#: So few commands are not made a message for the native core: it would take longer than they do.
FEW: Final = 8


class Stop(NamedTuple):
    """Why a native batch ends before all of its commands have run: neither is there where no room is left."""

    #: The reason for which the next command waits.
    waits_for: Waits | None = None
    #: The rows of the next command, or its value, if there are more of them than fit.
    excess: Rows | bytes | Unmet | None = None


class BegunBatch(NamedTuple):
    """The commands of a batch that the native core has run, and their reply."""

    #: The values and rows that they gave; statuses of all commands.
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
        kind, first, second, asked, third, ttl_ms = batch.command()
        number = min(asked or rows_max, rows_max) if kind in SCANS else asked
        try:
            outcome = answer(engine, kind, first, second, number, now, third, ttl_ms)
        except (MissingError, BackedKeyError) as error:
            return Stop(error.with_traceback(None))
        except PequodError as error:
            if is_short_of_memory(error) and kind in _READS:
                # In Python it may give fewer rows at a time, and an error says the way out.
                return Stop()
            failure = command_error(error)
            errors.append(failure)
            if not batch.failed(failure.SerializeToString()):
                return Stop()
        else:
            if isinstance(outcome, Rows):
                fits = is_whole(len(outcome.keys), asked, rows_max) and batch.rows(*outcome)
            else:
                fits = _take(batch, kind, outcome)
            if not fits:
                assert isinstance(outcome, Rows | bytes | Unmet), "nothing else takes room"
                return Stop(excess=outcome)
    return None


def _take(batch: NativeBatch, kind: int, outcome: Answer) -> bool:
    """Have a native batch take what the next command gives, unless there is no room for it."""
    if isinstance(outcome, bytes):
        return batch.value(outcome)
    if isinstance(outcome, Unmet) and outcome.value is not None:
        return batch.unmet(outcome.value)
    match GIVES[kind], outcome:
        case Gives.COUNT, int():
            batch.count(outcome)
        case Gives.REMAINING, float():
            batch.count(to_remaining_ms(outcome))
        case (Gives.VALUE | Gives.REMAINING, None) | (Gives.WAS_THERE, False) | (Gives.MET, Unmet()):
            batch.absent()
        case _:
            batch.done()
    return True


def begun(batch: NativeBatch, stop: Stop | None) -> BegunBatch:
    """Return what has run of a native batch."""
    reply = ExecuteReply.FromString(batch.reply(0, 0))
    return BegunBatch(reply, batch.index, batch.argument_at, batch.number_at, batch.room, stop or Stop())


class RestIds(NamedTuple):
    """The request ids of what is left of a batch, none of which is remembered.

    Attributes:
        positions: Of its commands in the ids of the batch.
        remember: Takes the outcomes of those that have run, and how many these are.
    """

    batch_id: bytes
    positions: Sequence[int]
    remember: Callable[[bytes, int], None]


def is_for_core(engine: Engine, run: BatchRun) -> bool:
    """Return whether what is left of a batch may be worth a message for the native core."""
    return core is not None and not engine.is_timed and len(run.kinds) - run.index >= FEW


def run_rest(engine: Engine, run: BatchRun, room: int, now: float, ids: RestIds | None) -> BegunBatch | None:
    """Run what is left of a batch; None if that is not for the native core, and nothing has run.

    Args:
        ids: None: its commands have no request ids.

    Requires:
        `is_for_core`.
    """
    rest = ExecuteRequest(
        kinds=run.kinds[run.index :], arguments=run.arguments[run.argument_at :], numbers=run.numbers[run.number_at :]
    )
    if ids is not None:
        rest.batch_id = ids.batch_id
        rest.batch_positions.extend(ids.positions)
    batch = parse_batch(rest.SerializeToString(), len(rest.kinds), run.rows_max, room)
    if batch is None:
        return None
    try:
        stop = run_batch(engine, batch, run.rows_max, now, [])
    finally:
        # In the turn in which they ran, whatever ended it.
        if ids is not None and batch.outcome_count:
            ids.remember(batch.outcomes, batch.outcome_count)
    return begun(batch, stop)


#: A command that looks at a whole range is a SCAN of it, and a command that reads nothing is no read.
_READS: Final = {kind.code: SCAN if kind.is_of_range else GET for kind in KINDS if not kind.is_write}
_AS_READS: Final = bytes(_READS.get(code, 0) for code in range(256))


def slow_reads(engine: Engine, run: BatchRun, stop: int, room: int, now: float) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield reads, as GETs and SCANs, that take more than a look-up and a copy: all if nothing is native.

    They are those right behind the next command, up to a write.

    Args:
        stop: The position up to which commands are looked at.
        room: How many bytes the others may copy.
    """
    kinds = run.kinds[run.index + 1 : stop].translate(_AS_READS).partition(b"\0")[0]
    start = run.argument_at + ARGUMENT_COUNTS[run.kind]
    arguments = run.arguments[start : start + needs(kinds).argument_count]
    batch = None
    if not engine.is_timed and len(kinds) >= FEW:
        request = ExecuteRequest(kinds=kinds, arguments=arguments)
        batch = parse_batch(request.SerializeToString(), len(kinds), run.rows_max, room)
    if batch is None:
        for _, kind, first, last in commands(kinds, arguments):
            yield kind, first, last
        return
    while engine.run_quick(batch, now):
        kind, first, last, _, _, _ = batch.command()
        yield kind, first, last
        batch.absent()
