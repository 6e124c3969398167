"""Batches on one engine: what they wait for where a database is behind it, and the pieces of their replies.

    steps = executor.steps(request)
    steps.start()        -> a piece of the reply, a need (ranges, writes), or room for a long row
    steps.go_on(...)     -> the next one, once the piece is sent or the need is met
    steps.refuse(error)  -> the next one; the command that waits fails

The last step is the piece of the reply without ``more``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from pequod_proto.pequod_pb2 import ExecuteReply, ExecuteRequest

from pequod.commands.kinds import GET, PUT, WRITES
from pequod.engine import BackedKeyError, Engine, MissingError, PequodError
from pequod.freshness import merged
from pequod_server.backing import RowChange
from pequod_server.batches.batch import BatchRun
from pequod_server.batches.columns import REFUSED, CommandJudge
from pequod_server.batches.leveled import BatchLevels
from pequod_server.batches.native import BegunBatch, run_rest, slow_reads
from pequod_server.database.databases import Databases
from pequod_server.database.write_through import TOGETHER_MAX, CarriedOut
from pequod_server.freshness.levels import Levels

#: How many commands behind one that waits are looked at; and after how many slow reads that lack nothing the look ends:
#: to look at one costs ten times what a quick read does, and in a warm server one that lacks something stands alone.
_AHEAD_MAX: Final = 1000
_QUIET_MAX: Final = 16


class Writes(NamedTuple):
    """Puts of keys that the database owns, and removals (None): of the next command and of those right behind it."""

    changes: list[RowChange]


class Room(NamedTuple):
    """Memory for a row that is longer than a piece of the reply may be without asking."""

    bytes: int


#: What a command waits for.
Need = MissingError | Writes | Room
Step = Need | ExecuteReply


class Executor:
    """Begins batches on one engine.

    Args:
        levels: Knows how fresh reads have to be, and names the states that answer.
        piece_bytes_max: Returns how many bytes the next piece of a reply may have; without it, ``reply_bytes_max``.
        clock: Returns the time in seconds. The engine has no clock; it judges by this one how old snapshots are.
    """

    __slots__ = ("clock", "commands_max", "engine", "levels", "piece_bytes_max", "rows_max", "server_id")

    def __init__(
        self,
        engine: Engine,
        server_id: int,
        *,
        commands_max: int,
        reply_bytes_max: int,
        rows_max: int,
        piece_bytes_max: Callable[[], int] | None = None,
        clock: Callable[[], float] = time.monotonic,
        levels: BatchLevels | None = None,
    ) -> None:
        self.engine = engine
        self.server_id = server_id
        self.commands_max = commands_max
        self.piece_bytes_max = piece_bytes_max or (lambda: reply_bytes_max)
        self.rows_max = rows_max
        self.clock = clock
        if levels is None:
            none = Databases(engine)
            levels = BatchLevels(Levels(engine, none, server_id), none)
        self.levels = levels

    def execute(self, request: ExecuteRequest) -> list[ExecuteReply]:
        """Run a batch where no database is behind the engine, and return the pieces of its reply; see `steps`."""
        pieces: list[ExecuteReply] = []
        steps = self.steps(request)
        step = steps.run()
        while True:
            if isinstance(step, ExecuteReply):
                pieces.append(step)
                if not step.more:
                    return pieces
            else:
                assert isinstance(step, Room), "an engine without backed tables lacks nothing"
            step = steps.go_on()

    def steps(self, request: ExecuteRequest, judges: Sequence[CommandJudge] = ()) -> Steps:
        """Return the steps of a batch; call `Steps.start`, or `Steps.run`, for the first one.

        Args:
            judges: Say which commands fail without being run. They are asked again at each step.

        Raises:
            BadRequestError: The columns do not fit; nothing is applied.
            LimitExceededError: The batch has more than ``batch_commands_max`` commands; nothing is applied.
        """
        return Steps(self, request, judges)


class Steps:
    """The steps of one batch, whose commands run in order. Call `start` or `run` for the first one.

    Invariants:
        1. No command runs between a step that is returned and `go_on` or `refuse`, which say what came of it.
    """

    __slots__ = (
        "_batch", "_earlier", "_executor", "_is_looking_ahead", "_is_shared", "_judges", "_step", "piece_bytes",
    )  # fmt: skip

    def __init__(self, executor: Executor, request: ExecuteRequest, judges: Sequence[CommandJudge]) -> None:
        self._executor = executor
        self._judges = judges
        self._batch = BatchRun(
            executor.engine,
            request,
            executor.clock,
            commands_max=executor.commands_max,
            rows_max=executor.rows_max,
            piece_bytes_max=executor.piece_bytes_max(),
        )
        #: The token of its writes, and of the states in which commands have run before a step.
        self._earlier = b""
        #: Whether a command that waits for ranges waits for those of the reads behind it, too.
        self._is_looking_ahead = True
        #: Whether it does now.
        self._is_shared = False
        #: The step that was returned last.
        self._step: Step | None = None
        #: How many bytes of rows and errors the piece has that was returned last.
        self.piece_bytes = 0

    def run(self) -> Step:
        """Run commands until all have run, a piece of the reply is full, or a command has to wait.

        Returns:
            A piece of the reply, to be sent before anything else runs. Or what the next command waits for: ranges that
            it lacks, writes that the database has to carry out, or room for a row.

        Raises:
            UnauthenticatedError: The caller is not known any more; nothing more of the batch is applied.
        """
        self._judge()
        return self._run()

    def start(self) -> Step:
        """Do what `run` does, as far as possible on the native core: for many commands, none of which is refused."""
        self._judge()
        executor, batch = self._executor, self._batch
        begun = run_rest(executor.engine, batch.rest(), executor.rows_max, batch.room, executor.clock())
        return self._run() if begun is None else self.resume(begun)

    def _judge(self) -> None:
        if self._judges:
            self._batch.judge(self._judges)

    def _run(self) -> Step:
        batch = self._batch
        try:
            batch.run()
        except (MissingError, BackedKeyError) as error:
            batch.again()
            return self._taken(self._need(error))
        return self._taken(self._reached())

    def _need(self, error: MissingError | BackedKeyError) -> Need:
        """Return what the next command waits for, with what those behind it would wait for."""
        if isinstance(error, BackedKeyError):
            return Writes(self._writes_ahead())
        ahead = self._lacking_ahead() if self._is_looking_ahead else []
        self._is_shared = bool(ahead)
        errors = [error, *ahead]
        return MissingError(
            [one for error in errors for one in error.lacking], [one for error in errors for one in error.next_groups]
        )

    def _taken(self, step: Step) -> Step:
        """Note a step that is returned, and the state in which the commands before it have run."""
        self._step = step
        if not isinstance(step, ExecuteReply) or step.more:
            self._earlier = merged(self._earlier, self._executor.levels.token)
        return step

    def resume(self, begun: BegunBatch) -> Step:
        """Go on with a batch of which more has run elsewhere."""
        self._batch.take_over(begun)
        if begun.stop.waits_for is not None:
            return self._taken(self._need(begun.stop.waits_for))
        if begun.stop.excess.values:
            return self._taken(self._reached())
        return self._run()

    def go_on(self, written: CarriedOut | None = None) -> Step:
        """Go on after a piece is sent, or a need is met.

        Args:
            written: What came of the writes, if these were the need.
        """
        batch, step = self._batch, self._step
        if isinstance(step, Room):
            batch.begin_piece(step.bytes)
        elif not batch.piece_bytes or isinstance(step, ExecuteReply):
            # The memory that was free before the batch waited may not be free now.
            batch.begin_piece(self._executor.piece_bytes_max())
        if written is not None:
            batch.settle(written.outcomes)
            self._earlier = merged(self._earlier, written.token)
        if isinstance(step, MissingError):
            return self.start()
        return self.run()

    def refuse(self, error: PequodError) -> Step:
        """Go on where a need cannot be met: the command that waits fails with the error.

        If other commands need some of it, they may be those whose database is down: from now on each waits for itself.
        """
        if isinstance(self._step, MissingError) and self._is_shared:
            self._is_looking_ahead = False
            return self.run()
        if isinstance(self._step, Room):
            self._batch.begin_piece(self._executor.piece_bytes_max())
        self._batch.settle([error])
        return self.run()

    def _reached(self) -> Room | ExecuteReply:
        """Return the piece that is ready, or the room that its first row needs."""
        batch = self._batch
        if batch.lacking_bytes:
            return Room(batch.lacking_bytes)
        self.piece_bytes = batch.piece_bytes
        reply = batch.reply(self._executor.server_id)
        reply.MergeFromString(self._executor.levels.tail(self._earlier))
        return reply

    def _writes_ahead(self) -> list[RowChange]:
        """Return the write that waits, and those right behind it that the database owns, too, and that may run."""
        changes: list[RowChange] = []
        for _, kind, key, value in islice(self._batch.ahead(), TOGETHER_MAX):
            if kind >= REFUSED:
                continue
            if kind not in WRITES:
                break
            try:
                if not self._executor.engine.owned_by_database(key, value):
                    break
            except PequodError:
                break
            changes.append(RowChange(key, value if kind == PUT else None))
        return changes

    def _lacking_ahead(self) -> list[MissingError]:
        """Return what the reads behind the one that waits lack, up to the next write, so that all is loaded at once.

        What these reads compute now is there when their turn comes.
        """
        executor, batch, lacking, quiet = self._executor, self._batch, list[MissingError](), 0
        engine, clock = executor.engine, executor.clock
        reads = batch.reads_ahead(_AHEAD_MAX)
        for kind, first, last in slow_reads(engine, reads, executor.rows_max, batch.room, clock()):
            if quiet == _QUIET_MAX:
                break
            quiet += 1
            try:
                if kind == GET:
                    engine.get(first, now=clock())
                else:
                    # The last row takes the whole range, by the shortest way.
                    engine.scan(first, last or None, limit=1, reverse=True, now=clock())
            except MissingError as error:
                lacking.append(error)
                quiet = 0
            except PequodError:
                # The command fails with it when its turn comes.
                continue
        return lacking
