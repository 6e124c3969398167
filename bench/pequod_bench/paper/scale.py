"""How much a comparison measures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pequod_bench.paper import materialisation, newp


@dataclass(frozen=True, slots=True)
class CompareScale:
    """Sizes of everything; these are a good five minutes on a quiet machine."""

    #: Figure 7.
    users: int = 2_000
    ticks: int = 100_000
    repetitions: int = 3
    #: Figures 8 and 9, which start a server for every point of every line.
    materialisation_users: int = 500
    articles: int = 500
    sessions: int = 5_000
    curve_repetitions: int = 1
    active_percents: Sequence[int] = materialisation.ACTIVE_PERCENTS
    vote_percents: Sequence[int] = newp.VOTE_PERCENTS
    #: Push, pull and snapshot; celebrities, with posts that are there before the start.
    variant_users: int = 500
    variant_ticks: int = 30_000
    celebrity_posts: int = 5_000
    #: Operations a second, and for how long each; posts whose way is timed.
    latency_users: int = 500
    rates: Sequence[int] = (500, 1_000, 2_000)
    rate_s: float = 2.0
    freshness_posts: int = 300
    #: YCSB.
    records: int = 10_000
    operations: int = 20_000


FEW_MINUTES: Final = CompareScale()
#: A laptop minute or two.
QUICK: Final = CompareScale(
    users=500,
    ticks=20_000,
    repetitions=2,
    materialisation_users=150,
    articles=150,
    sessions=1_500,
    active_percents=(1, 50, 90, 100),
    vote_percents=(0, 50, 90, 100),
    variant_users=150,
    variant_ticks=5_000,
    celebrity_posts=500,
    latency_users=150,
    rates=(250, 1_000),
    rate_s=1.0,
    freshness_posts=100,
    records=1_000,
    operations=2_000,
)
#: Twenty minutes on two quiet cores; what the figures in bench/README.md come from.
REFERENCE: Final = CompareScale(
    users=5_000,
    ticks=200_000,
    repetitions=5,
    materialisation_users=600,
    # 40 sessions an article; the paper has 200, and the fewer there are, the more the first vote of each counts.
    articles=500,
    sessions=20_000,
    curve_repetitions=3,
    variant_users=1_000,
    variant_ticks=40_000,
    celebrity_posts=20_000,
    latency_users=1_000,
    rates=(500, 1_000, 2_000, 4_000),
    rate_s=3.0,
    freshness_posts=1_000,
    records=20_000,
    operations=50_000,
)
