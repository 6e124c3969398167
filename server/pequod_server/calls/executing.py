"""The call of batches: one stream of requests, and the pieces of their replies.

read -> batch -> reply without ``more``, and small -> write             nearly all batches
             -> piece, ranges, writes, room: one step after another    the rest, in `_finish`

A hot batch is run by its connection while the handler waits; one that is not quick comes to the handler by `go_on`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import grpc
from google.protobuf.message import DecodeError
from grpc import aio
from pequod_proto import pequod_pb2 as pb

from pequod.engine import PequodError
from pequod.native import NativeBatch
from pequod_server.access.guard import present_caller
from pequod_server.calls.served import ServedEngine
from pequod_server.database.write_through import CarriedOut
from pequod_server.memory.admission import COPIES, SMALL_BYTES, Admission
from pequod_server.memory.places import refusal_of
from pequod_server.ops.observe import ONE_PIECE, BatchSink, BatchTraces, BatchWork
from pequod_server.passing.batches import PassedBatches
from pequod_server.passing.passing import Passing
from pequod_server.steps.judges import CommandJudge, QuotaJudge, RightsJudge
from pequod_server.steps.quick import QuickBatch, run_quick
from pequod_server.steps.steps import Outcomes, Room, Step, Steps
from pequod_server.wire.contents import Contents
from pequod_server.wire.errors import stopping_status
from pequod_server.wire.handlers import Context, Handler, end_call, when_ended, written
from pequod_server.wire.undecodable import undecodable

_Write = Callable[[pb.ExecuteReply], Awaitable[None]]


def handler_of_batches(execute: Callable[[Any, Context], Awaitable[None]]) -> Handler:
    """Return the handler of Execute, which takes the bytes of requests, and writes those of replies or the message."""
    return grpc.stream_stream_rpc_method_handler(execute, bytes, _encoded)


def _encoded(reply: bytes | pb.ExecuteReply) -> bytes:
    return reply if isinstance(reply, bytes) else reply.SerializeToString()


class _Begun(NamedTuple):
    """The moment at which a batch began."""

    at_s: float
    #: How many rows reads had computed by then.
    rows_computed: int


class _Hot(NamedTuple):
    """A batch that has run while its handler waited for it."""

    quick: QuickBatch
    begun: _Begun


class _Open(NamedTuple):
    """A stream: the judges of its batches, and its context."""

    judges: tuple[CommandJudge, ...]
    context: Context


class ExecuteCalls:
    """Answers Execute.

    Args:
        on_batch: Called after each batch.
        traces: Makes the spans of batches; None: nothing does.
        passing: Passes batches on that this worker cannot run; None: this is the whole server.
    """

    def __init__(
        self,
        served: ServedEngine,
        admission: Admission,
        on_batch: BatchSink,
        traces: BatchTraces | None = None,
        passing: Passing | None = None,
    ) -> None:
        self._passing = passing
        self._databases = served.databases
        self._admission = admission
        self._on_batch = on_batch
        self._traces = traces
        self._is_stopping = False
        self._contents = Contents(pb.ExecuteRequest, served.config)
        self._executor = served.executor
        self._open: dict[asyncio.Task[Any], _Open] = {}
        admission.pressure.end_stream = self._end_idle

    # What connections call while handlers wait.

    def ran(self, streams: Iterable[asyncio.Task[Any]]) -> None:
        """Take note of streams whose batches have run and been answered: they are in use."""
        idle, now_s = self._admission.pressure.streams, time.monotonic()
        for task in streams:
            if task in idle:
                idle[task] = now_s

    def go_on(self, task: asyncio.Task[Any], batch: NativeBatch) -> object:
        """Go on with a batch that has run natively, up to a command that is not quick or to the end; return it.

        Requires:
            No call has run since the batch has, and the judges of its stream let it pass.
        """
        begun = _Begun(time.monotonic(), self._executor.engine.rows_computed)
        # From here on it may have been applied: its client must not be told that it was not.
        self._admission.pressure.streams.pop(task, None)
        judges = self._open[task].judges
        if judges and isinstance(judges[0], QuotaJudge):
            judges[0].begin(is_counted=True)
        return _Hot(QuickBatch(self._executor, batch, judges), begun)

    def end(self) -> None:
        """End the streams: idle ones now, the others after the batch that they are at."""
        self._is_stopping = True
        for task in tuple(self._admission.pressure.streams):
            self._end_idle(task)

    def _end_idle(self, task: asyncio.Task[Any], *reason: Exception) -> None:
        """End a stream that waits for a batch. One that comes now is not run: its client is told that none is."""
        if (take_no_more := getattr(self._open[task].context, "take_no_more", None)) is not None:
            take_no_more()
        task.cancel(*reason)

    async def execute(self, _requests: object, context: Context) -> None:
        """Run batches as they come, and write their replies in as many pieces as it takes."""
        write, clock, gate = partial(written, context), time.monotonic, self._databases.gate
        read = self._reader(context, write)
        engine = self._executor.engine
        task, idle, contents = asyncio.current_task(), self._admission.pressure.streams, self._contents.message
        assert task is not None
        quotas, judges = self._judges_of_caller()
        #: The first batch comes at once, so it waits for a place like the request of any call.
        receive: Callable[[], Awaitable[Any]] = partial(self._admission.read, context.peer(), read)
        self._open[task] = _Open(judges, context)
        try:
            while not self._is_stopping:
                idle[task] = clock()
                message = await receive()
                idle.pop(task, None)
                if quotas is not None and not isinstance(message, _Hot):
                    quotas.begin()
                if message is aio.EOF:
                    return
                started_s, computed = clock(), engine.rows_computed
                quick: QuickBatch | None
                if isinstance(message, _Hot):
                    quick, (started_s, computed) = message
                else:
                    quick = None if gate.closed else run_quick(self._executor, message, judges)
                if quick is not None and quick.reply is not None:
                    duration_s = clock() - started_s
                    self._on_batch(quick, quick, self._work(computed), duration_s)
                    if self._traces is not None and quick.trace_parent:
                        self._traces.ran(quick, duration_s)
                    await _write_counted(self._admission, write, quick.reply, quick.reply_bytes)
                    del message, quick
                    receive = read
                    continue
                rest = None if quick is None else quick.rest
                assert rest is not None or quick is None, "what has run natively is not run again"
                request = contents(message) if rest is None else rest[0]
                with self._traced(request, started_s):
                    await self._run(request, rest, judges, write, _Begun(started_s, computed))
                # An idle stream keeps nothing of its last batch.
                del message, quick, request, rest
                receive = read
        except DecodeError as error:
            raise undecodable(error) from None
        except asyncio.CancelledError as error:
            self._refuse_cancelled(error)
        finally:
            idle.pop(task, None)
            del self._open[task]
        end_call(stopping_status())

    def _reader(self, context: Context, write: Callable[[Any], Awaitable[None]]) -> Callable[[], Awaitable[Any]]:
        """Return what reads the next batch that is to run here; those before it are passed on."""
        passing = self._passing
        if passing is None or passing.is_home or passing.has_come(context):
            return context.read
        away, idle, contents = PassedBatches(passing), self._admission.pressure.streams, self._contents.message
        when_ended(lambda _: away.end())

        async def read() -> Any:
            while isinstance(message := await context.read(), bytes) and away.are_needed(request := contents(message)):
                task = asyncio.current_task()
                assert task is not None
                # It may be applied: its client must not be told that it was not.
                idle.pop(task, None)
                await away.run(request, message, write)
                idle[task] = time.monotonic()
            return message

        return read

    def _judges_of_caller(self) -> tuple[QuotaJudge | None, tuple[CommandJudge, ...]]:
        """Return the judges of the batches of a stream; and the one among them that counts, if callers are known."""
        caller = present_caller()
        if caller is None:
            return None, self._executor.home_judges
        # A command that several judges refuse has the last one's error: rights before the map, the map before quotas.
        quotas = QuotaJudge(caller)
        return quotas, (quotas, *self._executor.home_judges, RightsJudge(caller))

    def _work(self, computed: int, row_count: int = 0, errors: Sequence[pb.CommandError] = ()) -> BatchWork:
        """Return what a batch did that began when ``computed`` rows had been computed."""
        since = self._executor.engine.rows_computed - computed
        return BatchWork(row_count, errors, since) if since or row_count or errors else ONE_PIECE

    def _traced(self, request: pb.ExecuteRequest, started_s: float) -> AbstractContextManager[None]:
        """Return the span of a batch that runs meanwhile, or nothing like it."""
        if self._traces is None or not request.trace_parent:
            return nullcontext()
        return self._traces.running(request, time.monotonic() - started_s)

    async def _run(
        self,
        request: pb.ExecuteRequest,
        rest: tuple[pb.ExecuteRequest, Steps, Step] | None,
        judges: tuple[CommandJudge, ...],
        write: _Write,
        begun: _Begun,
    ) -> None:
        """Run a batch, or the rest of one, and write its reply."""
        if rest is None:
            steps = await self._executor.begin(request, judges)
            step = steps.start()
        else:
            _, steps, step = rest
        if isinstance(step, pb.ExecuteReply) and not step.more and steps.piece_bytes <= SMALL_BYTES:
            self._on_batch(request, step, self._work(begun.rows_computed), time.monotonic() - begun.at_s)
            await write(step)
        else:
            await self._finish(request, steps, step, _Delivery(self._admission, write), begun)

    def _refuse_cancelled(self, error: asyncio.CancelledError) -> None:
        """Return if a stream was cancelled since the server stops; raise what the stream ends with otherwise."""
        pressure = self._admission.pressure
        if (refusal := refusal_of(error)) is not None:
            raise refusal from None
        # A batch that was begun may have been applied: its client must not be told that it was not.
        if not (self._is_stopping and asyncio.current_task() in pressure.streams):
            raise error

    async def _finish(
        self, request: pb.ExecuteRequest, steps: Steps, step: Step, delivery: _Delivery, begun: _Begun
    ) -> None:
        """Run the rest of a batch that waits, or whose reply is long, and write the pieces of the reply."""
        try:
            while not isinstance(step, pb.ExecuteReply) or step.more:
                step = await self._next(step, steps, delivery)
            duration_s = time.monotonic() - begun.at_s - delivery.client_s
            work = self._work(begun.rows_computed, delivery.row_count, delivery.errors)
            self._on_batch(request, step, work, duration_s)
            await delivery.send(step, steps.piece_bytes)
        finally:
            delivery.release()

    async def _next(self, step: Step, steps: Steps, delivery: _Delivery) -> Step:
        """Do what a step asks for, have the commands that are left made ready, and return the next step."""
        written: CarriedOut | None = None
        refusal: PequodError | None = None
        try:
            match step:
                case pb.ExecuteReply():
                    await delivery.send(step, steps.piece_bytes)
                case Room(bytes=row_bytes):
                    await delivery.make_room(row_bytes)
                case Outcomes():
                    raise AssertionError("a batch has pieces")
                case _:
                    written = await self._executor.meet(step)
        except PequodError as error:
            refusal = error.with_traceback(None)
        await steps.ready()
        return steps.go_on(written) if refusal is None else steps.refuse(refusal)


async def _write_counted(
    admission: Admission, write: Callable[[Any], Awaitable[None]], reply: bytes | pb.ExecuteReply, reply_bytes: int
) -> None:
    """Write a reply, counted against the memory for messages until its client has it, if it is not small."""
    if reply_bytes <= SMALL_BYTES:
        await write(reply)
    else:
        with admission.taken(COPIES * reply_bytes):
            await write(reply)


class _Delivery:
    """The pieces of one reply on their way: each counts against the memory for messages until its client has it.

    Invariants:
        1. ``_held_bytes`` of that memory are held for the next piece, until it is sent or `release` is called.
    """

    __slots__ = ("_admission", "_held_bytes", "_write", "client_s", "errors", "row_count")

    def __init__(self, admission: Admission, write: _Write) -> None:
        self._admission = admission
        self._write = write
        self._held_bytes = 0
        #: The rows and errors of the pieces that were sent.
        self.row_count = 0
        self.errors: list[pb.CommandError] = []
        #: How long the client took to take them, which is not the batch's time.
        self.client_s = 0.0

    async def make_room(self, row_bytes: int) -> None:
        """Wait for the memory of a piece with one long row.

        Raises:
            LimitExceededError: There was no room for a while.
        """
        # A batch that waits holds nothing that others wait for.
        self.release()
        self._held_bytes = await self._admission.acquire(COPIES * row_bytes)

    async def send(self, piece: pb.ExecuteReply, piece_bytes: int) -> None:
        """Write a piece; one without room of its own is counted now, if it is not small."""
        self.row_count += len(piece.keys)
        self.errors += piece.errors
        begun_s = time.monotonic()
        if self._held_bytes:
            await self._write(piece)
        else:
            await _write_counted(self._admission, self._write, piece, piece_bytes)
        self.release()
        self.client_s += time.monotonic() - begun_s

    def release(self) -> None:
        """Give back the memory that is held for the next piece."""
        self._admission.release(self._held_bytes)
        self._held_bytes = 0
