"""Comparing what a store answered with what it must have answered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pequod.client import PequodError, Result, Rows
from pequod.commands.kinds import SCAN
from pequod_bench.workloads.commands import CommandBatch
from pequod_bench.workloads.recompute import StreamPosts, check_rows, final_timelines
from pequod_bench.workloads.stream import TwipStream

#: The results of a batch's commands: rows of a scan, None of a put, the error of what failed.
Reply = Sequence[Result]


class CommandFailedError(PequodError):
    """A command of the run was refused."""


@dataclass(frozen=True, slots=True)
class Same:
    """Everything that was compared is equal."""

    scan_count: int
    row_count: int


@dataclass(frozen=True, slots=True)
class Differs:
    """Something is not as it must be."""

    #: Where it differs, and what is there instead.
    reason: str


Verdict = Same | Differs


def verify_checks(
    stream: TwipStream, posts: StreamPosts, batches: Iterable[CommandBatch], replies: Iterable[Reply]
) -> Verdict:
    """Compare the rows of every check of the run with what they must have been at that moment."""
    expected = ((f"the check at tick {stream.first_tick + row}", rows) for row, rows in check_rows(stream, posts))
    return _compare(expected, scanned(batches, replies))


def verify_timelines(
    stream: TwipStream, posts: StreamPosts, batches: Iterable[CommandBatch], replies: Iterable[Reply]
) -> Verdict:
    """Compare every active user's whole timeline at the end with a computation from scratch."""
    expected = ((f"the final timeline of user {user}", rows) for user, rows in final_timelines(stream, posts))
    return _compare(expected, scanned(batches, replies))


def scanned(batches: Iterable[CommandBatch], replies: Iterable[Reply]) -> Iterator[Rows]:
    """Yield the rows of each scan, in the order in which they were sent.

    Raises:
        CommandFailedError: A command was refused.
    """
    for batch, reply in zip(batches, replies, strict=True):
        for kind, result in zip(batch.kinds, reply, strict=True):
            if isinstance(result, Rows):
                yield result
            elif result is not None:
                command = "scan" if kind == SCAN else "put"
                raise CommandFailedError(f"a {command} of the run failed: {result!r}")


def row_count(replies: Iterable[Reply]) -> int:
    """Return how many rows came back in all."""
    return sum(len(result.keys) for reply in replies for result in reply if isinstance(result, Rows))


def _compare(expected: Iterable[tuple[str, Rows]], got: Iterator[Rows]) -> Verdict:
    scan_count = row_count = 0
    for what, rows in expected:
        answer = next(got, None)
        if answer is None:
            return Differs(f"{what} was never answered")
        if answer != rows:
            return Differs(f"{what} is wrong: {_first_difference(rows, answer)}")
        scan_count += 1
        row_count += len(rows.keys)
    if next(got, None) is not None:
        return Differs(f"there are more answers than the {scan_count} expected")
    return Same(scan_count, row_count)


def _first_difference(expected: Rows, got: Rows) -> str:
    wanted, found = (list(zip(*rows, strict=True)) for rows in (expected, got))
    for i in range(max(len(wanted), len(found))):
        if wanted[i : i + 1] != found[i : i + 1]:
            want = wanted[i] if i < len(wanted) else "nothing more"
            have = found[i] if i < len(found) else "nothing more"
            return f"row {i} of {len(wanted)} must be {want}, and is {have} ({len(found)} rows came)"
    raise AssertionError("the rows are equal")
