"""Batches on the native core: from the bytes of a message to those of its reply.

    message -> native batch -> reply
                            -> a command waits, or the reply is long: `Steps` of the rest

`Steps` take over an unusual message, which protobuf parses, and each message where there is no native core.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import overload

from pequod_proto.pequod_pb2 import CommandError, ExecuteRequest

from pequod.native import NativeBatch, parse_batch
from pequod_server.steps.executor import Executor
from pequod_server.steps.judges import CommandJudge
from pequod_server.steps.native import begun, run_batch
from pequod_server.steps.steps import Step, Steps


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
    if not executor.ids.is_new(batch.batch_id):
        # What some of its commands gave before is for `OnceRun` to tell.
        return None
    return QuickBatch(executor, batch, judges)


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

    def __init__(self, executor: Executor, batch: NativeBatch, judges: Sequence[CommandJudge]) -> None:
        self._batch = batch
        self.errors: list[CommandError] = []
        self.reply: bytes | None = None
        self.rest: tuple[ExecuteRequest, Steps, Step] | None = None
        executor.databases.expiring.pass_due()
        stop = run_batch(executor.engine, batch, executor.rows_max, executor.clock(), self.errors)
        if batch.outcome_count:
            executor.ids.remember_all(batch.batch_id, batch.outcomes, batch.outcome_count)
        self.reply_bytes = batch.reply_bytes
        if stop is None:
            executor.levels.count(batch)
            self.reply = batch.reply(executor.server_id, executor.engine.revision, executor.levels.tail())
            return
        # The native core takes no message that protobuf refuses, or whose columns are longer than its kinds.
        request = ExecuteRequest.FromString(batch.message)
        fresh = executor.levels.of(request)
        steps = executor.steps(request, judges, fresh)
        self.rest = request, steps, steps.resume(begun(batch, stop))

    @property
    def kinds(self) -> bytes:
        """The kinds of its commands."""
        return self._batch.kinds

    @property
    def trace_parent(self) -> bytes:
        """The span of its caller."""
        return self._batch.trace_parent

    @property
    def trace_state(self) -> bytes:
        """The notes of the caller's tracing system about the span."""
        return self._batch.trace_state

    @property
    def arguments(self) -> Sequence[bytes]:
        """Its arguments."""
        return _Arguments(self._batch)

    @property
    def keys(self) -> Sized:
        """As many things as scans returned rows."""
        return range(self._batch.row_count)


class _Arguments(Sequence[bytes]):
    """The arguments of a batch, each of which is made when it is looked at."""

    __slots__ = ("_batch",)

    def __init__(self, batch: NativeBatch) -> None:
        self._batch = batch

    def __len__(self) -> int:
        return self._batch.argument_count

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        if isinstance(at, slice):
            return [self._batch.argument(one) for one in range(*at.indices(len(self)))]
        return self._batch.argument(at)
