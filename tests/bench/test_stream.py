"""Twip's operations follow the model, and one seed gives one stream."""

from __future__ import annotations

import numpy as np
import pytest
from pequod_bench.workloads.stream import CHECK, LOGOUT, POST, SUBSCRIBE, TwipStream, make_stream, post_weights


@pytest.fixture(scope="module")
def stream() -> TwipStream:
    return make_stream("synthetic", 500, 20_000, seed=3)


def test_a_stream_holds_its_invariants(stream: TwipStream) -> None:
    stream._check()
    stream.graph._check()


def test_one_seed_gives_one_stream(stream: TwipStream) -> None:
    again, other = (make_stream("synthetic", 500, 20_000, seed=seed) for seed in (3, 4))
    for column in ("kinds", "users", "details", "active"):
        assert np.array_equal(getattr(stream, column), getattr(again, column))
    assert not np.array_equal(stream.kinds, other.kinds)


def test_operations_are_mixed_100_10_5_1(stream: TwipStream) -> None:
    parts = [stream.count(kind) / stream.tick_count for kind in (CHECK, SUBSCRIBE, LOGOUT, POST)]
    assert parts == pytest.approx([100 / 116, 10 / 116, 5 / 116, 1 / 116], abs=0.01)


def test_seventy_percent_of_the_users_are_active(stream: TwipStream) -> None:
    assert len(stream.active) == len(set(stream.active.tolist())) == 350


def test_checks_take_turns_over_the_active_users(stream: TwipStream) -> None:
    checkers = stream.users[stream.kinds == CHECK]
    rounds = np.resize(stream.active, len(checkers))
    assert np.array_equal(checkers, rounds)


def test_a_check_goes_on_where_the_last_one_ended_unless_logged_out() -> None:
    stream = make_stream("synthetic", 60, 5_000, seed=1)
    logged_in: list[int] = []
    checked_at: dict[int, int] = {}
    full_check_count = 0
    rows = zip(stream.kinds.tolist(), stream.users.tolist(), stream.details.tolist(), strict=True)
    for tick, (kind, user, detail) in enumerate(rows):
        if kind == LOGOUT:
            assert user == logged_in.pop(0), "a logout takes who is logged in longest"
        elif kind == CHECK:
            if user in logged_in:
                assert detail == checked_at[user]
            else:
                assert detail == 0, "all of the last 100,000 ticks"
                logged_in.append(user)
                full_check_count += 1
            checked_at[user] = tick
    assert full_check_count == stream.full_check_count > 42


def test_a_full_check_reads_the_last_100_000_ticks() -> None:
    stream = make_stream("synthetic", 40, 110_000, seed=1)
    late = np.flatnonzero((stream.kinds == CHECK) & (np.arange(110_000) > 105_000))
    reads_back = late - stream.details[late]
    assert reads_back.max() == 100_000


def test_nobody_posts_without_followers_and_the_popular_post_more() -> None:
    followers = np.array([0, 9, 10, 99, 100, 1_000])
    weights = np.array([post_weights(followers, np.random.default_rng(seed)) for seed in range(300)])
    assert weights.min(axis=0).tolist() == [0, 0.1, 1, 1, 1, 1]
    assert weights.max(axis=0).tolist() == [0, 0.1, 3, 4, 5, 7]


def test_the_clock_goes_on_from_the_initial_posts() -> None:
    stream = make_stream("synthetic", 60, 500, seed=1, initial_post_count=100)
    stream._check()
    assert stream.first_tick == len(stream.initial_posters) == 100
    assert stream.details[stream.kinds == CHECK].max() >= 100
