"""One batch of commands: columns in, columns out. The hot loop of the server.

    kinds      SCAN         PUT        GET         statuses  OK   OK   ABSENT
    arguments  first last   key value  key         counts    2
                                                   keys      k k       values  v v

Bench rows: wire, Execute. Everything in the loop is a local; rows are moved by extending lists. A reply
has room for so many bytes; once that is used up, reads are not run but left to be asked again.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final, NamedTuple

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

from pequod.engine import BackedKeyError, Engine, LimitExceededError, MissingError, PequodError, Range, Rows
from pequod.engine.ranges import united
from pequod.errors import BadRequestError
from pequod_server.backing import Change
from pequod_server.errors import code_of, facts_of
from pequod_server.write_through import TOGETHER_MAX

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


#: How many reads are looked at when one has to wait.
_AHEAD: Final = 1000


class Writes(NamedTuple):
    """Puts of keys that the database owns, and (None) removals: of this command and of some after it."""

    changes: list[Change]


#: What a command waits for.
Need = MissingError | Writes
#: What comes of writes: for each, whether the key was there, or why it failed.
Outcomes = list[bool | PequodError]
#: Yields needs, is sent the time, or what came of writes, and returns the reply.
Steps = Generator[Need, float | Outcomes, ExecuteReply]


class Executor:
    """Runs batches on one engine."""

    __slots__ = ("_commands_max", "_engine", "_reply_bytes_max", "_rows_max", "_server_id")

    def __init__(
        self, engine: Engine, server_id: int, *, commands_max: int, reply_bytes_max: int, rows_max: int
    ) -> None:
        self._engine = engine
        self._server_id = server_id
        self._commands_max = commands_max
        self._reply_bytes_max = reply_bytes_max
        self._rows_max = rows_max

    def execute(self, request: ExecuteRequest, now: float) -> ExecuteReply:
        """Run the commands of a batch in order, where no database is behind the engine; see `steps`."""
        try:
            next(self.steps(request, now))
        except StopIteration as end:
            reply: ExecuteReply = end.value
            return reply
        raise AssertionError("an engine without backed tables lacks nothing")

    def steps(self, request: ExecuteRequest, now: float) -> Steps:  # noqa: PLR0912, PLR0915 - one flat loop
        """Run the commands of a batch in order.

        Yields:
            What a command waits for: ranges, after which the time is sent, to have it run again, or a PequodError
            thrown for which it fails; or writes, whose outcomes are sent.

        Raises:
            BadRequestError: The columns do not fit; nothing is applied.
            LimitExceededError: The batch has more than ``batch_commands_max`` commands; nothing is applied.
        """
        kinds = request.kinds
        if len(kinds) > self._commands_max:
            raise LimitExceededError("batch_commands_max", len(kinds), self._commands_max)
        arguments = request.arguments[:]
        numbers = request.numbers[:]
        check_columns(kinds, len(arguments), len(numbers))
        engine, rows_max = self._engine, self._rows_max
        scan, put, get = engine.scan, engine.put, engine.get
        statuses = bytearray(len(kinds))
        keys: list[bytes] = []
        values: list[bytes] = []
        counts: list[int] = []
        errors: list[CommandError] = []
        room = self._reply_bytes_max
        at = number_at = 0
        start = index = 0
        while start < len(kinds):
            try:
                for index, kind in enumerate(kinds[start:], start):
                    try:
                        if kind == SCAN:
                            at += 2
                            if room <= 0:
                                statuses[index] = TRUNCATED
                                counts.append(0)
                                continue
                            rows = scan(arguments[at - 2], arguments[at - 1] or None, limit=rows_max, now=now)
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
                            put(arguments[at - 2], arguments[at - 1])
                        elif kind == GET:
                            at += 1
                            if room <= 0:
                                statuses[index] = TRUNCATED
                                continue
                            value = get(arguments[at - 1], now=now)
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
                            rows = scan(first, last, limit=limit, reverse=kind == SCAN_DOWN, now=now)
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
                        errors.append(command_error(error))
                break
            except MissingError as missing:  # Another name than above: mypyc gives a generator's variable one class.
                ahead = self._lacking_ahead(kinds, arguments, index, at, now)
                need: Need = MissingError(united([*missing.ranges, *ahead]))
            except BackedKeyError:
                need = Writes(self._writes_ahead(kinds, arguments, index, at - TAKES[kinds[index]][0]))
            start = index + 1
            try:
                outcome = yield need
            except PequodError as refusal:
                statuses[index] = FAILED
                errors.append(command_error(refusal))
                continue
            if isinstance(outcome, float):
                # The command has changed nothing but its place in the columns.
                now, start = outcome, index
                argument_count, number_count = TAKES[kinds[index]]
                at -= argument_count
                number_at -= number_count
            else:
                start = index + len(outcome)
                at += sum(TAKES[kind][0] for kind in kinds[index + 1 : start])
                for place, one in enumerate(outcome, index):
                    if isinstance(one, PequodError):
                        statuses[place] = FAILED
                        errors.append(command_error(one))
                    else:
                        statuses[place] = OK if one else ABSENT
        return ExecuteReply(
            batch=request.batch,
            statuses=bytes(statuses),
            keys=keys,
            values=values,
            counts=counts,
            errors=errors,
            server_id=self._server_id,
            revision=engine.revision,
        )

    def _writes_ahead(self, kinds: bytes, arguments: Sequence[bytes], index: int, at: int) -> list[Change]:
        """Return the write at ``index``, and those right behind it that the database owns, too.

        ``at`` is where their arguments begin.
        """
        changes: list[Change] = []
        for kind in kinds[index : index + TOGETHER_MAX]:
            if kind not in (PUT, REMOVE):
                break
            value = arguments[at + 1] if kind == PUT else None
            try:
                if not self._engine.owned_by_database(arguments[at], value or b""):
                    break
            except PequodError:
                break
            changes.append(Change(arguments[at], value))
            at += TAKES[kind][0]
        return changes

    def _lacking_ahead(self, kinds: bytes, arguments: Sequence[bytes], index: int, at: int, now: float) -> list[Range]:
        """Return what the reads after command ``index`` lack, up to the next write, so that they wait all at once.

        ``at`` is where their arguments begin. What they compute now, they find then.
        """
        lacking: list[Range] = []
        for kind in kinds[index + 1 : index + 1 + _AHEAD]:
            if kind in (PUT, REMOVE):
                break
            try:
                if kind == GET:
                    self._engine.get(arguments[at], now=now)
                else:
                    self._engine.count(arguments[at], arguments[at + 1] or None, now=now)
            except MissingError as error:
                lacking += error.ranges
            at += TAKES[kind][0]
        return lacking


def command_error(error: PequodError) -> CommandError:
    """Encode why one command failed."""
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
