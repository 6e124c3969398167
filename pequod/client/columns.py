"""Batches of commands as columns, and replies taken apart; the hot half of both clients.

    batch.put(k, v); batch.scan(a, b)   kinds      2 4
                                        arguments  k v a b

Bench rows: client: encode; client: decode.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from pequod_proto.pequod_pb2 import ExecuteReply, ExecuteRequest

from pequod.answers.rows import Rows
from pequod.calls import Data, Result, to_bytes, to_limit, to_range
from pequod.client.decode import age_ms_of, command_error
from pequod.client.levels import level
from pequod.client.tracing import Trace, caller_trace
from pequod.commands.columns import has_reads, has_writes, starts
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
    SCAN_LIMIT,
    SCANS,
    WRITES,
)
from pequod.freshness import Freshness
from pequod.native import core

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


def last_argument(last: Data | None) -> bytes | None:
    """Return the bound as the wire has it, empty for none; None if no key is below it."""
    if last is None:
        return b""
    return to_bytes(last) or None


class Columns:
    """Commands in the order in which they will run.

    Args:
        freshness: How fresh the answers of its reads have to be, but for those that say it themselves.

    Ensures:
        A command with wrong arguments, such as a number as a key, raises and adds nothing, since calls of others may
        share these columns.
    """

    __slots__ = ("arguments", "freshness", "kinds", "numbers", "overrides", "trace")

    def __init__(self, freshness: Freshness | None = None) -> None:
        self.kinds = bytearray()
        self.arguments: list[bytes] = []
        self.numbers: list[int] = []
        self.freshness = freshness
        #: By position, ascending.
        self.overrides: dict[int, Freshness] = {}
        #: The caller's span; of several callers, that of the first who has one.
        self.trace: Trace = ()

    def __len__(self) -> int:
        return len(self.kinds)

    def take(self) -> Columns:
        """Return the commands, to be sent on behalf of the caller, and become empty."""
        taken = Columns(self.freshness)
        taken.trace = caller_trace()
        taken.kinds, self.kinds = self.kinds, taken.kinds
        taken.arguments, self.arguments = self.arguments, taken.arguments
        taken.numbers, self.numbers = self.numbers, taken.numbers
        taken.overrides, self.overrides = self.overrides, taken.overrides
        return taken

    def add(self, other: Columns) -> None:
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
            picked.kinds.append(self.kinds[position])
            picked.arguments += self.arguments[begins[position] : begins[position + 1]]
            picked.numbers += self.numbers[number_begins[position] : number_begins[position + 1]]
        return picked

    def reads(self) -> tuple[Columns, list[int]]:
        """Return the commands that change nothing, and their positions."""
        positions = [position for position, kind in enumerate(self.kinds) if kind not in WRITES]
        return self.picked(positions), positions

    def get(self, key: Data, *, freshness: Freshness | None = None) -> None:
        """Get a value."""
        self.arguments.append(key if type(key) is bytes else to_bytes(key))
        if freshness is not None:
            self.overrides[len(self.kinds)] = freshness
        self.kinds.append(GET)

    def put(self, key: Data, value: Data) -> None:
        """Write a base key."""
        self.arguments += (to_bytes(key), to_bytes(value))
        self.kinds.append(PUT)

    def remove(self, key: Data) -> None:
        """Remove a base key."""
        self.arguments.append(to_bytes(key))
        self.kinds.append(REMOVE)

    def scan(
        self,
        first: Data = b"",
        last: Data | None = None,
        *,
        prefix: Data = b"",
        limit: int | None = None,
        reverse: bool = False,
        freshness: Freshness | None = None,
    ) -> None:
        """Read the rows of ``[first, last)`` that start with ``prefix``; without ``last`` to the end."""
        if (
            last
            and type(first) is type(last) is bytes
            and limit is None
            and freshness is None
            and not (reverse or prefix)
        ):
            self.arguments += (first, last)
            self.kinds.append(SCAN)
            return
        if prefix:
            first, last = to_range(first, last, prefix)
        bound = last_argument(last)
        limit = to_limit(limit)
        if bound is None or limit == 0:
            # No key is below the empty key; the wire has no other form of an empty range.
            first, bound = b"\0", b"\0"
        self.arguments += (to_bytes(first), bound)
        if freshness is not None:
            self.overrides[len(self.kinds)] = freshness
        if reverse or limit:
            self.kinds.append(SCAN_DOWN if reverse else SCAN_LIMIT)
            self.numbers.append(limit or 0)
        else:
            self.kinds.append(SCAN)

    def count(
        self,
        first: Data = b"",
        last: Data | None = None,
        *,
        prefix: Data = b"",
        freshness: Freshness | None = None,
    ) -> None:
        """Count the keys of ``[first, last)`` that start with ``prefix``; without ``last`` to the end."""
        if prefix:
            first, last = to_range(first, last, prefix)
        bound = last_argument(last)
        self.arguments += (b"\0", b"\0") if bound is None else (to_bytes(first), bound)
        if freshness is not None:
            self.overrides[len(self.kinds)] = freshness
        self.kinds.append(COUNT)

    def message(self, batch: int) -> ExecuteRequest:
        """Return the commands as one message."""
        message = ExecuteRequest(batch=batch, kinds=bytes(self.kinds), arguments=self.arguments, numbers=self.numbers)
        message.MergeFromString(self.other_fields())
        return message

    def other_fields(self) -> bytes:
        """Return the fields beside commands: how fresh answers have to be, and the caller's span; most have none."""
        if self.freshness is None and not self.overrides and not self.trace:
            return b""
        headers = dict(self.trace)
        return ExecuteRequest(
            freshness=None if self.freshness is None else level(self.freshness),
            fresh_commands=self.overrides,
            fresh_levels=map(level, self.overrides.values()),
            trace_parent=headers.get("traceparent", "").encode(),
            trace_state=headers.get("tracestate", "").encode(),
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
    core.use_reply(Reply)
    encode_request, decode_whole = core.encode_request, core.decode_whole


def decode(kinds: bytes | bytearray, reply: ExecuteReply) -> list[Result]:
    """Take a reply apart, with all its pieces together; return the result of each command."""
    if reply.statuses.count(OK) == len(kinds) == len(reply.statuses):
        # Nearly all replies.
        if kinds.count(GET) == len(kinds):
            return list(reply.values)
        if not (GET in kinds or REMOVE in kinds or COUNT in kinds):
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
    return [None if kind == PUT else next(found) for kind in kinds]


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
        kind = next(waiting)
        if status == FAILED:
            append(command_error(reply.errors[error_at]))
            error_at += 1
            key_at += part
            value_at += part
            part = 0
        elif kind in SCANS:
            count = part + counts[count_at]
            count_at += 1
            part = 0
            append(Rows(keys[key_at : key_at + count], values[value_at : value_at + count]))
            key_at += count
            value_at += count
        elif kind == PUT:
            append(None)
        elif kind == GET:
            if status:
                append(None)
            else:
                append(values[value_at])
                value_at += 1
        elif kind == REMOVE:
            append(status != ABSENT)
        else:
            append(counts[count_at])
            count_at += 1
    return results
