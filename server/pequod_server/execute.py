"""Batches on one engine: what they wait for where a database is behind it, and what they tell on the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from pequod_proto.commands import GET, PUT, REMOVE
from pequod_proto.pequod_pb2 import ExecuteReply, ExecuteRequest

from pequod.engine import BackedKeyError, Engine, MissingError, PequodError, Range
from pequod.language.ranges import united
from pequod_server.backing import Change
from pequod_server.batch import Batch
from pequod_server.columns import REFUSED, Judge
from pequod_server.write_through import TOGETHER_MAX

#: How many reads are looked at when one has to wait.
_AHEAD: Final = 1000


class Writes(NamedTuple):
    """Puts of keys that the database owns, and (None) removals: of the next command and of some after it."""

    changes: list[Change]


class Room(NamedTuple):
    """Memory for the next piece of the reply: its first row has so many bytes, more than pieces get by themselves."""

    bytes: int


#: What a command waits for.
Need = MissingError | Writes | Room
#: What comes of writes: for each, whether the key was there, or why it failed.
Outcomes = list[bool | PequodError]
#: Yields needs and pieces of the reply, is sent what came of writes, and returns the last piece.
Steps = Generator[Need | ExecuteReply, Outcomes | None, ExecuteReply]


class Executor:
    """Runs batches on one engine.

    Args:
        room: Tells how many bytes the next piece of a reply may have; without it, ``reply_bytes_max``.
        clock: Tells the time, which the engine has none of: whether snapshots are too old is judged by it.
    """

    __slots__ = ("_clock", "_commands_max", "_engine", "_room", "_rows_max", "_server_id", "piece_bytes")

    def __init__(
        self,
        engine: Engine,
        server_id: int,
        *,
        commands_max: int,
        reply_bytes_max: int,
        rows_max: int,
        room: Callable[[], int] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._server_id = server_id
        self._commands_max = commands_max
        self._room = room or (lambda: reply_bytes_max)
        self._rows_max = rows_max
        self._clock = clock
        #: How many bytes of rows the piece has that was made last, of whichever batch.
        self.piece_bytes = 0

    def execute(self, request: ExecuteRequest) -> list[ExecuteReply]:
        """Run a batch where no database is behind the engine, and return the pieces of its reply; see `steps`."""
        pieces: list[ExecuteReply] = []
        steps = self.steps(request)
        try:
            while True:
                piece = next(steps)
                assert isinstance(piece, ExecuteReply | Room), "an engine without backed tables lacks nothing"
                if isinstance(piece, ExecuteReply):
                    pieces.append(piece)
        except StopIteration as end:
            pieces.append(end.value)
        return pieces

    def steps(self, request: ExecuteRequest, judges: Sequence[Judge] = ()) -> Steps:
        """Run the commands of a batch in order.

        Args:
            judges: Tell which commands fail without being run. They are asked again at each step.

        Yields:
            Ranges that a command lacks, to be loaded, unless a PequodError is thrown for which it fails; writes,
            whose outcomes are sent; room for a row; and pieces of the reply, to be sent before anything else runs.

        Raises:
            BadRequestError: The columns do not fit; nothing is applied.
            LimitExceededError: The batch has more than ``batch_commands_max`` commands; nothing is applied.
        """
        batch = Batch(
            self._engine,
            request,
            self._clock,
            commands_max=self._commands_max,
            rows_max=self._rows_max,
            piece_bytes_max=self._room(),
        )
        while True:
            if judges:
                batch.judge(judges)
            try:
                is_done = batch.run()
                step: Need | ExecuteReply
                if batch.lacking_bytes:
                    step = Room(batch.lacking_bytes)
                else:
                    self.piece_bytes = batch.piece_bytes
                    step = batch.reply(self._server_id)
                    if is_done:
                        return step
            except MissingError as missing:  # Another name than above: mypyc gives a generator's variable one class.
                batch.again()
                step = MissingError(united([*missing.ranges, *self._lacking_ahead(batch)]))
            except BackedKeyError:
                batch.again()
                step = Writes(self._writes_ahead(batch))
            try:
                outcomes = yield step
            except PequodError as refusal:
                if isinstance(step, Room):
                    batch.begin_piece(self._room())
                batch.settle([refusal])
                continue
            if isinstance(step, Room):
                batch.begin_piece(step.bytes)
            elif not batch.piece_bytes or isinstance(step, ExecuteReply):
                # What was free before it waited may not be now.
                batch.begin_piece(self._room())
            if outcomes is not None:
                batch.settle(outcomes)

    def _writes_ahead(self, batch: Batch) -> list[Change]:
        """Return the write that waits, and those right behind it that the database owns, too, and that may run."""
        changes: list[Change] = []
        for _, kind, key, value in islice(batch.ahead(), TOGETHER_MAX):
            if kind >= REFUSED:
                continue
            if kind not in (PUT, REMOVE):
                break
            try:
                if not self._engine.owned_by_database(key, value):
                    break
            except PequodError:
                break
            changes.append(Change(key, value if kind == PUT else None))
        return changes

    def _lacking_ahead(self, batch: Batch) -> list[Range]:
        """Return what the reads after the one that waits lack, up to the next write, so that they wait all at once.

        What they compute now, they find then.
        """
        lacking: list[Range] = []
        for _, kind, first, last in islice(batch.ahead(), 1, 1 + _AHEAD):
            if kind in (PUT, REMOVE):
                break
            try:
                if kind == GET:
                    self._engine.get(first, now=self._clock())
                elif kind < REFUSED:
                    self._engine.count(first, last or None, now=self._clock())
            except MissingError as error:
                lacking += error.ranges
            except PequodError:
                # It says so itself when its turn comes.
                continue
        return lacking
