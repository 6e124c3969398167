"""Figure 8: no, full and dynamic materialisation of timelines, over the share of users who are active.

Checks and posts alone (paper §5.3): 0.55 posts for each user of the graph, by followers as ever, and at p percent
active users p checks for each post, spread evenly over these users. So each active user checks 55 times, whatever p.

- none: the join is computed on each read (pull).
- full: every user's timeline is materialised before the clock starts.
- dynamic: a timeline is materialised when its user first checks.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from pequod_workloads import twip as keys

from pequod_bench.systems.pequod_system import PequodSystem, Timelines
from pequod_bench.workloads.graph import make_graph
from pequod_bench.workloads.stream import CHECK, POST, TwipStream, post_weights

#: 1 M posts of 1.8 M users in the paper.
POSTS_PER_USER: Final = 1 / 1.8
STRATEGIES: Final = (
    PequodSystem("none", "no materialisation", "A pull join.", Timelines(keys.PULL_JOIN)),
    PequodSystem(
        "full", "full materialisation", "Every timeline is read before the clock starts.", Timelines(is_whole=True)
    ),
    PequodSystem("dynamic", "dynamic materialisation", "A push join, as it is.", Timelines()),
)


def make_stream(
    graph_choice: str, user_count: int, active_percent: int, seed: int, post_count: int | None = None
) -> TwipStream:
    """Draw checks and posts; graph and posters are the same for every percentage."""
    graph_rng, post_rng, rng = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(3))
    graph = make_graph(graph_choice, user_count, graph_rng)
    active = post_rng.permutation(graph.user_count)[: max(1, graph.user_count * active_percent // 100)]
    cumulative = np.cumsum(post_weights(graph.follower_counts(), post_rng))
    if post_count is None:
        post_count = max(1, round(graph.user_count * POSTS_PER_USER))
    posters = np.searchsorted(cumulative, post_rng.random(post_count) * cumulative[-1], side="right")
    check_count = post_count * active_percent
    kinds = rng.permutation(np.repeat(np.array([POST, CHECK], dtype=np.int8), [post_count, check_count]))
    users, details = np.zeros(len(kinds), dtype=np.int64), np.zeros(len(kinds), dtype=np.int64)
    users[kinds == POST] = posters
    users[kinds == CHECK] = rng.permutation(np.resize(active, check_count))
    checked_at: dict[int, int] = {}
    for tick in np.flatnonzero(kinds == CHECK).tolist():
        user = int(users[tick])
        details[tick] = checked_at.get(user, 0)
        checked_at[user] = tick
    return TwipStream(graph, active, np.empty(0, dtype=np.int64), kinds, users, details, len(checked_at))
