"""The graphs that Twip runs on have the shapes that they claim, and say what is wrong with a file."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pequod_bench.workloads.graph import Graph, GraphError, from_edges, make_graph, power_law, read_edges, synthetic


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def pairs(graph: Graph) -> list[tuple[int, int]]:
    return list(zip(graph.users.tolist(), graph.posters.tolist(), strict=True))


@pytest.mark.parametrize("user_count", [2, 3, 20, 150, 401])
@pytest.mark.parametrize("make", [synthetic, power_law])
def test_a_graph_of_any_size_holds_its_invariants(
    make: Callable[[int, np.random.Generator], Graph], user_count: int
) -> None:
    make(user_count, rng())._check()


def test_one_seed_gives_one_graph() -> None:
    assert pairs(synthetic(300, rng(7))) == pairs(synthetic(300, rng(7)))
    assert pairs(synthetic(300, rng(7))) != pairs(synthetic(300, rng(8)))


def test_everyone_in_the_synthetic_graph_follows_20_to_200_others() -> None:
    graph = synthetic(2_000, rng())
    follows = np.bincount(graph.users, minlength=2_000)
    assert follows.min() >= 20
    assert follows.max() <= 200
    assert 105 < follows.mean() < 115


def test_followers_of_the_synthetic_graph_are_spread_as_in_the_original() -> None:
    """At 20,000 users: mean 110, standard deviation 194, median 16, 90th percentile 396, 99th 838."""
    followers = synthetic(20_000, rng()).follower_counts()
    assert followers.mean() == pytest.approx(110, rel=0.02)
    assert followers.std() == pytest.approx(194, rel=0.03)
    assert np.median(followers) == pytest.approx(16, abs=1)
    assert np.percentile(followers, 90) == pytest.approx(396, rel=0.03)
    assert np.percentile(followers, 99) == pytest.approx(838, rel=0.03)


def test_power_law_has_few_with_very_many_followers() -> None:
    followers = np.sort(power_law(5_000, rng()).follower_counts())
    assert 30 < followers.mean() < 50
    assert followers[-50:].sum() > 5 * followers[:500].sum()


def test_edges_are_renumbered_in_order_and_cleaned() -> None:
    graph = from_edges(np.array([30, 10, 10, 20, 20]), np.array([10, 30, 30, 20, 10]))
    graph._check()
    assert graph.user_count == 3
    assert pairs(graph) == [(0, 2), (1, 0), (2, 0)]


@pytest.mark.parametrize("packed", [False, True])
def test_an_edge_file_is_read_packed_or_plain(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / ("edges.tsv.gz" if packed else "edges.tsv")
    content = b"# user\tposter\n5\t7\n7\t5\n7\t9\n"
    path.write_bytes(gzip.compress(content) if packed else content)
    graph = make_graph(str(path), 0, rng())
    assert (graph.name, graph.user_count) == (path.name, 3)
    assert pairs(graph) == [(0, 1), (1, 0), (1, 2)]


def test_a_parquet_file_is_read(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "edges.parquet"
    parquet.write_table(pyarrow.table({"user": [5, 7], "poster": [7, 5]}), path)
    assert pairs(read_edges(path)) == [(0, 1), (1, 0)]


@pytest.mark.parametrize("content", [b"", b"1\n2\n", b"ann\tbob\n", b"1.5\t2\n"])
@pytest.mark.filterwarnings("ignore:loadtxt")
def test_a_file_that_is_no_graph_is_refused_with_a_reason(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "edges.tsv"
    path.write_bytes(content)
    with pytest.raises(GraphError):
        read_edges(path)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(GraphError, match=r"no graph file '/nowhere/x.tsv'"):
        read_edges(Path("/nowhere/x.tsv"))


def test_a_graph_needs_two_users() -> None:
    with pytest.raises(GraphError, match="between 2"):
        synthetic(1, rng())
