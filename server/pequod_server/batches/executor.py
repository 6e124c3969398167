"""Batches on one engine: what they wait for where a database is behind it, and the pieces of their replies.

    steps = executor.steps(request)
    steps.run()          -> a piece of the reply, a need (ranges, writes), or room for a long row
    steps.go_on(...)     -> the next one, once the piece is sent or the need is met
    steps.refuse(error)  -> the next one; the command that waits fails

The last step is the piece of the reply without ``more``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from pequod_proto.commands import GET, PUT, REMOVE
from pequod_proto.pequod_pb2 import ExecuteReply, ExecuteRequest

from pequod.engine import BackedKeyError, Engine, Lacking, MissingError, PequodError, Rows
from pequod_server.backing import Change
from pequod_server.batches.batch import BatchRun, BegunBatch
from pequod_server.batches.columns import REFUSED, CommandJudge
from pequod_server.batches.leveled import BatchLevels
from pequod_server.database.databases import Databases
from pequod_server.database.levels import Levels
from pequod_server.database.write_through import TOGETHER_MAX

#: How many commands behind one that waits are looked at; and after how many reads that lack nothing the look ends. To
#: look at a read costs ten times what a quick read does, and in a warm server one that lacks something stands alone.
_AHEAD_MAX: Final = 1000
_QUIET_MAX: Final = 16


class Writes(NamedTuple):
    """Puts of keys that the database owns, and removals (None): of the next command and of those right behind it."""

    changes: list[Change]


class Room(NamedTuple):
    """Memory for a row that is longer than a piece of the reply may be without asking."""

    bytes: int


#: What a command waits for.
Need = MissingError | Writes | Room
Step = Need | ExecuteReply
#: For each of the writes, whether the key was there before, or why the write failed.
Outcomes = list[bool | PequodError]


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
        """Return the steps of a batch; call `Steps.run` for the first one.

        Args:
            judges: Say which commands fail without being run. They are asked again at each step.

        Raises:
            BadRequestError: The columns do not fit; nothing is applied.
            LimitExceededError: The batch has more than ``batch_commands_max`` commands; nothing is applied.
        """
        return Steps(self, request, judges)


class Steps:
    """The steps of one batch, whose commands run in order.

    Invariants:
        1. No command runs between a step that is returned and `go_on` or `refuse`, which say what came of it.
    """

    __slots__ = (
        "_batch", "_executor", "_is_looking_ahead", "_is_shared", "_judges", "_lacked", "_looked_at", "_step",
        "piece_bytes",
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
        #: Whether a command that waits for ranges waits for those of the reads behind it, too.
        self._is_looking_ahead = True
        #: Whether it does now.
        self._is_shared = False
        #: The reads before this position were looked at, and those at these positions lacked something then.
        self._looked_at = 0
        self._lacked: set[int] = set()
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
        batch = self._batch
        if self._judges:
            batch.judge(self._judges)
        step: Step
        try:
            batch.run()
        except MissingError as missing:
            batch.again()
            ahead = self._lacking_ahead() if self._is_looking_ahead else []
            self._is_shared = bool(ahead)
            step = MissingError([*missing.lacking, *ahead])
        except BackedKeyError:
            batch.again()
            step = Writes(self._writes_ahead())
        else:
            step = self._reached()
        self._step = step
        return step

    def resume(self, begun: BegunBatch, excess: Rows) -> Step:
        """Go on with a batch that was begun elsewhere, instead of the first `run`.

        Args:
            begun: How far it is.
            excess: The rows of the next command, if there are more of them than fit; otherwise none.
        """
        self._batch.take_over(begun, excess)
        if not excess.values:
            return self.run()
        self._step = step = self._reached()
        return step

    def go_on(self, outcomes: Outcomes | None = None) -> Step:
        """Go on after a piece is sent, or a need is met.

        Args:
            outcomes: What came of the writes, if these were the need.
        """
        batch, step = self._batch, self._step
        if isinstance(step, Room):
            batch.begin_piece(step.bytes)
        elif not batch.piece_bytes or isinstance(step, ExecuteReply):
            # The memory that was free before the batch waited may not be free now.
            batch.begin_piece(self._executor.piece_bytes_max())
        if outcomes is not None:
            batch.settle(outcomes)
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
        reply.MergeFromString(self._executor.levels.tail())
        return reply

    def _writes_ahead(self) -> list[Change]:
        """Return the write that waits, and those right behind it that the database owns, too, and that may run."""
        changes: list[Change] = []
        for _, kind, key, value in islice(self._batch.ahead(), TOGETHER_MAX):
            if kind >= REFUSED:
                continue
            if kind not in (PUT, REMOVE):
                break
            try:
                if not self._executor.engine.owned_by_database(key, value):
                    break
            except PequodError:
                break
            changes.append(Change(key, value if kind == PUT else None))
        return changes

    def _lacking_ahead(self) -> list[Lacking]:
        """Return what the reads behind the one that waits lack, up to the next write, so that all is loaded at once.

        What these reads compute now is there when their turn comes. One that lacked nothing is not looked at again, so
        a batch whose reads lack something one after another is not walked for each of them.
        """
        engine, clock, lacking = self._executor.engine, self._executor.clock, list[Lacking]()
        looked_at, lacked, quiet = self._looked_at, set[int](), 0
        for position, kind, first, last in islice(self._batch.ahead(), 1, 1 + _AHEAD_MAX):
            if kind in (PUT, REMOVE) or quiet == _QUIET_MAX:
                break
            if position < looked_at and position not in self._lacked:
                continue
            self._looked_at = max(self._looked_at, position + 1)
            quiet += 1
            try:
                if kind == GET:
                    engine.get(first, now=clock())
                elif kind < REFUSED:
                    engine.count(first, last or None, now=clock())
            except MissingError as error:
                lacking += error.lacking
                lacked.add(position)
                quiet = 0
            except PequodError:
                # The command fails with it when its turn comes.
                continue
        self._lacked = lacked
        return lacking
