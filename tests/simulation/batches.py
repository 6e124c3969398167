"""Batches of the simulated clients: columns for the handler of Execute, and the answers in its replies.

commands   get a, put b 1, count a..c   ->  columns  ->  Execute  ->  answers  b"x", None, 2
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from grpc import aio
from pequod_proto import pequod_pb2 as pb

from pequod.commands.kinds import ABSENT, COUNT, FAILED, GET, OK, PUT, REMOVE, SCAN, SCAN_DOWN, SCAN_LIMIT, UNMET
from tests.simulation.decided import Add, Decided, WriteIf, outcome_in_batch
from tests.simulation.levels import Level
from tests.simulation.reads import Chunk, Count, Get


@dataclass(frozen=True)
class Put:
    """A put, or a removal if there is no value."""

    key: bytes
    value: bytes | None


Command = Put | Decided | Get | Count | Chunk


class BatchStream:
    """What the handler of Execute takes for the context of its call: a stream of one batch."""

    def __init__(self, request: pb.ExecuteRequest) -> None:
        self._requests: list[Any] = [request.SerializeToString(), aio.EOF]
        self.replies: list[pb.ExecuteReply] = []

    def peer(self) -> str:
        """Return the name of the connection."""
        return "simulated"

    async def read(self) -> Any:
        """Return the batch, and then the end of the stream."""
        return self._requests.pop(0)

    async def write(self, reply: bytes | pb.ExecuteReply) -> None:
        """Take a reply."""
        self.replies.append(pb.ExecuteReply.FromString(reply) if isinstance(reply, bytes) else reply)


def request_of(commands: Sequence[Command], level: Level, fresh: Mapping[int, Level]) -> pb.ExecuteRequest:
    """Return commands as columns, with the level of all reads, and those of single ones by their numbers."""
    kinds, arguments, numbers = bytearray(), list[bytes](), list[int]()
    for command in commands:
        match command:
            case Put(key, None):
                kinds.append(REMOVE)
                arguments.append(key)
            case Put(key, value):
                kinds.append(PUT)
                arguments += [key, cast("bytes", value)]
            case WriteIf() | Add():
                kind, taken, number = command.columns
                kinds.append(kind)
                arguments += taken
                numbers += number
            case Get(key):
                kinds.append(GET)
                arguments.append(key)
            case Count(first, last):
                kinds.append(COUNT)
                arguments += [first, last or b""]
            case Chunk(first, last, reverse, count):
                kinds.append(SCAN_DOWN if reverse else SCAN if count is None else SCAN_LIMIT)
                arguments += [first, last or b""]
                if reverse or count is not None:
                    numbers.append(count or 0)
    reads = [at for at in sorted(fresh) if not isinstance(commands[at], Put | Decided)]
    return pb.ExecuteRequest(
        kinds=bytes(kinds),
        arguments=arguments,
        numbers=numbers,
        freshness=level.message(),
        fresh_commands=reads,
        fresh_levels=[fresh[at].message() or pb.Freshness() for at in reads],
    )


def answers_of(
    commands: Sequence[Command], replies: Sequence[pb.ExecuteReply]
) -> Iterator[tuple[Command, object | pb.CommandError]]:
    """Yield each command with its answer, or with its error."""
    assert len(replies) == 1, "these replies are not long"
    reply = replies[0]
    assert not reply.more
    keys, values, counts, errors = iter(reply.keys), iter(reply.values), iter(reply.counts), iter(reply.errors)
    for command, status in zip(commands, reply.statuses, strict=True):
        if status == FAILED:
            yield command, next(errors)
            continue
        match command:
            case Get():
                yield command, next(values) if status == OK else None
            case Count():
                yield command, next(counts)
            case Chunk():
                yield command, [(next(keys), next(values)) for _ in range(next(counts))]
            case Add():
                yield command, next(values)
            case WriteIf():
                yield command, outcome_in_batch(status, next(values) if status == UNMET else None)
            case Put():
                assert status in (OK, ABSENT)
                yield command, None
