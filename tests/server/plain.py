"""A client of batches that knows nothing but the comments of the .proto."""

from typing import Any

from pequod_proto import pequod_pb2 as pb

from pequod.commands.kinds import ABSENT, COUNT, FAILED, GET, OK, PART, PUT, REMOVE

Row = tuple[bytes, bytes]
#: The value or None of a GET, None of a PUT, whether REMOVE found a key, the rows of a scan, the number of a COUNT;
#: of a command that failed, the reason.
Outcome = bytes | bool | int | str | list[Row] | None


async def pieces_of(call: Any, request: pb.ExecuteRequest) -> list[pb.ExecuteReply]:
    """Send a batch over a stream and return the pieces of its reply."""
    await call.write(request)
    return await read_pieces(call, request.batch)


async def read_pieces(call: Any, batch: int) -> list[pb.ExecuteReply]:
    """Return the pieces of the next reply."""
    pieces = [await call.read()]
    while pieces[-1].more:
        pieces.append(await call.read())
    assert {piece.batch for piece in pieces} == {batch}
    return pieces


def joined(pieces: list[pb.ExecuteReply]) -> pb.ExecuteReply:
    """Put the pieces of a reply together, column by column."""
    whole = pb.ExecuteReply()
    for piece in pieces:
        statuses = whole.statuses + piece.statuses
        whole.MergeFrom(piece)
        whole.statuses = statuses
    return whole


def outcomes_of(kinds: bytes, pieces: list[pb.ExecuteReply]) -> list[Outcome]:
    """Put the pieces of a reply together and take it apart."""
    whole = joined(pieces)
    keys, values, counts, errors = iter(whole.keys), iter(whole.values), iter(whole.counts), iter(whole.errors)
    outcomes: list[Outcome] = []
    rows: list[Row] = []
    for status in whole.statuses:
        kind = kinds[len(outcomes)]
        is_scan = kind not in (GET, PUT, REMOVE, COUNT)
        outcome: Outcome = None
        if status == FAILED:
            outcome, rows = next(errors).reason, []
        elif is_scan:
            rows += [(next(keys), next(values)) for _ in range(next(counts))]
            if status == PART:
                continue
            outcome, rows = rows, []
        elif kind == REMOVE:
            outcome = status == OK
        elif kind == COUNT:
            outcome = next(counts)
        elif kind == GET and status != ABSENT:
            outcome = next(values)
        outcomes.append(outcome)
    assert len(outcomes) == len(kinds)
    assert not [*keys, *values, *counts, *errors], "everything belongs to a command"
    return outcomes
