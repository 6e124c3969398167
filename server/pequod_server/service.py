"""The calls of `pequod.v1`: decode, ask the engine, encode. Each engine call runs to its end before the next."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, assert_never

from google.protobuf.message import DecodeError
from grpc import aio
from pequod_proto import pequod_pb2 as pb

from pequod.engine import BackedKeyError, Engine, LimitExceededError, MissingError, PequodError, Range
from pequod.errors import BadRequestError
from pequod.language.ranges import united
from pequod_server.administration import AdministrationHandlers
from pequod_server.admission import COPIES, SMALL_BYTES, Admission
from pequod_server.backfills import BackfillHandlers, LeasedBackfills
from pequod_server.backing import Change
from pequod_server.batch import ROW_BYTES
from pequod_server.bounds import range_of
from pequod_server.columns import Judge, check_columns, commands, reads
from pequod_server.commands import RightsJudge, StalenessJudge
from pequod_server.config import ServerConfig
from pequod_server.errors import stopping_status
from pequod_server.execute import Executor, Need, Outcomes, Room, Steps, Writes
from pequod_server.guard import present_caller
from pequod_server.handlers import Answer, Context, answer, end_call, refuse
from pequod_server.joins import JoinLimits
from pequod_server.loader import ROUNDS_MAX, Loader
from pequod_server.observe import NOTHING_TOLD, BatchSink, Told
from pequod_server.scanning import ScanHandlers
from pequod_server.snapshots import Snapshots
from pequod_server.undecodable import undecodable
from pequod_server.watches import Bounds, Watches
from pequod_server.watching import WatchHandlers
from pequod_server.write_through import WriteThrough

#: A removal takes 3 µs, and 0.4 µs for each computed key that goes with it: others wait for a few ms at most.
_REMOVED_AT_A_TIME: Final = 256


class PequodService(ScanHandlers, WatchHandlers, AdministrationHandlers, BackfillHandlers):
    """One engine behind the wire contract."""

    def __init__(
        self,
        engine: Engine,
        config: ServerConfig,
        on_batch: BatchSink,
        snapshots: Snapshots,
        loader: Loader | None = None,
        *,
        admission: Admission | None = None,
    ) -> None:
        self._engine = engine
        self._snapshots = snapshots
        self._loader = loader
        self._on_batch = on_batch
        self._config = config
        self._join_limits = JoinLimits(config)
        self._admission = admission or Admission(config)
        #: Random, so that clients notice a restart.
        self.server_id = secrets.randbits(63)
        #: Watches; they would hold up the end of the server.
        self._idle: set[asyncio.Task[Any]] = set()
        self._is_stopping = False
        self._watches = Watches(engine, config, loader)
        self._backfills = LeasedBackfills(engine, config)
        self._executor = Executor(
            engine,
            self.server_id,
            commands_max=config.batch_commands_max,
            reply_bytes_max=config.reply_bytes_max,
            rows_max=config.rows_max,
            room=self._admission.piece_bytes_max,
        )
        self._through = None if loader is None or not loader.is_write_through else WriteThrough(engine, loader)
        self._judges: tuple[Judge, ...] = () if loader is None else (StalenessJudge(loader),)

    def _header(self) -> pb.Header:
        return pb.Header(server_id=self.server_id, revision=self._engine.revision)

    async def Get(self, request: pb.GetRequest, context: Context) -> pb.GetReply:
        """Get one value."""
        bounds = request.key, request.key + b"\0"
        value = await self._read(context, lambda: self._engine.get(request.key, now=time.monotonic()), bounds)
        return pb.GetReply(header=self._header(), value=value)

    async def Put(self, request: pb.PutRequest, context: Context) -> pb.PutReply:
        """Write one base key."""
        try:
            await answer(context, lambda: self._engine.put(request.key, request.value))
        except BackedKeyError as error:
            await self._write(context, error, request.value)
        return pb.PutReply(header=self._header())

    async def Remove(self, request: pb.RemoveRequest, context: Context) -> pb.RemoveReply:
        """Remove one base key."""
        try:
            removed = await answer(context, lambda: self._engine.remove(request.key))
        except BackedKeyError as error:
            removed = await self._write(context, error, None)
        return pb.RemoveReply(header=self._header(), removed=removed)

    async def MultiGet(self, request: pb.MultiGetRequest, context: Context) -> pb.MultiGetReply:
        """Get many values, as many as fit into a reply."""
        room = self._config.reply_bytes_max
        values: list[bytes] = []
        present: list[bool] = []
        await answer(context, lambda: self._refuse_many(len(request.keys)))
        keys = request.keys[:]
        found = await self._read_keys(context, keys)
        for value in found:
            room -= len(value or b"") + ROW_BYTES
            if room < 0 and values:
                break
            values.append(value or b"")
            present.append(value is not None)
        return pb.MultiGetReply(header=self._header(), values=values, present=present)

    async def MultiPut(self, request: pb.MultiPutRequest, context: Context) -> pb.MultiPutReply:
        """Write many base keys, all or none."""
        keys, values = request.keys[:], request.values[:]
        if len(keys) != len(values):
            reason = f"each key needs one value: there are {len(keys)} keys and {len(values)} values"
            await refuse(context, BadRequestError(reason))

        def put() -> None:
            self._refuse_many(len(keys))
            self._engine.put_all(keys, values)

        try:
            await answer(context, put)
        except BackedKeyError as error:
            if self._through is None:
                await refuse(context, error)
            try:
                await self._through.put_all(keys, values)
            except PequodError as refusal:
                await refuse(context, refusal)
        return pb.MultiPutReply(header=self._header())

    async def _removed_through(self, context: Context, first: bytes, last: bytes | None, error: BackedKeyError) -> int:
        if self._through is None:
            await refuse(context, error)
        try:
            return await self._through.remove_range(first, last)
        except PequodError as refusal:
            await refuse(context, refusal)

    def _get_all(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return many values; what any of them lacks is told at once."""
        clock, values, missing = time.monotonic, [], list[Range]()
        for key in keys:
            try:
                values.append(self._engine.get(key, now=clock()))
            except MissingError as error:
                missing += error.ranges
        if missing:
            raise MissingError(united(missing))
        return values

    def _refuse_many(self, count: int) -> None:
        if count > self._config.batch_commands_max:
            raise LimitExceededError("batch_commands_max", count, self._config.batch_commands_max)

    async def RemoveRange(self, request: pb.RemoveRangeRequest, context: Context) -> pb.RemoveRangeReply:
        """Remove the base keys of a range; between pieces, others have their turn."""
        if not request.HasField("first") and not request.prefix:
            reason = "name the range by first or prefix; an empty first is the very first key"
            await refuse(context, BadRequestError(reason))
        first, last = range_of(request)
        removed = 0
        try:
            while keys := self._engine.remove_range(first, last, _REMOVED_AT_A_TIME):
                removed += len(keys)
                if len(keys) < _REMOVED_AT_A_TIME:
                    break
                first = keys[-1] + b"\0"
                await asyncio.sleep(0)
        except BackedKeyError as error:
            # The first piece tells: nothing is removed before.
            removed = await self._removed_through(context, first, last, error)
        return pb.RemoveRangeReply(header=self._header(), removed=removed)

    async def Count(self, request: pb.CountRequest, context: Context) -> pb.CountReply:
        """Count the keys of a range."""
        first, last = bounds = range_of(request)
        count = await self._read(context, lambda: self._engine.count(first, last, now=time.monotonic()), bounds)
        return pb.CountReply(header=self._header(), count=count)

    async def Splits(self, request: pb.SplitsRequest, context: Context) -> pb.SplitsReply:
        """Tell where a range can be cut."""
        await answer(context, lambda: self._refuse_many(request.count))
        keys = self._engine.splits(*range_of(request), request.count)
        return pb.SplitsReply(header=self._header(), keys=keys)

    async def Execute(self, _requests: object, context: Context) -> None:
        """Run batches as they come, and write their replies in as many pieces as it takes."""
        read, write, executor, clock = context.read, context.write, self._executor, time.monotonic
        on_batch, loader = self._on_batch, self._loader
        task, idle = asyncio.current_task(), self._admission.pressure.streams
        assert task is not None
        caller = present_caller()
        judges = self._judges if caller is None else (*self._judges, RightsJudge(caller))
        try:
            while not self._is_stopping:
                idle[task] = clock()
                request = await read()
                del idle[task]
                if request is aio.EOF:
                    return
                started_s = clock()
                if loader is not None and loader.gate.is_closed:
                    await self._whole(loader, request)
                steps = executor.steps(request, judges)
                try:
                    step = next(steps)
                except StopIteration as end:
                    reply = end.value
                    on_batch(request, reply, NOTHING_TOLD, clock() - started_s)
                else:
                    await self._finish(request, steps, step, write, started_s)
                    continue
                if executor.piece_bytes > SMALL_BYTES:
                    await self._write_piece(reply, write)
                else:
                    await write(reply)
        except (BadRequestError, LimitExceededError) as error:
            await refuse(context, error)
        except DecodeError as error:
            await refuse(context, undecodable(error))
        except asyncio.CancelledError as error:
            await self._cancelled(context, error)
        finally:
            idle.pop(task, None)
        await end_call(context, stopping_status())

    async def _cancelled(self, context: Context, error: asyncio.CancelledError) -> None:
        """Return if a stream was cancelled since the server stops; raise what it ends with otherwise."""
        pressure = self._admission.pressure
        if (refusal := pressure.refusal(error)) is not None:
            await refuse(context, refusal)
        # A batch that was begun may have been applied: nobody is to be told that it was not.
        if not (self._is_stopping and asyncio.current_task() in pressure.streams):
            raise error

    async def _read(self, context: Context, ask: Callable[[], Answer], bounds: Bounds) -> Answer:
        """Answer a read of a range, once what it needs of the database is loaded."""
        if self._loader is None:
            return await answer(context, ask)
        try:
            return await self._loader.read(ask, *bounds)
        except PequodError as error:
            await refuse(context, error)

    async def _read_keys(self, context: Context, keys: Sequence[bytes]) -> list[bytes | None]:
        """Do the same for a read of some keys."""
        if self._loader is None:
            return await answer(context, lambda: self._get_all(keys))
        try:
            return await self._loader.read_keys(lambda: self._get_all(keys), keys)
        except PequodError as error:
            await refuse(context, error)

    async def _write(self, context: Context, error: BackedKeyError, value: bytes | None) -> bool:
        """Write a key of the database through, or refuse it; tell whether it was there."""
        (outcome,) = await self._carry_out([Change(error.key, value)])
        if isinstance(outcome, PequodError):
            await refuse(context, outcome)
        return outcome

    async def _carry_out(self, changes: list[Change]) -> Outcomes:
        if self._through is None:
            return [BackedKeyError(change.key) for change in changes]
        return await self._through.carry_out(changes)

    async def _finish(
        self,
        request: pb.ExecuteRequest,
        steps: Steps,
        step: Need | pb.ExecuteReply,
        write: Callable[[pb.ExecuteReply], Awaitable[None]],
        started_s: float,
    ) -> None:
        """Run the rest of a batch that waits, or whose reply comes in pieces, and write its pieces."""
        row_count, errors, held_bytes = 0, list[pb.CommandError](), 0
        rounds_max = ROUNDS_MAX * len(request.kinds)
        admission = self._admission
        try:
            try:
                while True:
                    if isinstance(step, pb.ExecuteReply):
                        row_count += len(step.keys)
                        errors += step.errors
                        written_s = time.monotonic()
                        await (write(step) if held_bytes else self._write_piece(step, write))
                        admission.release(held_bytes)
                        held_bytes = 0
                        # How long the client takes is not the batch's time.
                        started_s += time.monotonic() - written_s
                        await self._opened()
                        step = next(steps)
                        continue
                    try:
                        outcomes = None
                        if isinstance(step, Room):
                            # Whoever waits holds nothing that others wait for.
                            admission.release(held_bytes)
                            held_bytes = 0
                            held_bytes = await admission.acquire(COPIES * step.bytes)
                            await self._opened()
                        else:
                            rounds_max -= 1
                            assert rounds_max >= 0, "a range that is loaded is there for the command that waits for it"
                            outcomes = await self._meet(step)
                    except PequodError as error:
                        step = steps.throw(error)
                    else:
                        step = steps.send(outcomes)
            except StopIteration as end:
                reply: pb.ExecuteReply = end.value
            # The write may fail by itself, which is no consequence of the end of the steps.
            self._on_batch(request, reply, Told(row_count, errors), time.monotonic() - started_s)
            await (write(reply) if held_bytes else self._write_piece(reply, write))
        finally:
            admission.release(held_bytes)
            steps.close()

    async def _write_piece(self, piece: pb.ExecuteReply, write: Callable[[pb.ExecuteReply], Awaitable[None]]) -> None:
        """Write the piece that was made last, and count it until its client has taken it."""
        size = self._executor.piece_bytes
        if size <= SMALL_BYTES:
            await write(piece)
        else:
            with self._admission.taken(COPIES * size):
                await write(piece)

    async def _meet(self, need: Writes | MissingError) -> Outcomes | None:
        """Return what came of a need, at a moment when no commit of the database is half applied."""
        outcomes: Outcomes | None = None
        match need:
            case Writes(changes):
                outcomes = await self._carry_out(changes)
            case MissingError(ranges=ranges):
                assert self._loader is not None, "only backed tables lack something"
                await self._loader.load(ranges)
            case _:
                assert_never(need)
        await self._opened()
        return outcomes

    async def _opened(self) -> None:
        """Wait until no commit of the database is half applied."""
        if self._loader is not None:
            await self._loader.gate.opened()

    async def _whole(self, loader: Loader, request: pb.ExecuteRequest) -> None:
        """Wait for that, if a batch reads what comes from the database."""
        arguments = request.arguments[:]
        check_columns(request.kinds, len(arguments), len(request.numbers))
        await loader.whole([bounds for _, bounds in reads(commands(request.kinds, arguments))])

    def relieve(self) -> None:
        """Let go of what is kept for slow watches, if everything is over the engine's limit without it."""
        self._watches.relieve()

    def end_streams(self) -> None:
        """End the streams: watches and idle batch streams now, the others after the batch that they are at."""
        self._is_stopping = True
        self._watches.close()
        for task in (*self._idle, *self._admission.pressure.streams):
            task.cancel()
