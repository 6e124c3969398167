"""The model of a cluster counts what a cluster does."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest
from pequod_bench.cluster_model import Account, Prices, fitted, predicted, work
from pequod_bench.stream import CHECK, POST, SUBSCRIBE, TwipStream, make_stream

from pequod.cluster.rendezvous import owners


@pytest.fixture(scope="module")
def stream() -> TwipStream:
    return make_stream("synthetic", 500, 5_000, 3)


@pytest.mark.parametrize("computes", [1, 2, 5])
def test_work_is_what_one_counts_by_hand(stream: TwipStream, computes: int) -> None:
    servers = [(f"c{number}", 1.0) for number in range(1, computes + 1)]
    owner = [owners(b"t|%08d|" % user, servers)[0] for user in range(stream.graph.user_count)]
    active = set(stream.active.tolist())
    followers: defaultdict[int, list[int]] = defaultdict(list)
    edges = list(zip(stream.graph.users.tolist(), stream.graph.posters.tolist(), strict=True))
    rows = list(zip(stream.kinds.tolist(), stream.users.tolist(), stream.details.tolist(), strict=True))
    edges += [(user, other) for kind, user, other in rows if kind == SUBSCRIBE]
    for user, poster in edges:
        if user in active:
            followers[poster].append(user)
    changes, made, checks = Counter[str](), Counter[str](), Counter[str]()
    for kind, user, _ in rows:
        if kind == POST:
            for compute in {owner[follower] for follower in followers[user]}:
                changes[compute] += 1
            for follower in followers[user]:
                made[owner[follower]] += 1
        elif kind == SUBSCRIBE and user in active:
            changes[owner[user]] += 1
        elif kind == CHECK:
            checks[owner[user]] += 1
    found = work(stream, computes)
    names = [name for name, _ in servers]
    assert found.changes.tolist() == [changes[name] for name in names]
    assert found.rows.tolist() == [made[name] for name in names]
    assert found.checks.tolist() == [checks[name] for name in names]
    assert found.duplication == pytest.approx(
        np.mean([len({owner[follower] for follower in them}) for them in followers.values()])
    )


def test_prices_that_made_the_accounts_are_found_again(stream: TwipStream) -> None:
    prices = Prices(3.0, 2.0, 5.0, 0.7)
    accounts = []
    for computes in (1, 2, 4):
        asked = work(stream, computes)
        compute_us = asked.ticks * prices.tick_us + asked.change_count * prices.change_us
        home_us = asked.writes * prices.write_us + asked.change_count * prices.delivery_us
        accounts.append(Account(asked, compute_us / 1e6, home_us / 1e6))
    found = fitted(accounts)
    assert (found.tick_us, found.change_us) == pytest.approx((3.0, 2.0))
    assert (found.write_us, found.delivery_us) == pytest.approx((5.0, 0.7))
    again = predicted(stream, 2, found)
    assert again.compute_cpu_s == pytest.approx(accounts[1].compute_cpu_s)
    assert again.home_cpu_s == pytest.approx(accounts[1].home_cpu_s)


def test_prices_do_not_fall_below_zero(stream: TwipStream) -> None:
    accounts = [Account(work(stream, computes), 1.0 - computes / 100, 1.0) for computes in (1, 2, 4)]
    assert fitted(accounts).change_us == 0
    assert fitted(accounts).tick_us > 0


def test_one_size_tells_no_prices(stream: TwipStream) -> None:
    with pytest.raises(ValueError, match="two numbers of computes"):
        fitted([Account(work(stream, 2), 1.0, 1.0)] * 3)


def test_a_cluster_speeds_up_by_less_than_its_size(stream: TwipStream) -> None:
    small, large = (predicted(stream, computes, Prices(3.0, 2.0, 5.0, 0.7)) for computes in (2, 8))
    assert 1 < large.ticks_per_s / small.ticks_per_s < 4
    assert 1 < small.duplication < large.duplication
