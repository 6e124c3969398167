"""The model of a cluster counts what a cluster does."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

import numpy as np
import pytest
from pequod_bench.cluster_model import Account, ClusterCounts, Prices, RolePrices, fitted, predicted, work
from pequod_bench.stream import CHECK, LOGOUT, POST, SUBSCRIBE, TwipStream, make_stream

from pequod.cluster.rendezvous import owners

#: Commands of a message.
BATCH = 256
#: Of a command, a message, a change, a message of the feed, a load, a range and a row of it.
PRICES = Prices(RolePrices(3.0, 100.0, 2.0, 50.0, 500.0, 20.0, 1.0), RolePrices(5.0, 90.0, 0.7, 40.0, 300.0, 10.0, 0.4))


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
    asked, told, loaded = set[tuple[str, int]](), set[tuple[str, int]](), set[tuple[str, int]]()
    held = {(owner[user], poster) for user, poster in edges[: len(stream.graph.users)] if user in active}
    ranges, number = Counter[str](), 0
    for kind, user, other in rows:
        message = number // BATCH
        if kind == CHECK:
            asked.add((owner[user], message))
        elif kind == POST:
            told |= {(owner[follower], message) for follower in followers[user]}
        elif kind == SUBSCRIBE and user in active:
            told.add((owner[user], message))
            if (owner[user], other) not in held:
                held.add((owner[user], other))
                ranges[owner[user]] += 1
                loaded.add((owner[user], message))
        number += kind != LOGOUT
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
    found = work(stream, computes, BATCH)
    names = [name for name, _ in servers]
    assert found.changes.tolist() == [changes[name] for name in names]
    assert found.rows.tolist() == [made[name] for name in names]
    assert found.checks.tolist() == [checks[name] for name in names]
    for pairs, figures in ((asked, found.messages), (told, found.feed_messages), (loaded, found.loads)):
        assert figures.tolist() == [sum(one == name for one, _ in pairs) for name in names]
    assert found.loaded_ranges.tolist() == [ranges[name] for name in names]
    assert found.duplication == pytest.approx(
        np.mean([len({owner[follower] for follower in them}) for them in followers.values()])
    )


def test_prices_that_made_the_accounts_are_found_again(stream: TwipStream) -> None:
    rng = random.Random(5)
    accounts = []
    for computes in (1, 2, 4):
        for _ in range(4):
            compute, home = (
                ClusterCounts(*(rng.uniform(100, 10_000) for _ in ClusterCounts._fields)) for _ in range(2)
            )
            prices = PRICES.compute.cpu_s(compute), PRICES.home.cpu_s(home)
            accounts.append(Account(computes, compute, home, *prices))
    found = fitted(accounts)
    assert found.compute == pytest.approx(PRICES.compute)
    assert found.home == pytest.approx(PRICES.home)
    again, asked = predicted(stream, 2, BATCH, found), work(stream, 2, 2 * BATCH)
    assert again.compute_cpu_s == pytest.approx(PRICES.compute.cpu_s(asked.of_computes))
    assert again.home_cpu_s == pytest.approx(PRICES.home.cpu_s(asked.of_homes))


def test_prices_do_not_fall_below_zero() -> None:
    counts = [ClusterCounts(100, 0, changes, 0, 0, 0, 0) for changes in (10, 20, 40)]
    found = RolePrices.fitted(counts, [1.0 - one.changes / 100 for one in counts])
    assert found.change_us == 0
    assert found.command_us > 0


def test_one_size_tells_no_prices() -> None:
    account = Account(2, ClusterCounts(1, 1, 1, 1, 1, 1, 1), ClusterCounts(1, 1, 1, 1, 1, 1, 1), 1.0, 1.0)
    with pytest.raises(ValueError, match="two numbers of computes"):
        fitted([account] * 3)


def test_a_cluster_speeds_up_by_less_than_its_size(stream: TwipStream) -> None:
    small, large = (predicted(stream, computes, BATCH, PRICES) for computes in (2, 8))
    assert 1 < large.ticks_per_s / small.ticks_per_s < 4
    assert 1 < small.duplication < large.duplication
