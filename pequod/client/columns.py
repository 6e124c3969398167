"""Batches of commands as columns, and replies taken apart; the hot half of both clients.

Bench rows: client: encode; client: decode.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, pairwise
from secrets import token_bytes
from typing import TYPE_CHECKING, Final, NamedTuple

from pequod_proto.pequod_pb2 import ExecuteReply, ExecuteRequest

from pequod.answers.rows import Rows
from pequod.calls import Result
from pequod.client.decode import age_ms_of, command_error
from pequod.client.levels import level
from pequod.client.retry import BATCH_ID_BYTES
from pequod.client.tracing import Trace, caller_trace
from pequod.commands.columns import has_reads, has_writes, is_harmless_twice, starts
from pequod.commands.kinds import (
    ABSENT,
    ARGUMENT_COUNTS,
    DECIDED,
    FAILED,
    GET,
    GIVES,
    NUMBER_COUNTS,
    OK,
    PART,
    UNMET,
    WRITES,
    Gives,
)
from pequod.freshness import Freshness
from pequod.interface.commands import Commands
from pequod.language.conditions import MET, Unmet
from pequod.language.deadlines import remaining_s
from pequod.native import core

#: Kinds of results that a reply has only if the key is there.
_OR_ABSENT: Final = (Gives.VALUE, Gives.REMAINING)
#: The kinds whose replies have nothing beside rows.
_ROWS_OR_NOTHING: Final = bytes(kind for kind, gives in GIVES.items() if gives in (Gives.ROWS, Gives.NOTHING))
#: The tag and the size before the id of a batch in its message.
_BATCH_ID_HEAD: Final = ExecuteRequest(batch_id=bytes(BATCH_ID_BYTES)).SerializeToString()[:-BATCH_ID_BYTES]
#: Takes half the time of calling `Rows`, whose constructor is a Python function.
_new_rows: Final = tuple.__new__


class Reply(NamedTuple):
    """The reply to a batch."""

    #: The batch's number in its stream.
    batch: int
    server_id: int
    revision: int
    #: The result of each command.
    results: list[Result]
    #: The state that answered, and how old it was; None if the server does not know.
    token: bytes = b""
    age_ms: int | None = None


class Columns(Commands):
    """Commands as they are sent to a server.

    Ensures:
        A command with wrong arguments, such as a number as a key, raises and adds nothing, since calls of others may
        share these columns.
    """

    __slots__ = ("batch_id", "batch_positions", "trace")

    def __init__(self, freshness: Freshness | None = None) -> None:
        super().__init__(freshness)
        #: The id of the batch, which commands that a server does once have with their positions; empty: they have none.
        self.batch_id = b""
        #: Positions of the commands in the batch that was sent first; none: those that they have here.
        self.batch_positions: list[int] = []
        #: The caller's span; of several callers, that of the first who has one.
        self.trace: Trace = ()

    def take(self) -> Columns:
        """Return the commands, to be sent on behalf of the caller, and become empty."""
        taken = Columns(self.freshness)
        taken.trace = caller_trace()
        taken.kinds, self.kinds = self.kinds, taken.kinds
        taken.arguments, self.arguments = self.arguments, taken.arguments
        taken.numbers, self.numbers = self.numbers, taken.numbers
        taken.overrides, self.overrides = self.overrides, taken.overrides
        return taken

    def take_in(self, other: Columns) -> None:
        """Add the reads of another batch; each keeps the level that it has there."""
        start = len(self.kinds)
        self.trace = self.trace or other.trace
        for position in range(len(other)):
            freshness = other.overrides.get(position, other.freshness)
            if freshness is not None:
                self.overrides[start + position] = freshness
        self.kinds += other.kinds
        self.arguments += other.arguments
        self.numbers += other.numbers

    def protect(self) -> None:
        """Give each ADD, and each write under a condition, a request id: all of them by one id of the batch.

        Cost:
            1 µs.
        """
        if not self.batch_id and any(map(self.kinds.count, DECIDED)):
            self.batch_id = token_bytes(BATCH_ID_BYTES)

    def is_harmless_twice(self) -> bool:
        """Return whether no command changes anything once more when it is sent again."""
        return is_harmless_twice(self.kinds, has_ids=bool(self.batch_id))

    def harmless_twice(self) -> tuple[Columns, list[int]]:
        """Return the commands that may be sent again, and their positions."""
        positions = [at for at, kind in enumerate(self.kinds) if kind not in WRITES or self.is_done_once(at)]
        return self.picked(positions), positions

    def is_done_once(self, position: int) -> bool:
        """Return whether a command has a request id."""
        return bool(self.batch_id) and self.kinds[position] in DECIDED

    def has_writes(self) -> bool:
        """Return whether a command changes anything."""
        return has_writes(self.kinds)

    def has_reads(self) -> bool:
        """Return whether a command reads anything."""
        return has_reads(self.kinds)

    def starts(self) -> tuple[list[int], list[int]]:
        """Return where the arguments and the numbers of each command begin, and where both columns end."""
        return starts(self.kinds, ARGUMENT_COUNTS), starts(self.kinds, NUMBER_COUNTS)

    def picked(self, positions: Iterable[int], found: tuple[list[int], list[int]] | None = None) -> Columns:
        """Return the commands at ascending positions; each keeps the level that it has here.

        Args:
            found: What `starts` returned, if several parts are picked.
        """
        picked = Columns(self.freshness)
        picked.trace = self.trace
        begins, number_begins = found or self.starts()
        for position in positions:
            if position in self.overrides:
                picked.overrides[len(picked.kinds)] = self.overrides[position]
            if self.batch_id:
                picked.batch_positions.append(self.batch_positions[position] if self.batch_positions else position)
            picked.kinds.append(self.kinds[position])
            picked.arguments += self.arguments[begins[position] : begins[position + 1]]
            picked.numbers += self.numbers[number_begins[position] : number_begins[position + 1]]
        if any(map(picked.kinds.count, DECIDED)):
            picked.batch_id = self.batch_id
        else:
            picked.batch_positions = []
        return picked

    def reads(self) -> tuple[Columns, list[int]]:
        """Return the commands that change nothing, and their positions."""
        positions = [position for position, kind in enumerate(self.kinds) if kind not in WRITES]
        return self.picked(positions), positions

    def message(self, batch: int) -> ExecuteRequest:
        """Return the commands as one message."""
        message = ExecuteRequest(batch=batch, kinds=bytes(self.kinds), arguments=self.arguments, numbers=self.numbers)
        message.MergeFromString(self.other_fields())
        return message

    def other_fields(self) -> bytes:
        """Return the fields beside commands, which most have none of: levels of freshness, the caller's span, ids."""
        if self.freshness is None and not self.overrides and not self.trace and not self.batch_id:
            return b""
        if self.batch_id and self.freshness is None and not (self.overrides or self.trace or self.batch_positions):
            # Nearly all batches with ids; protobuf takes three times as long.
            return _BATCH_ID_HEAD + self.batch_id
        headers = dict(self.trace)
        return ExecuteRequest(
            freshness=None if self.freshness is None else level(self.freshness),
            fresh_commands=self.overrides,
            fresh_levels=map(level, self.overrides.values()),
            trace_parent=headers.get("traceparent", "").encode(),
            trace_state=headers.get("tracestate", "").encode(),
            batch_id=self.batch_id,
            batch_positions=self.batch_positions,
        ).SerializeToString()


def written_keys(columns: Columns) -> list[bytes]:
    """Return the keys that commands change."""
    begins = starts(columns.kinds, ARGUMENT_COUNTS)
    return [columns.arguments[at] for kind, at in zip(columns.kinds, begins, strict=False) if kind in WRITES]


def encode_request(batch: int, kinds: bytes | bytearray, arguments: list[bytes], numbers: list[int]) -> bytes:
    """Return the bytes of the message that `Columns.message` returns, without its other fields."""
    return ExecuteRequest(batch=batch, kinds=bytes(kinds), arguments=arguments, numbers=numbers).SerializeToString()


def decode_whole(kinds: bytes | bytearray, message: bytes) -> Reply | None:
    """Take the bytes of a whole reply apart; return None if it is a piece of a reply, or a command failed."""
    reply = ExecuteReply.FromString(message)
    return None if reply.more or FAILED in reply.statuses or PART in reply.statuses else decode_reply(kinds, reply)


def decode_reply(kinds: bytes | bytearray, reply: ExecuteReply) -> Reply:
    """Take a reply apart whose pieces are merged."""
    results = decode(kinds, reply)
    return Reply(reply.batch, reply.server_id, reply.revision, results, reply.token, age_ms_of(reply))


if not TYPE_CHECKING and core is not None:
    core.use_reply(Reply, MET, Unmet)
    encode_request, decode_whole = core.encode_request, core.decode_whole


def decode(kinds: bytes | bytearray, reply: ExecuteReply) -> list[Result]:
    """Take a reply apart, with all its pieces together; return the result of each command."""
    if reply.statuses.count(OK) == len(kinds) == len(reply.statuses):
        # Nearly all replies.
        if kinds.count(GET) == len(kinds):
            return list(reply.values)
        if not kinds.translate(None, _ROWS_OR_NOTHING):
            return _scans_and_puts(kinds, reply)
    return _mixture(kinds, reply)


def _scans_and_puts(kinds: bytes | bytearray, reply: ExecuteReply) -> list[Result]:
    """Take a reply apart whose scans and puts all succeeded, in two thirds of the time of the general way."""
    keys, values = reply.keys[:], reply.values[:]
    ends = list(accumulate(reply.counts, initial=0))
    rows: list[Result] = [_new_rows(Rows, (keys[start:stop], values[start:stop])) for start, stop in pairwise(ends)]
    if len(rows) == len(kinds):
        return rows
    found = iter(rows)
    return [next(found) if GIVES[kind] is Gives.ROWS else None for kind in kinds]


def _mixture(kinds: bytes | bytearray, reply: ExecuteReply) -> list[Result]:
    keys, values, counts = reply.keys[:], reply.values[:], reply.counts[:]
    statuses = reply.statuses
    if len(statuses) - statuses.count(PART) != len(kinds):
        raise ValueError(f"a reply of {len(statuses)} statuses is not one to {len(kinds)} commands")
    results: list[Result] = []
    append = results.append
    waiting = iter(kinds)
    key_at = value_at = count_at = error_at = 0
    # Rows of a scan that continues; if it fails, they are void.
    part = 0
    for status in statuses:
        if status == PART:
            part += counts[count_at]
            count_at += 1
            continue
        gives = GIVES[next(waiting)]
        if status == FAILED:
            append(command_error(reply.errors[error_at]))
            error_at += 1
            key_at += part
            value_at += part
            part = 0
        elif gives is Gives.ROWS:
            count = part + counts[count_at]
            count_at += 1
            part = 0
            append(Rows(keys[key_at : key_at + count], values[value_at : value_at + count]))
            key_at += count
            value_at += count
        elif gives is Gives.NOTHING or (status == ABSENT and gives in _OR_ABSENT):
            append(None)
        elif gives is Gives.VALUE:
            append(values[value_at])
            value_at += 1
        elif gives is Gives.WAS_THERE:
            append(status != ABSENT)
        elif gives is Gives.MET:
            if status == UNMET:
                append(Unmet(values[value_at]))
                value_at += 1
            else:
                append(Unmet(None) if status == ABSENT else MET)
        else:
            append(remaining_s(counts[count_at]) if gives is Gives.REMAINING else counts[count_at])
            count_at += 1
    return results
