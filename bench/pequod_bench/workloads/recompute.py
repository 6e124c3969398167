"""What Twip's answers must be, computed in the client from the operations alone.

Two independent ways. `final_timelines` is the definition: a user's timeline is every post of everyone they
follow. `check_rows` walks the operations and keeps timelines by hand, as an application without joins would,
so that the rows of each single check can be told as they were at its moment.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator

from pequod.engine import Rows
from pequod_bench.workloads.graph import Ids
from pequod_bench.workloads.keys import timeline_key, tweet
from pequod_bench.workloads.stream import CHECK, POST, SUBSCRIBE, TwipStream


class StreamPosts:
    """Who wrote what: the posts of a stream, those that were there before its start included."""

    def __init__(self, stream: TwipStream, tweet_bytes: int) -> None:
        #: Poster of each tick that has a post.
        self.poster_of: dict[int, int] = dict(enumerate(stream.initial_posters.tolist()))
        rows = (stream.kinds == POST).nonzero()[0]
        self.poster_of.update(zip((rows + stream.first_tick).tolist(), stream.users[rows].tolist(), strict=True))
        #: Text of each tick that has a post.
        self.tweet_of = {tick: tweet(tick, tweet_bytes) for tick in self.poster_of}
        #: Ticks at which each user posted, ascending.
        self.ticks_of: defaultdict[int, list[int]] = defaultdict(list)
        for tick, poster in self.poster_of.items():
            self.ticks_of[poster].append(tick)

    def rows(self, user: int, ticks: list[int]) -> Rows:
        """Return the part of user's timeline that holds the posts of these ticks."""
        poster_of, tweet_of = self.poster_of, self.tweet_of
        keys = [timeline_key(user, tick, poster_of[tick]) for tick in ticks]
        return Rows(keys, [tweet_of[tick] for tick in ticks])


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
    for tick, poster in enumerate(stream.initial_posters.tolist()):
        written[poster].append(tick)
        for user in followers[poster]:
            timelines[user].append(tick)
    operations = zip(stream.kinds.tolist(), stream.users.tolist(), stream.details.tolist(), strict=True)
    for row, (kind, user, detail) in enumerate(operations):
        if kind == CHECK:
            timeline = timelines[user]
            yield row, posts.rows(user, timeline[bisect_left(timeline, detail) :])
        elif kind == POST:
            tick = stream.first_tick + row
            written[user].append(tick)
            for follower in followers[user]:
                timelines[follower].append(tick)
        elif kind == SUBSCRIBE and user not in followers[detail]:
            followers[detail].add(user)
            timelines[user] = sorted(timelines[user] + written[detail])


def grouped(keys: Ids, members: Ids) -> defaultdict[int, set[int]]:
    """Return for each key the set of its members."""
    sets: defaultdict[int, set[int]] = defaultdict(set)
    for key, member in zip(keys.tolist(), members.tolist(), strict=True):
        sets[key].add(member)
    return sets
