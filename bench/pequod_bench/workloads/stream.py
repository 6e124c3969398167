"""Twip's operations, drawn from one seed before anything is timed.

One row is one tick of the clock; what a column holds depends on the kind:

    tick    kind       users     details
    0       CHECK      17        0          timeline of 17 from tick 0 on (a first, full check)
    1       SUBSCRIBE  4         9          4 follows 9
    2       POST       9         0          9 tweets
    3       LOGOUT     17        0          17's next check will be a full one

The model (paper §5.1 and the published benchmark): of all users 70 % are active, and these check in turn. A
check by a user who is logged out logs the user in and reads the last 100,000 ticks; every other check reads
what came since the same user's previous check. A logout takes the user who has been logged in longest and sends nothing
to the server.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pequod_workloads import twip as keys
from pequod_workloads.twip import FEW_FOLLOWERS, FEW_FOLLOWERS_WEIGHT, FULL_CHECK_TICKS, WEIGHTS, active_count

from pequod.commands.kinds import PUT, SCAN
from pequod_bench.workloads.graph import Floats, Graph, Ids, make_graph

CHECK: Final = 0
SUBSCRIBE: Final = 1
LOGOUT: Final = 2
POST: Final = 3


@dataclass(frozen=True, slots=True)
class TwipStream:
    """Everything that a run of Twip does, in order.

    Invariants:
        1. ``kinds``, ``users`` and ``details`` are of one length; row i happens at tick ``first_tick + i``.
        2. A user of a CHECK is active, and its detail is at most its own tick.
        3. A subscriber and whom they follow are two users.
    """

    graph: Graph
    #: Users who check, in the order in which they take turns.
    active: Ids
    #: Who wrote the posts that are there before the start; post i has tick i.
    initial_posters: Ids
    #: CHECK, SUBSCRIBE, LOGOUT or POST.
    kinds: NDArray[np.int8]
    #: Who acts.
    users: Ids
    #: CHECK: the tick to read from. SUBSCRIBE: whom to follow. Otherwise 0.
    details: Ids
    #: How many of the checks were those of a login.
    full_check_count: int

    @property
    def tick_count(self) -> int:
        return len(self.kinds)

    @property
    def first_tick(self) -> int:
        """The tick of row 0."""
        return len(self.initial_posters)

    def count(self, kind: int) -> int:
        return int(np.count_nonzero(self.kinds == kind))

    def operations(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, int, int]]:
        """Yield kind, user and detail of some rows."""
        part = slice(start, stop)
        return zip(self.kinds[part].tolist(), self.users[part].tolist(), self.details[part].tolist(), strict=True)

    def _check(self) -> None:
        assert len(self.kinds) == len(self.users) == len(self.details)
        ticks = np.arange(self.tick_count) + self.first_tick
        is_check, is_subscribe = self.kinds == CHECK, self.kinds == SUBSCRIBE
        assert bool(np.all(np.isin(self.users[is_check], self.active)))
        assert bool(np.all(self.details[is_check] <= ticks[is_check]))
        assert bool(np.all(self.users[is_subscribe] != self.details[is_subscribe]))


def make_stream(
    graph_choice: str, user_count: int, tick_count: int, seed: int, initial_post_count: int = 0
) -> TwipStream:
    """Draw a graph and operations; the same arguments give the same stream on every machine."""
    graph_rng, activity_rng, operation_rng = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(3))
    graph = make_graph(graph_choice, user_count, graph_rng)
    active = activity_rng.permutation(graph.user_count)[: active_count(graph.user_count)]
    weights = post_weights(graph.follower_counts(), activity_rng)
    return _draw_operations(graph, active, weights, tick_count, initial_post_count, operation_rng)


def post_weights(follower_counts: Ids, rng: np.random.Generator) -> Floats:
    """Return how often each user posts, relative to the others: roughly with the log of their followers."""
    spread = np.floor(2 * np.log10(np.maximum(follower_counts, 1))).astype(np.int64)
    weights: Floats = 1.0 + rng.integers(0, spread + 1)
    weights[follower_counts < FEW_FOLLOWERS] = FEW_FOLLOWERS_WEIGHT
    weights[follower_counts == 0] = 0.0
    return weights


def _draw_operations(
    graph: Graph, active: Ids, weights: Floats, tick_count: int, initial_post_count: int, rng: np.random.Generator
) -> TwipStream:
    cumulative = np.cumsum(weights)

    def posters(count: int) -> Ids:
        drawn: Ids = np.searchsorted(cumulative, rng.random(count) * cumulative[-1], side="right")
        return drawn

    chances = np.array(WEIGHTS) / sum(WEIGHTS)
    kinds = rng.choice(len(WEIGHTS), tick_count, p=chances).astype(np.int8)
    users = np.zeros(tick_count, dtype=np.int64)
    details = np.zeros(tick_count, dtype=np.int64)
    initial_posters = posters(initial_post_count)
    is_post, is_subscribe = kinds == POST, kinds == SUBSCRIBE
    users[is_post] = posters(int(is_post.sum()))
    subscribers = rng.integers(0, graph.user_count, int(is_subscribe.sum()))
    others = rng.integers(0, graph.user_count - 1, len(subscribers))
    users[is_subscribe] = subscribers
    details[is_subscribe] = others + (others >= subscribers)
    full_check_count = _take_turns(kinds, users, details, active, initial_post_count)
    return TwipStream(graph, active, initial_posters, kinds, users, details, full_check_count)


def _take_turns(kinds: NDArray[np.int8], users: Ids, details: Ids, active: Ids, first_tick: int) -> int:
    """Fill in the checks and logouts, in place, and return how many logins there were.

    A logout while no user is logged in becomes a check.
    """
    turns = active.tolist()
    turn = login_count = 0
    #: Who is logged in, longest first, and the tick of their last check.
    logins: deque[int] = deque()
    checked_at: dict[int, int] = {}
    for row in np.flatnonzero((kinds == CHECK) | (kinds == LOGOUT)).tolist():
        if kinds[row] == LOGOUT:
            if logins:
                users[row] = logins.popleft()
                del checked_at[int(users[row])]
                continue
            kinds[row] = CHECK
        tick = first_tick + row
        user = turns[turn]
        turn = turn + 1 if turn + 1 < len(turns) else 0
        if user not in checked_at:
            logins.append(user)
            login_count += 1
        users[row] = user
        details[row] = checked_at.get(user, max(0, tick - FULL_CHECK_TICKS))
        checked_at[user] = tick
    return login_count


class CommandBatch(NamedTuple):
    """Operations as commands for a store, which go out together; columns, as the server's batch stream takes them.

    kinds      SCAN          PUT           PUT
    arguments  t|17|0 t|17}  s|4|9 1       p|9|2 tweet      first and last key, or key and value
    """

    #: SCAN or PUT, one byte a command.
    kinds: bytes
    #: Two for each command.
    arguments: list[bytes]


def load_batches(stream: TwipStream, tweet_bytes: int, size: int) -> Iterator[CommandBatch]:
    """Yield the puts of what is there before the start: the graph's subscriptions and the initial posts."""
    rows = _load_rows(stream, tweet_bytes)
    while some := list(islice(rows, size)):
        yield CommandBatch(bytes([PUT]) * len(some), [argument for row in some for argument in row])


def _load_rows(stream: TwipStream, tweet_bytes: int) -> Iterator[tuple[bytes, bytes]]:
    users, posters = stream.graph.users.tolist(), stream.graph.posters.tolist()
    for user, poster in zip(users, posters, strict=True):
        yield keys.subscription_key(user, poster), keys.FOLLOWS
    for tick, poster in enumerate(stream.initial_posters.tolist()):
        yield keys.post_key(poster, tick), keys.tweet(tick, tweet_bytes)


def timed_batches(stream: TwipStream, tweet_bytes: int, size: int) -> list[CommandBatch]:
    """Render the operations, ``size`` commands to a batch (the last one may be shorter)."""
    kinds = bytearray()
    arguments: list[bytes] = []
    lasts = {user: keys.timeline_last(user) for user in stream.active.tolist()}
    for tick, (kind, user, detail) in enumerate(stream.operations(), stream.first_tick):
        if kind == LOGOUT:
            continue
        if kind == CHECK:
            kinds.append(SCAN)
            arguments += (keys.timeline_first(user, detail), lasts[user])
            continue
        kinds.append(PUT)
        if kind == SUBSCRIBE:
            arguments += (keys.subscription_key(user, detail), keys.FOLLOWS)
        else:
            arguments += (keys.post_key(user, tick), keys.tweet(tick, tweet_bytes))
    return [
        CommandBatch(bytes(kinds[i : i + size]), arguments[2 * i : 2 * (i + size)]) for i in range(0, len(kinds), size)
    ]


def timeline_scans(stream: TwipStream, size: int) -> Iterator[CommandBatch]:
    """Yield scans of every active user's whole timeline, in the order of `verify.final_timelines`."""
    users = stream.active.tolist()
    for i in range(0, len(users), size):
        some = users[i : i + size]
        bounds = [bound for user in some for bound in keys.timeline(user)]
        yield CommandBatch(bytes([SCAN]) * len(some), bounds)
