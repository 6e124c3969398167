"""What Twip's answers must be, computed in the client from the operations alone, and compared with those that came.

Two independent ways. `final_timelines` is the definition: a user's timeline is every post of everyone they follow.
`check_rows` walks the operations and keeps timelines by hand, as an application without joins would, so that the rows
of each single check can be told as they were at its moment.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pequod_workloads.twip import timeline_key, tweet

from pequod.client import PequodError, Result, Rows
from pequod.commands.kinds import SCAN
from pequod_bench.workloads.graph import Ids
from pequod_bench.workloads.stream import CHECK, POST, SUBSCRIBE, CommandBatch, TwipStream

#: The results of a batch's commands: rows of a scan, None of a put, the error of what failed.
Reply = Sequence[Result]


class CommandFailedError(PequodError):
    """A command of the run was refused."""


@dataclass(frozen=True, slots=True)
class Same:
    """Everything that was compared is equal."""

    scan_count: int
    row_count: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Differs:
    """Something is not as it must be: where it differs, and what is there instead."""

    reason: str
    row_count: int = 0


Verdict = Same | Differs


class StreamPosts:
    """Who wrote what: the posts of a stream, those that were there before its start included."""

    def __init__(self, stream: TwipStream, tweet_bytes: int) -> None:
        #: Poster and text of each tick that has a post.
        self.poster_of: dict[int, int] = dict(enumerate(stream.initial_posters.tolist()))
        rows = (stream.kinds == POST).nonzero()[0]
        self.poster_of.update(zip((rows + stream.first_tick).tolist(), stream.users[rows].tolist(), strict=True))
        self.tweet_of = {tick: tweet(tick, tweet_bytes) for tick in self.poster_of}
        #: Ticks at which each user posted, ascending.
        self.ticks_of: defaultdict[int, list[int]] = defaultdict(list)
        for tick, poster in self.poster_of.items():
            self.ticks_of[poster].append(tick)

    def rows(self, user: int, ticks: list[int]) -> Rows:
        """Return the part of user's timeline that holds the posts of these ticks."""
        keys = [timeline_key(user, tick, self.poster_of[tick]) for tick in ticks]
        return Rows(keys, [self.tweet_of[tick] for tick in ticks])


def final_timelines(stream: TwipStream, posts: StreamPosts) -> Iterator[tuple[int, Rows]]:
    """Yield each active user with their whole timeline at the end: all posts of all whom they follow."""
    follows = grouped(stream.graph.users, stream.graph.posters)
    for row in (stream.kinds == SUBSCRIBE).nonzero()[0].tolist():
        follows[int(stream.users[row])].add(int(stream.details[row]))
    for user in stream.active.tolist():
        ticks = sorted(tick for poster in follows[user] for tick in posts.ticks_of.get(poster, ()))
        yield user, posts.rows(user, ticks)


def check_rows(stream: TwipStream, posts: StreamPosts) -> Iterator[tuple[int, Rows]]:
    """Yield, for each check in order, its row in the stream and what it must have returned at that moment."""
    followers = grouped(stream.graph.posters, stream.graph.users)
    written: defaultdict[int, list[int]] = defaultdict(list)
    timelines: defaultdict[int, list[int]] = defaultdict(list)

    def post(poster: int, tick: int) -> None:
        written[poster].append(tick)
        for user in followers[poster]:
            timelines[user].append(tick)

    for tick, poster in enumerate(stream.initial_posters.tolist()):
        post(poster, tick)
    for row, (kind, user, detail) in enumerate(stream.operations()):
        if kind == CHECK:
            timeline = timelines[user]
            yield row, posts.rows(user, timeline[bisect_left(timeline, detail) :])
        elif kind == POST:
            post(user, stream.first_tick + row)
        elif kind == SUBSCRIBE and user not in followers[detail]:
            followers[detail].add(user)
            timelines[user] = sorted(timelines[user] + written[detail])


def grouped(keys: Ids, members: Ids) -> defaultdict[int, set[int]]:
    """Return for each key the set of its members."""
    sets: defaultdict[int, set[int]] = defaultdict(set)
    for key, member in zip(keys.tolist(), members.tolist(), strict=True):
        sets[key].add(member)
    return sets


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
                raise CommandFailedError(f"a {'scan' if kind == SCAN else 'put'} of the run failed: {result!r}")


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
            want, have = (rows[i] if i < len(rows) else "nothing more" for rows in (wanted, found))
            return f"row {i} of {len(wanted)} must be {want}, and is {have} ({len(found)} rows came)"
    raise AssertionError("the rows are equal")
