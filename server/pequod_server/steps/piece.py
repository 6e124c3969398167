"""The reply of a batch, as columns, piece by piece.

    kinds      SCAN        PUT        GET         statuses  OK   OK   ABSENT
    arguments  first last  key value  key         counts    2
                                                  keys      k k       values  v v

A long reply is sent in pieces: the batch stops where a piece is full, and goes on there after the piece is sent.
"""

from __future__ import annotations

from collections.abc import Sequence

from pequod_proto.pequod_pb2 import CommandError, ExecuteReply

from pequod.commands.kinds import ABSENT, FAILED, GIVES, OK, PART, UNMET, WRITES, Gives
from pequod.engine import PequodError, Rows
from pequod.engine.answer import Answer
from pequod.engine.batch import BatchRun, is_whole
from pequod.language.conditions import Met, Unmet
from pequod.language.deadlines import to_remaining_ms
from pequod_server.database.write_through import Settled
from pequod_server.steps.native import BegunBatch
from pequod_server.wire.errors import command_error
from pequod_server.wire.fitting import ROW_BYTES

#: `ReplyPiece` has a property of the name.
Value = bytes


class ReplyPiece:
    """The results of a batch since the last piece of its reply.

    Args:
        bytes_max: How many bytes the rows and errors of the first piece may have.
    """

    __slots__ = (
        *("_bytes_max", "_counts", "_errors", "_keys", "_number", "_run", "_start", "_statuses", "_values"),
        *("lacking_bytes", "room"),
    )

    def __init__(self, run: BatchRun, number: int, bytes_max: int) -> None:
        self._run = run
        self._number = number
        #: How many bytes the piece may have, and how many of them are left.
        self._bytes_max = self.room = bytes_max
        #: The bytes that the next row needs, if a whole piece has no room for it.
        self.lacking_bytes = 0
        #: The first command of this piece.
        self._start = 0
        #: Of all commands.
        self._statuses = bytearray(len(run.kinds))
        self._keys: list[bytes] = []
        self._values: list[bytes] = []
        self._counts: list[int] = []
        self._errors: list[CommandError] = []

    @property
    def bytes(self) -> int:
        """How many bytes the rows and errors of the piece have."""
        return self._bytes_max - self.room

    def begin(self, bytes_max: int) -> None:
        """Begin the next piece.

        Requires:
            The piece before was taken with `reply`, or has nothing.
        """
        self._bytes_max = self.room = bytes_max
        self.lacking_bytes = 0

    def take(self, outcome: Answer | PequodError) -> bool:
        """Take what the next command gives, or as many of its rows as fit; return whether the piece has room for more.

        A command that has given all passes by. One whose rows do not fit into the rest of a piece runs again for the
        next piece, so that only rows that are too long for a whole piece are cut.
        """
        run = self._run
        match outcome:
            case Rows():
                return self._take_rows(outcome)
            case PequodError():
                self._fail(outcome)
                return self.room > 0
            case bytes() if run.kind in WRITES:
                # It must not run again. It is short, so that the piece may have it though it has no room, as errors.
                self._values.append(outcome)
                self.room -= len(outcome) + ROW_BYTES
                run.advance()
                # As for any value: where it has just fitted, commands that need no room go on.
                return self.room >= 0
            case bytes():
                if not self._take_value(outcome):
                    return False
            case Unmet(value) if value is not None:
                # If there is no room it runs again, under the same condition.
                if not self._take_value(value):
                    return False
                self._statuses[run.index] = UNMET
            case Unmet():
                self._statuses[run.index] = ABSENT
            case False:
                self._statuses[run.index] = ABSENT
            case float():
                self._counts.append(to_remaining_ms(outcome))
            case None if GIVES[run.kind] in (Gives.VALUE, Gives.REMAINING):
                self._statuses[run.index] = ABSENT
            case int() if outcome is not True:
                self._counts.append(outcome)
        run.advance()
        return True

    def _take_value(self, value: Value) -> bool:
        size = len(value) + ROW_BYTES
        if size > self.room:
            self._lack(size)
            return False
        self.room -= size
        self._values.append(value)
        return True

    def _take_rows(self, rows: Rows) -> bool:
        run, (keys, values) = self._run, rows
        # One sum over both lists: for the few rows of a check, half of what two take.
        size = sum(map(len, keys + values)) + ROW_BYTES * len(keys)
        if size > self.room < self._bytes_max:
            return False
        keep = len(keys)
        while size > self.room and keep > 1:
            keep -= 1
            size -= len(keys[keep]) + len(values[keep]) + ROW_BYTES
        if size > self.room:
            self._lack(size)
            return False
        self.room -= size
        self._keys += keys[:keep]
        self._values += values[:keep]
        self._counts.append(keep)
        if keep == len(keys) and is_whole(keep, run.command()[3], run.rows_max):
            run.advance()
            return True
        self._statuses[run.index] = PART
        run.go_on_behind(keep, keys[keep - 1])
        return False

    def _lack(self, size: int) -> None:
        """Note that a row does not fit; a single row is never cut."""
        if self.room == self._bytes_max:
            self.lacking_bytes = size

    def _fail(self, error: PequodError) -> None:
        """Note why the next command failed, and pass by it."""
        failure = command_error(error)
        self._statuses[self._run.advance()] = FAILED
        self._errors.append(failure)
        self.room -= failure.ByteSize() + ROW_BYTES

    def settle(self, outcomes: Sequence[Settled]) -> None:
        """Note what came of the next commands, without those that are refused, and pass by them.

        Args:
            outcomes: For each of these commands, whether the key was there, or why the command failed. What came of a
                condition, or of an addition, is the last of them: a value that has no room is asked for again.
        """
        run = self._run
        for outcome in outcomes:
            while run.refusal is not None and (error := run.refusal(run.index)) is not None:
                self._fail(error)
            if isinstance(outcome, PequodError):
                self._fail(outcome)
            elif isinstance(outcome, Met | Unmet | Value):
                self.take(outcome)
            else:
                self._statuses[run.advance()] = OK if outcome else ABSENT

    def take_over(self, begun: BegunBatch) -> None:
        """Take what commands returned that have run elsewhere, and pass by them."""
        run, reply = self._run, begun.reply
        stop = run.index + begun.commands
        self._statuses[run.index : stop] = reply.statuses[: begun.commands]
        self._keys += reply.keys
        self._values += reply.values
        self._counts += reply.counts
        self._errors += reply.errors
        self.room = begun.room
        run.index = stop
        run.argument_at += begun.arguments
        run.number_at += begun.numbers
        if begun.stop.excess is not None:
            self.take(begun.stop.excess)

    def reply(self, server_id: int, revision: int) -> ExecuteReply:
        """Return what the commands returned since the last piece; begin a piece for the commands that are left."""
        reply = ExecuteReply(
            batch=self._number,
            keys=self._keys,
            values=self._values,
            counts=self._counts,
            errors=self._errors,
            server_id=server_id,
            revision=revision,
        )
        start, stop = self._start, self._run.index
        is_cut = stop < len(self._statuses) and self._statuses[stop] == PART
        reply.statuses = bytes(self._statuses[start : stop + is_cut])
        if stop < len(self._statuses):
            reply.more = True
            self._start = stop
            self._statuses[stop] = OK
            self._keys, self._values, self._counts, self._errors = [], [], [], []
        return reply
