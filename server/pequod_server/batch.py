"""One batch of commands: columns in, columns out. The hot loop of the server.

    kinds      SCAN         PUT        GET         statuses  OK   OK   ABSENT
    arguments  first last   key value  key         counts    2
                                                   keys      k k       values  v v

Bench rows: wire, Execute. Everything in the loop is a local; rows are moved by extending lists. A reply
has room for so many bytes; once that is used up, reads are not run but left to be asked again.
"""

from __future__ import annotations

from typing import Final

from pequod_proto.commands import (
    ABSENT,
    COUNT,
    FAILED,
    GET,
    OK,
    PUT,
    REMOVE,
    SCAN,
    SCAN_DOWN,
    SCAN_LIMIT,
    TRUNCATED,
)
from pequod_proto.pequod_pb2 import CommandError, ExecuteReply, ExecuteRequest

from pequod.engine import BackedKeyError, Engine, LimitExceededError, PequodError, Rows
from pequod.errors import BadRequestError
from pequod_server.errors import code_of, facts_of
from pequod_server.publishing import public

#: What a row costs on the wire beside its key and its value, at most: two tags and two lengths.
ROW_BYTES: Final = 8

#: How many arguments and numbers a command takes.
TAKES: Final = {
    GET: (1, 0),
    PUT: (2, 0),
    REMOVE: (1, 0),
    SCAN: (2, 0),
    SCAN_LIMIT: (2, 1),
    SCAN_DOWN: (2, 1),
    COUNT: (2, 0),
}


class Batch:
    """A batch under way: what its commands have returned, and where it stands.

    Raises:
        BadRequestError: The columns do not fit.
        LimitExceededError: The batch has more than ``batch_commands_max`` commands.
    """

    __slots__ = (
        "_counts",
        "_engine",
        "_errors",
        "_keys",
        "_number",
        "_number_at",
        "_numbers",
        "_room",
        "_rows_max",
        "_start",
        "_statuses",
        "_values",
        "argument_at",
        "arguments",
        "index",
        "kinds",
    )

    def __init__(
        self, engine: Engine, request: ExecuteRequest, *, commands_max: int, rows_max: int, reply_bytes_max: int
    ) -> None:
        kinds = request.kinds
        if len(kinds) > commands_max:
            raise LimitExceededError("batch_commands_max", len(kinds), commands_max)
        arguments: list[bytes] = request.arguments[:]
        numbers: list[int] = request.numbers[:]
        check_columns(kinds, len(arguments), len(numbers))
        self._engine = engine
        self._number = request.batch
        self.kinds = kinds
        self.arguments = arguments
        self._numbers = numbers
        self._rows_max = rows_max
        #: How many bytes the reply still has room for.
        self._room = reply_bytes_max
        self._statuses = bytearray(len(kinds))
        self._keys: list[bytes] = []
        self._values: list[bytes] = []
        self._counts: list[int] = []
        self._errors: list[CommandError] = []
        #: The next command to run.
        self._start = 0
        #: The command that was begun last, and where the arguments of the one after it begin.
        self.index = 0
        self.argument_at = 0
        self._number_at = 0

    def run(self, now: float) -> None:  # noqa: PLR0912, PLR0915 - one flat loop
        """Run the commands that are left, in order.

        Raises:
            MissingError, BackedKeyError: The command at ``index`` has to wait. Tell what came of that, and run again.
        """
        engine, rows_max = self._engine, self._rows_max
        kinds, arguments, numbers = self.kinds, self.arguments, self._numbers
        statuses, keys, values, counts = self._statuses, self._keys, self._values, self._counts
        at, number_at, room = self.argument_at, self._number_at, self._room
        index = self._start
        try:
            for index, kind in enumerate(kinds[self._start :], self._start):
                try:
                    if kind == SCAN:
                        at += 2
                        if room <= 0:
                            statuses[index] = TRUNCATED
                            counts.append(0)
                            continue
                        rows = engine.scan(arguments[at - 2], arguments[at - 1] or None, limit=rows_max, now=now)
                        found, shown = rows
                        if found:
                            # One sum over both lists: for the few rows of a check, half of what two take.
                            room -= sum(map(len, found + shown)) + ROW_BYTES * len(found)
                            if room < 0 or len(found) == rows_max:
                                (found, shown), statuses[index] = _cut(rows, room, rows_max, 0 if values else 1)
                            keys += found
                            values += shown
                        counts.append(len(found))
                    elif kind == PUT:
                        at += 2
                        engine.put(arguments[at - 2], arguments[at - 1])
                    elif kind == GET:
                        at += 1
                        if room <= 0:
                            statuses[index] = TRUNCATED
                            continue
                        value = engine.get(arguments[at - 1], now=now)
                        if value is None:
                            statuses[index] = ABSENT
                        else:
                            room -= len(value) + ROW_BYTES
                            if room < 0 and values:
                                statuses[index] = TRUNCATED
                            else:
                                values.append(value)
                    elif kind == REMOVE:
                        at += 1
                        if not engine.remove(arguments[at - 1]):
                            statuses[index] = ABSENT
                    elif kind == COUNT:
                        at += 2
                        counts.append(engine.count(arguments[at - 2], arguments[at - 1] or None, now=now))
                    else:
                        at += 2
                        number_at += 1
                        if room <= 0:
                            statuses[index] = TRUNCATED
                            counts.append(0)
                            continue
                        asked = numbers[number_at - 1] or rows_max
                        limit = min(asked, rows_max)
                        first, last = arguments[at - 2], arguments[at - 1] or None
                        rows = engine.scan(first, last, limit=limit, reverse=kind == SCAN_DOWN, now=now)
                        room -= sum(map(len, rows.keys)) + sum(map(len, rows.values)) + ROW_BYTES * len(rows.keys)
                        is_whole = numbers[number_at - 1] == limit
                        most = limit + 1 if is_whole else limit
                        rows, statuses[index] = _cut(rows, room, most, 0 if values else 1)
                        keys += rows.keys
                        values += rows.values
                        counts.append(len(rows.keys))
                except BackedKeyError:
                    raise
                except PequodError as error:
                    statuses[index] = FAILED
                    self._errors.append(command_error(error))
        finally:
            self.index, self.argument_at, self._number_at, self._room = index, at, number_at, room

    def again(self) -> None:
        """Have the command at ``index`` run again, which has changed nothing but its place in the columns."""
        self._start = self.index
        argument_count, number_count = TAKES[self.kinds[self.index]]
        self.argument_at -= argument_count
        self._number_at -= number_count

    def settle(self, outcomes: list[bool | PequodError]) -> None:
        """Take in what came of the command at ``index`` and of as many after it as there are further outcomes.

        Args:
            outcomes: For each, whether the key was there, or why it failed.
        """
        self._start = self.index + len(outcomes)
        self.argument_at += sum(TAKES[kind][0] for kind in self.kinds[self.index + 1 : self._start])
        for place, outcome in enumerate(outcomes, self.index):
            if isinstance(outcome, PequodError):
                self._statuses[place] = FAILED
                self._errors.append(command_error(outcome))
            else:
                self._statuses[place] = OK if outcome else ABSENT

    def reply(self, server_id: int) -> ExecuteReply:
        """Return what all commands returned."""
        return ExecuteReply(
            batch=self._number,
            statuses=bytes(self._statuses),
            keys=self._keys,
            values=self._values,
            counts=self._counts,
            errors=self._errors,
            server_id=server_id,
            revision=self._engine.revision,
        )


def command_error(error: PequodError) -> CommandError:
    """Encode why one command failed."""
    error = public(error)
    return CommandError(
        code=code_of(error).value[0], message=str(error), reason=type(error).__name__, facts=facts_of(error)
    )


def check_columns(kinds: bytes, argument_count: int, number_count: int) -> None:
    """Pass if the columns of a batch fit its kinds.

    Raises:
        BadRequestError: They do not.
    """
    count = kinds.count
    scans = count(SCAN)
    puts = count(PUT)
    gets = count(GET)
    rest = len(kinds) - scans - puts - gets
    needed = gets + 2 * (puts + scans)
    needed_numbers = 0
    if rest:
        removes, counts = count(REMOVE), count(COUNT)
        needed_numbers = count(SCAN_LIMIT) + count(SCAN_DOWN)
        if removes + counts + needed_numbers != rest:
            unknown = sorted(set(kinds) - set(range(GET, COUNT + 1)))
            raise BadRequestError(f"there is no command of kind {unknown[0]}; kinds are {GET} to {COUNT}")
        needed += removes + 2 * (counts + needed_numbers)
    if argument_count != needed:
        raise BadRequestError(f"the kinds of this batch take {needed} arguments, not {argument_count}")
    if number_count != needed_numbers:
        raise BadRequestError(f"the kinds of this batch take {needed_numbers} numbers, not {number_count}")


def _cut(rows: Rows, room: int, rows_max: int, rows_min: int) -> tuple[Rows, int]:
    """Cut rows that leave ``room`` bytes (negative: too many) so that they fit, but to no fewer than ``rows_min``.

    Returns:
        The rows, and TRUNCATED if there may be more, else OK.
    """
    keep = len(rows.keys)
    status = TRUNCATED if keep >= rows_max else OK
    while room < 0 and keep > rows_min:
        keep -= 1
        room += len(rows.keys[keep]) + len(rows.values[keep]) + ROW_BYTES
        status = TRUNCATED
    return Rows(rows.keys[:keep], rows.values[:keep]), status
