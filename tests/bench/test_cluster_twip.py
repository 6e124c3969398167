"""Twip on small clusters is right, and so is one compute of a larger one by itself."""

from __future__ import annotations

import io
from collections import Counter

import pytest
from pequod_bench.cluster import busiest, copies_of_posts, member, owner_numbers, run
from pequod_bench.report.progress import ProgressBars
from pequod_bench.settings import ClusterSettings, TwipSettings
from pequod_bench.twip import prepare
from pequod_bench.workloads.stream import CHECK, POST, TwipStream, make_stream
from rich.console import Console

from pequod.cluster.rendezvous import owners
from pequod.commands.kinds import SCAN

SETTINGS = TwipSettings(users=200, ticks=3_000, tweet_bytes=5, batch=32, seed=3)
COMPUTES = 5


@pytest.fixture(scope="module")
def stream() -> TwipStream:
    return make_stream(SETTINGS.graph, SETTINGS.users, SETTINGS.ticks, SETTINGS.seed)


@pytest.mark.usefixtures("forked_servers")
def test_twip_on_clusters_is_right_and_so_is_one_compute_of_larger_ones() -> None:
    bars = ProgressBars(Console(quiet=True))
    sizes = ClusterSettings(users=60, ticks=600, tweet_bytes=5, computes=(1,), homes=2, large_users=300, rounds=1)
    report = run(sizes, bars)
    assert not report.fault()
    assert [(one.computes, one.correct) for one in report.runs] == [(1, True)]
    assert [one.computes for one in report.large] == [12, 48]
    assert all(one.runs[0].changes > 0 and one.ticks_per_s > 0 for one in report.large)
    printed = io.StringIO()
    report.print_table(Console(file=printed, width=100))
    for words in ("exact", "by itself, of larger clusters", "the paper's figure 10"):
        assert words in printed.getvalue()


def test_the_computes_of_a_cluster_are_asked_everything_together(stream: TwipStream) -> None:
    whole = Counter(part for batch in prepare(SETTINGS).batches for part in _commands(batch.kinds, batch.arguments))
    found = Counter[tuple[int, bytes, bytes]]()
    for number in range(COMPUTES):
        own = member(SETTINGS, stream, COMPUTES, number)
        commands = [part for batch in own.batches for part in _commands(batch.kinds, batch.arguments)]
        found.update(commands)
        for kind, first, _ in commands:
            user = first.split(b"|")[1]
            owner, *_ = owners(b"t|%s|" % user, [(f"c{one}", 1.0) for one in range(COMPUTES)])
            assert owner == f"c{number}" or first.startswith(b"p|"), (kind, first)
    posts = {part: count * COMPUTES if part[1].startswith(b"p|") else count for part, count in whole.items()}
    assert found == posts


def test_a_message_is_the_part_of_a_message_to_all(stream: TwipStream) -> None:
    size = SETTINGS.batch * COMPUTES
    own = member(SETTINGS, stream, COMPUTES, 0)
    assert len(own.batches) == -(-sum(len(batch.kinds) for batch in prepare(SETTINGS).batches) // size)
    assert max(batch.kinds.count(SCAN) for batch in own.batches) < 2 * SETTINGS.batch


def test_the_busiest_and_the_copies_are_what_one_counts_by_hand(stream: TwipStream) -> None:
    owner = owner_numbers(stream.graph.user_count, COMPUTES)
    checks = Counter(int(owner[user]) for kind, user in zip(stream.kinds, stream.users, strict=True) if kind == CHECK)
    assert checks[busiest(stream, COMPUTES)] == max(checks.values())
    active, holders = set(stream.active.tolist()), dict[int, set[int]]()
    for user, poster in zip(stream.graph.users.tolist(), stream.graph.posters.tolist(), strict=True):
        if user in active:
            holders.setdefault(poster, set()).add(int(owner[user]))
    assert copies_of_posts(stream, COMPUTES) == pytest.approx(sum(map(len, holders.values())) / len(holders))
    assert stream.count(POST) > 0


def _commands(kinds: bytes, arguments: list[bytes]) -> list[tuple[int, bytes, bytes]]:
    return list(zip(kinds, arguments[::2], arguments[1::2], strict=True))
