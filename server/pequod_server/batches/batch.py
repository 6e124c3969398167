"""One batch of commands: columns in, columns out. The hot loop of the server.

    kinds      SCAN         PUT        GET         statuses  OK   OK   ABSENT
    arguments  first last   key value  key         counts    2
                                                   keys      k k       values  v v

Everything in the loop is a local; rows are moved by extending lists (bench rows: server: checks; server: gets; server:
puts). A long reply is sent in pieces: the loop stops where a piece is full, and goes on there after the piece is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from pequod_proto.pequod_pb2 import CommandError, ExecuteReply, ExecuteRequest

from pequod.commands.kinds import (
    ABSENT,
    ARGUMENT_COUNTS,
    COUNT,
    FAILED,
    GET,
    NUMBER_COUNTS,
    OK,
    PART,
    PUT,
    REMOVE,
    SCAN,
    SCAN_DOWN,
)
from pequod.engine import BackedKeyError, Engine, LimitExceededError, PequodError, Rows
from pequod_server.batches.columns import (
    REFUSED,
    Command,
    CommandJudge,
    ReadColumns,
    check_columns,
    commands,
    reads_of,
)
from pequod_server.batches.native import BegunBatch
from pequod_server.wire.errors import command_error
from pequod_server.wire.fitting import ROW_BYTES

#: No command is refused.
_NONE: Final[dict[int, PequodError]] = {}


class BatchRun:
    """A batch under way: the next command to run, and what its commands have returned since the last piece.

    Invariants:
        1. All commands before ``_start`` have run, and none behind it. The command at ``_start`` may have returned its
           first rows; then the columns hold a command for the rest of them in its place.

    Raises:
        BadRequestError: The columns do not fit.
        LimitExceededError: The batch has more than ``batch_commands_max`` commands.
    """

    __slots__ = (
        "_argument_at",
        "_arguments",
        "_bases",
        "_clock",
        "_counts",
        "_engine",
        "_errors",
        "_index",
        "_keys",
        "_kinds",
        "_number",
        "_number_at",
        "_numbers",
        "_piece_bytes_max",
        "_piece_start",
        "_refused",
        "_room",
        "_rows_max",
        "_start",
        "_statuses",
        "_values",
        "lacking_bytes",
    )

    def __init__(
        self,
        engine: Engine,
        request: ExecuteRequest,
        clock: Callable[[], float],
        *,
        commands_max: int,
        rows_max: int,
        piece_bytes_max: int,
    ) -> None:
        kinds = request.kinds
        if len(kinds) > commands_max:
            raise LimitExceededError("batch_commands_max", len(kinds), commands_max)
        arguments: list[bytes] = request.arguments[:]
        numbers: list[int] = request.numbers[:]
        check_columns(kinds, len(arguments), len(numbers))
        self._engine = engine
        self._clock = clock
        self._number = request.batch
        self._kinds = kinds
        self._arguments = arguments
        self._numbers = numbers
        self._rows_max = rows_max
        #: How many bytes the piece may have, and how many of them are left.
        self._piece_bytes_max = piece_bytes_max
        self._room = piece_bytes_max
        #: What the next row needs, if a whole piece has no room for it.
        self.lacking_bytes = 0
        self._statuses = bytearray(len(kinds))
        self._keys: list[bytes] = []
        self._values: list[bytes] = []
        self._counts: list[int] = []
        self._errors: list[CommandError] = []
        #: The commands that are refused, and what that depends on.
        self._refused = _NONE
        self._bases: list[object] | None = None
        #: The first command of this piece, and the next one to run.
        self._piece_start = 0
        self._start = 0
        #: The command that was begun last, and where the arguments and numbers of the one after it begin.
        self._index = 0
        self._argument_at = 0
        self._number_at = 0

    def run(self) -> None:  # noqa: PLR0912, PLR0915 - one flat loop
        """Run the commands that are left, in order, until all have run or the piece is full.

        If not, take the piece with `reply`, unless a row lacks room, call `begin_piece`, and run again.

        Raises:
            MissingError, BackedKeyError: The command that was begun last has to wait. Call `again`.
        """
        if self._room <= 0:
            return
        engine, rows_max, clock = self._engine, self._rows_max, self._clock
        kinds, arguments, numbers = self._kinds, self._arguments, self._numbers
        statuses, keys, values, counts = self._statuses, self._keys, self._values, self._counts
        at, number_at, room = self._argument_at, self._number_at, self._room
        index, now, is_timed = self._start, clock(), engine.is_timed
        excess: Rows | None = None
        try:
            for index, kind in enumerate(kinds[self._start :], self._start):
                if is_timed:
                    # The commands before may have taken long.
                    now = clock()
                try:
                    if kind == SCAN:
                        at += 2
                        rows = engine.scan(arguments[at - 2], arguments[at - 1] or None, limit=rows_max, now=now)
                        found, shown = rows
                        if found:
                            # One sum over both lists: for the few rows of a check, half of what two take.
                            size = sum(map(len, found + shown)) + ROW_BYTES * len(found)
                            if size > room or len(found) == rows_max:
                                excess = rows
                                break
                            room -= size
                            keys += found
                            values += shown
                        counts.append(len(found))
                    elif kind == PUT:
                        at += 2
                        engine.put(arguments[at - 2], arguments[at - 1])
                    elif kind == GET:
                        at += 1
                        value = engine.get(arguments[at - 1], now=now)
                        if value is None:
                            statuses[index] = ABSENT
                        else:
                            size = len(value) + ROW_BYTES
                            if size > room:
                                excess = Rows([], [value])
                                break
                            room -= size
                            values.append(value)
                    elif kind == REMOVE:
                        at += 1
                        if not engine.remove(arguments[at - 1]):
                            statuses[index] = ABSENT
                    elif kind == COUNT:
                        at += 2
                        counts.append(engine.count(arguments[at - 2], arguments[at - 1] or None, now=now))
                    elif kind < REFUSED:
                        at += 2
                        number_at += 1
                        asked = numbers[number_at - 1]
                        limit = min(asked or rows_max, rows_max)
                        first, last = arguments[at - 2], arguments[at - 1] or None
                        rows = engine.scan(first, last, limit=limit, reverse=kind == SCAN_DOWN, now=now)
                        found, shown = rows
                        size = sum(map(len, found)) + sum(map(len, shown)) + ROW_BYTES * len(found)
                        if size > room or len(found) == limit != asked:
                            excess = rows
                            break
                        room -= size
                        keys += found
                        values += shown
                        counts.append(len(found))
                    else:
                        at += ARGUMENT_COUNTS[kind - REFUSED]
                        number_at += NUMBER_COUNTS[kind - REFUSED]
                        raise self._refused[index]
                except BackedKeyError:
                    raise
                except PequodError as error:
                    room -= self._fail(index, error)
                    if room <= 0:
                        break
            else:
                self._start = len(kinds)
                return
        finally:
            self._index, self._argument_at, self._number_at, self._room = index, at, number_at, room
        self._start = index + 1
        if excess is not None:
            self._fit(excess)

    def _fit(self, rows: Rows) -> None:
        """Add rows of the command that was begun last to the piece, as many as fit.

        Args:
            rows: They do not fit all, or the command may have more of them.

        A command whose rows do not fit into the rest of a piece runs again for the next piece, so that only rows that
        are too long for a whole piece are cut. A single row is never cut.
        """
        found, shown = rows
        size = sum(map(len, found)) + sum(map(len, shown)) + ROW_BYTES * len(shown)
        if size > self._room < self._piece_bytes_max:
            self.again()
            return
        keep, kind = len(shown), self._kinds[self._index]
        while size > self._room and keep > 1:
            keep -= 1
            size -= len(found[keep]) + len(shown[keep]) + ROW_BYTES
        if size > self._room:
            self.again()
            self.lacking_bytes = size
            return
        self._room -= size
        self._keys += found[:keep]
        self._values += shown[:keep]
        if kind == GET:
            return
        self._counts.append(keep)
        asked = 0 if kind == SCAN else self._numbers[self._number_at - 1]
        if keep == len(found) and not len(found) == self._rows_max != asked:
            return
        self._statuses[self._index] = PART
        self.again()
        if kind == SCAN_DOWN:
            self._arguments[self._argument_at + 1] = found[keep - 1]
        else:
            self._arguments[self._argument_at] = found[keep - 1] + b"\0"
        if asked:
            self._numbers[self._number_at] = asked - keep

    def rest(self) -> ExecuteRequest:
        """Return the commands that are left as a request."""
        return ExecuteRequest(
            kinds=self._kinds[self._start :],
            arguments=self._arguments[self._argument_at :],
            numbers=self._numbers[self._number_at :],
        )

    def take_over(self, begun: BegunBatch) -> None:
        """Pass by commands that have run elsewhere, and add what they returned to the piece."""
        reply, stop = begun.reply, self._start + begun.commands
        self._statuses[self._start : stop] = reply.statuses[: begun.commands]
        self._keys += reply.keys
        self._values += reply.values
        self._counts += reply.counts
        self._errors += reply.errors
        self._start = stop
        self._argument_at += begun.arguments
        self._number_at += begun.numbers
        self._room = begun.room
        if begun.stop.excess.values:
            self._index = self._advance()
            self._fit(begun.stop.excess)

    def again(self) -> None:
        """Have the command that was begun last run again; it has changed nothing but its place in the columns."""
        self._start = self._index
        kind = self._kinds[self._index]
        self._argument_at -= ARGUMENT_COUNTS[kind]
        self._number_at -= NUMBER_COUNTS[kind]

    def begin_piece(self, bytes_max: int) -> None:
        """Begin the next piece, which may have ``bytes_max``.

        Requires:
            The piece before was taken with `reply`.
        """
        self._piece_bytes_max = self._room = bytes_max
        self.lacking_bytes = 0

    @property
    def room(self) -> int:
        """How many bytes the piece still has room for."""
        return self._room

    @property
    def piece_bytes(self) -> int:
        """How many bytes the rows and errors of the piece have."""
        return self._piece_bytes_max - self._room

    def reads_ahead(self, count_max: int) -> ReadColumns:
        """Return the reads right behind the next command."""
        start = self._start
        argument_count = ARGUMENT_COUNTS[self._kinds[start] % REFUSED]
        kinds = self._kinds[start + 1 : start + 1 + count_max]
        return reads_of(kinds, self._arguments, self._argument_at + argument_count)

    def ahead(self) -> Iterator[Command]:
        """Yield the commands that are left."""
        return commands(self._kinds, self._arguments, self._start, self._argument_at)

    def judge(self, judges: Sequence[CommandJudge]) -> None:
        """Have the commands that are left judged, unless that is done and what the judges go by is still the same.

        Args:
            judges: If several refuse a command, it fails with the error of the last of them.
        """
        bases = [judge.basis() for judge in judges]
        if bases == self._bases:
            return
        self._bases = bases
        if self._refused:
            self._kinds = bytes(kind % REFUSED for kind in self._kinds)
        self._refused = {}
        for judge in judges:
            self._refused |= judge.refused(self.ahead())
        if self._refused:
            kinds = bytearray(self._kinds)
            for position in self._refused:
                kinds[position] += REFUSED
            self._kinds = bytes(kinds)

    def settle(self, outcomes: Sequence[bool | PequodError]) -> None:
        """Note what came of the next commands, without those that are refused, and pass by them.

        Args:
            outcomes: For each of these commands, whether the key was there, or why the command failed.
        """
        for outcome in outcomes:
            while self._kinds[self._start] >= REFUSED:
                position = self._advance()
                self._room -= self._fail(position, self._refused[position])
            position = self._advance()
            if isinstance(outcome, PequodError):
                self._room -= self._fail(position, outcome)
            else:
                self._statuses[position] = OK if outcome else ABSENT

    def _advance(self) -> int:
        """Pass by the next command, and return its position."""
        kind = self._kinds[self._start] % REFUSED
        self._argument_at += ARGUMENT_COUNTS[kind]
        self._number_at += NUMBER_COUNTS[kind]
        self._start += 1
        return self._start - 1

    def _fail(self, position: int, error: PequodError) -> int:
        """Note why a command failed; return how many bytes the error takes in the reply."""
        self._statuses[position] = FAILED
        failure = command_error(error)
        self._errors.append(failure)
        return failure.ByteSize() + ROW_BYTES

    def reply(self, server_id: int) -> ExecuteReply:
        """Return what the commands returned since the last piece; begin a piece for the commands that are left."""
        reply = ExecuteReply(
            batch=self._number,
            statuses=bytes(self._statuses),
            keys=self._keys,
            values=self._values,
            counts=self._counts,
            errors=self._errors,
            server_id=server_id,
            revision=self._engine.revision,
        )
        start, stop = self._piece_start, self._start
        if stop < len(self._kinds):
            is_cut = self._statuses[stop] == PART
            reply.statuses = bytes(self._statuses[start : stop + is_cut])
            reply.more = True
            self._piece_start = stop
            self._statuses[stop] = OK
            self._keys, self._values, self._counts, self._errors = [], [], [], []
        elif start:
            reply.statuses = bytes(self._statuses[start:])
        return reply
