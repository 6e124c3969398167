"""Batches on the native core: from the bytes of a message to those of its reply, command by command.

    message -> native batch: quick commands -> one that is not: the engine, in Python -> quick ones ... -> reply
                                            -> it waits, or the reply is long: `Steps` of the rest

What is unusual in a message, and everything where there is no native core, is left to protobuf and `Batch`.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Final

from pequod_proto.commands import COUNT, GET, PUT, REMOVE, SCAN_DOWN
from pequod_proto.pequod_pb2 import CommandError, ExecuteReply, ExecuteRequest

from pequod.engine import BackedKeyError, Engine, MissingError, PequodError, Rows
from pequod.engine.native import NativeBatch, parse_batch
from pequod_server.batches.batch import BegunBatch, command_error
from pequod_server.batches.columns import CommandJudge
from pequod_server.batches.executor import Executor, Step, Steps

_NO_ROWS: Final = Rows([], [])


def run_quick(executor: Executor, message: bytes, judges: Sequence[CommandJudge] = ()) -> QuickBatch | None:
    """Run a batch whose commands all pass the judges, when no commit of a database is half applied.

    Returns:
        None if the batch is not for the native core: nothing of it has run.

    Raises:
        UnauthenticatedError: The caller is not known any more.
    """
    if executor.engine.is_timed:
        return None
    reply_bytes_max = executor.piece_bytes_max()
    batch = parse_batch(message, executor.commands_max, executor.rows_max, reply_bytes_max)
    if batch is None or not executor.levels.passes(batch) or not all(judge.passes(batch) for judge in judges):
        return None
    return QuickBatch(executor, batch, message, reply_bytes_max, judges)


class QuickBatch:
    """A batch that has run natively, as far as that goes.

    Attributes:
        errors: Why commands failed.
        reply: The bytes of its reply; None: something is left to be done.
        reply_bytes: How many bytes the rows and errors of the reply have.
        rest: What is left: the request, its steps, and the first one of these. A command has to wait, or the reply
            comes in pieces.
    """

    __slots__ = ("_batch", "errors", "reply", "reply_bytes", "rest")

    def __init__(
        self,
        executor: Executor,
        batch: NativeBatch,
        message: bytes,
        reply_bytes_max: int,
        judges: Sequence[CommandJudge],
    ) -> None:
        self._batch = batch
        self.errors: list[CommandError] = []
        self.reply: bytes | None = None
        self.rest: tuple[ExecuteRequest, Steps, Step] | None = None
        excess = self._run(executor)
        self.reply_bytes = reply_bytes_max - batch.room
        if excess is None:
            self.reply = batch.reply(executor.server_id, executor.engine.revision, executor.levels.tail())
            return
        request = ExecuteRequest.FromString(message)
        fresh = executor.levels.of(request)
        steps = executor.steps(request, judges if fresh is None else [fresh, *judges])
        begun = BegunBatch(
            ExecuteReply.FromString(batch.reply(0, 0)),
            batch.index,
            batch.argument_at,
            batch.number_at,
            batch.room,
            reply_bytes_max,
        )
        self.rest = request, steps, steps.resume(begun, excess)

    @property
    def kinds(self) -> bytes:
        """The kinds of its commands."""
        return self._batch.kinds

    @property
    def arguments(self) -> Sequence[bytes]:
        """The first of its arguments, if there is one."""
        return self._batch.first_argument()

    @property
    def keys(self) -> Sized:
        """As many things as scans returned rows."""
        return range(self._batch.row_count)

    def _run(self, executor: Executor) -> Rows | None:
        """Run commands; return None if all have run, else the rows of the next one that are too many.

        There are none of these if that command has not run.
        """
        engine, batch, now = executor.engine, self._batch, executor.clock()
        while engine.run_quick(batch, now):
            try:
                excess = _answer(engine, batch, executor.rows_max, now)
                if excess is not None:
                    return excess
            except (MissingError, BackedKeyError):
                return _NO_ROWS
            except PequodError as error:
                failure = command_error(error)
                self.errors.append(failure)
                if not batch.failed(failure.SerializeToString()):
                    return _NO_ROWS
        return None


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
