"""Generated workloads: the model's laws hold, and the same seed gives the same rows however they are partitioned."""

from __future__ import annotations

from collections import Counter, deque
from pathlib import Path

import pytest
from pequod_grammar import parse
from pequod_spark.draws import alias_table
from pequod_spark.edges import read_edges, user_count
from pequod_spark.plan import compile_join, read_from
from pequod_spark.texts import rendered, text
from pequod_spark.twip import GraphModel, Twip, WorkloadError, follows, operations, write_twip
from pequod_workloads import twip as model
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from pequod.engine import Engine
from tests.spark.rows import rows_of

TWIP = Twip(user_count=300, tick_count=3_000, seed=7, initial_post_count=500, tweet_bytes=20)
JOIN = "t|<user:8>|<time:10>|<poster:8> = check s|<user>|<poster> copy p|<poster>|<time>"


@pytest.fixture(scope="module")
def written(twip_path: Path) -> Path:
    return twip_path


def operations_of(spark: SparkSession, path: Path) -> list[tuple[int, str, int, int]]:
    rows = spark.read.parquet(str(path / "operations")).toArrow().to_pylist()
    return sorted((row["tick"], row["kind"], row["user"], row["detail"]) for row in rows)


def test_users_follow_distinct_others_and_some_are_followed_by_many(spark: SparkSession, written: Path) -> None:
    pairs = spark.read.parquet(str(written / "follows")).toArrow().to_pylist()
    edges = {(row["user"], row["poster"]) for row in pairs}
    assert len(edges) == len(pairs)
    assert all(0 <= user < 300 and 0 <= poster < 300 and user != poster for user, poster in edges)
    counts, followers = Counter(user for user, _ in edges), Counter(poster for _, poster in edges)
    assert len(counts) == 300
    assert min(counts.values()) >= 20
    assert max(counts.values()) <= 30
    assert 24 < len(edges) / 300 < 26
    assert max(followers.values()) > 2 * sorted(followers.values())[150]


def test_operations_are_those_of_a_simulation_step_by_step(spark: SparkSession, written: Path) -> None:
    found = operations_of(spark, written)
    assert [tick for tick, *_ in found] == list(range(500, 3_500))
    logins: deque[int] = deque()
    checked_at: dict[int, int] = {}
    turns: list[int] = []
    for tick, kind, user, detail in found:
        if kind == "check":
            turns.append(user)
            assert detail == checked_at.get(user, max(0, tick - 100_000))
            if user not in checked_at:
                logins.append(user)
            checked_at[user] = tick
        elif kind == "logout":
            assert user == logins.popleft(), "the longest logged in"
            del checked_at[user]
        elif kind == "subscribe":
            assert 0 <= user < 300
            assert 0 <= detail < 300
            assert user != detail
    assert len(set(turns[:210])) == 210
    assert turns == [turns[number % 210] for number in range(len(turns))]
    counts = Counter(kind for _, kind, *_ in found)
    for kind, weight in {"check": 100, "subscribe": 10, "logout": 5, "post": 1}.items():
        assert abs(counts[kind] - 3_000 * weight / 116) < 5 * (3_000 * weight / 116) ** 0.5


def test_posts_are_those_of_users_with_followers(spark: SparkSession, written: Path) -> None:
    posters = {row.poster for row in spark.read.parquet(str(written / "follows")).select("poster").collect()}
    rows = rows_of(spark.read.parquet(str(written / "rows")))
    posts = [(key, value) for key, value in rows if key.startswith(b"p|")]
    assert len(posts) == 500
    assert {int(key[2:10]) for key, _ in posts} <= posters
    assert sorted(int(key[11:]) for key, _ in posts) == list(range(500))
    assert all(len(value) == 20 and value.startswith(b"%d the" % int(key[11:])) for key, value in posts)


def test_the_same_seed_gives_the_same_rows_however_partitioned(spark: SparkSession, written: Path) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "5")
    spark.conf.set("spark.sql.leafNodeDefaultParallelism", "7")
    try:
        graph = follows(spark, TWIP)
        stream = operations(graph.repartition(3), TWIP).where("tick >= 500").toArrow().to_pylist()
        again = sorted((row["tick"], row["kind"], row["user"], row["detail"]) for row in stream)
        edges = {(row.user, row.poster) for row in graph.collect()}
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before or "2")
        spark.conf.unset("spark.sql.leafNodeDefaultParallelism")
    assert again == operations_of(spark, written)
    assert edges == {(row.user, row.poster) for row in spark.read.parquet(str(written / "follows")).collect()}


def test_another_seed_gives_other_rows(spark: SparkSession) -> None:
    graphs = [
        {(row.user, row.poster) for row in follows(spark, Twip(40, 0, seed, GraphModel.POWER_LAW)).collect()}
        for seed in (1, 2)
    ]
    assert graphs[0] != graphs[1]
    assert all(len({user for user, _ in graph}) == 40 for graph in graphs)


def test_timelines_computed_from_what_was_written_are_the_engines(spark: SparkSession, written: Path) -> None:
    frame = spark.read.parquet(str(written / "rows"))
    (spec,) = parse(JOIN)
    engine = Engine()
    engine.add_joins([spec])
    for key, value in rows_of(frame):
        engine.put(key, value)
    scanned = engine.scan(b"t|00000010", b"t|00000050", now=0.0)
    expected = list(zip(scanned.keys, scanned.values, strict=True))
    assert len(expected) > 1000
    assert rows_of(compile_join(spec, read_from(frame), b"t|00000010", b"t|00000050")) == expected


def test_a_graph_of_others_is_read(spark: SparkSession, tmp_path: Path) -> None:
    text = tmp_path / "edges.tsv"
    text.write_text("# who follows whom\n1\t2\n2 1\n\n 1\t2\n3\t3\n0\t4\n")
    graph = read_edges(spark, str(text))
    assert sorted(tuple(row) for row in graph.collect()) == [(0, 4), (1, 2), (2, 1)]
    assert user_count(graph) == 5
    graph.select("user", "poster").write.parquet(str(tmp_path / "edges.parquet"))
    assert read_edges(spark, str(tmp_path / "edges.parquet")).count() == 3
    posts = operations(graph, Twip(user_count=5, tick_count=500)).where("kind = 'post'")
    assert {row.user for row in posts.select("user").distinct().collect()} <= {1, 2, 4}


@pytest.mark.parametrize("line", ["1", "1\tx", "1\t-2", "1\t123456789"])
def test_a_file_that_is_no_graph_is_refused(spark: SparkSession, tmp_path: Path, line: str) -> None:
    (tmp_path / "edges").write_text(f"1\t2\n{line}\n")
    with pytest.raises(WorkloadError, match="is no graph: a line must be user<TAB>poster, numbers below 100000000"):
        read_edges(spark, str(tmp_path / "edges"))


def test_what_is_there_is_not_overwritten(spark: SparkSession, written: Path) -> None:
    with pytest.raises(AnalysisException, match="PATH_ALREADY_EXISTS"):
        write_twip(spark, Twip(user_count=2, tick_count=0), str(written))


def test_buckets_give_every_item_its_weight() -> None:
    for weights in ([3.0, 1.0], [0.0, 1.0, 0.0, 5.0, 0.1], [1.0] * 7, [0.1] * 9 + [0.0]):
        table = alias_table(weights)
        shares = [0.0] * len(weights)
        for item, (keep, other) in enumerate(zip(*table, strict=True)):
            shares[item] += keep
            shares[other] += 1 - keep
        assert shares == pytest.approx([weight * len(weights) / sum(weights) for weight in weights])
        assert all(weights[item] > 0 for item, keep in enumerate(table.keep) if keep > 0)


def test_numbers_that_make_no_twip_are_refused() -> None:
    with pytest.raises(WorkloadError, match="between 2 and 100000000 users, not 1"):
        Twip(user_count=1, tick_count=1)
    with pytest.raises(WorkloadError, match="cannot be negative"):
        Twip(user_count=2, tick_count=-1)
    with pytest.raises(WorkloadError, match="times have ten digits"):
        Twip(user_count=2, tick_count=10**10, initial_post_count=1)
    with pytest.raises(WorkloadError, match="at least one byte, not 0"):
        Twip(user_count=2, tick_count=1, tweet_bytes=0)


def test_keys_and_texts_are_those_of_the_model(spark: SparkSession) -> None:
    ids = spark.range(3).select(f.col("id"), (f.col("id") * 12_345).alias("tick"))
    keys = ids.select(rendered(model.POST, f.col("id"), f.col("tick")), text(f.col("tick"), 70)).collect()
    assert [(bytes(key), bytes(value)) for key, value in keys] == [
        (model.post_key(number, 12_345 * number), model.tweet(12_345 * number, 70)) for number in range(3)
    ]
    (last,) = ids.limit(1).select(rendered(model.TIMELINE_LAST, f.col("id"))).collect()[0]
    assert bytes(last) == model.timeline_last(0)
