"""Twip's graph, posts and operations as DataFrames: drawn from one seed, the same for any number of partitions.

    follows      user, poster                         who follows whom at the start
    operations   tick, kind, user, detail             what happens, one row a tick
      check      user reads their timeline; detail is the tick to read from
      subscribe  user follows detail
      logout     user's next check will be a full one; detail is 0
      post       user tweets; detail is 0. Ticks before the first operation may be posts too
    rows         key, value                           the base rows of the start, in order of key:
                                                      s|<user:8>|<poster:8> and p|<poster:8>|<time:10>

Active users check in turn, so check number c is that of user c modulo the number of users. Users log in in turn as
well, so the user who has been logged in longest is found in the same way. So each operation is a function of the
numbers of checks and logouts before it, and Spark counts these in parallel.

Source:
    Paper §5.1 and the published benchmark's model.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from random import Random
from typing import Final, TypeVar

import pyarrow as pa
from pequod_workloads import twip as model
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from pequod.errors import PequodError
from pequod_spark.draws import draw_items, uniform, uniform_below
from pequod_spark.texts import rendered, text

T = TypeVar("T")

#: A logout among the first operations is a check instead, so that at least one user is logged in.
WARM_UP_TICKS: Final = 100
#: The number of operations that are numbered together.
_BLOCK_TICKS: Final = 65_536


class GraphModel(StrEnum):
    """The models by which follows are drawn."""

    #: 20 to 200 follows each, a tenth of the users at most.
    SYNTHETIC = "synthetic"
    #: Follows are Pareto, both sides have heavy tails.
    POWER_LAW = "power-law"


class WorkloadError(PequodError):
    """A workload that cannot be generated."""


@dataclass(frozen=True, slots=True)
class Twip:
    """A Twip to generate.

    Raises:
        WorkloadError: A number is out of its range.
    """

    user_count: int
    #: The number of operations.
    tick_count: int
    seed: int = 1
    graph: GraphModel = GraphModel.SYNTHETIC
    #: Posts before the first operation; they take the first ticks.
    initial_post_count: int = 0
    tweet_bytes: int = 140

    def __post_init__(self) -> None:
        if not 2 <= self.user_count <= model.USERS_MAX:
            raise WorkloadError(f"Twip needs between 2 and {model.USERS_MAX} users, not {self.user_count}")
        if min(self.tick_count, self.initial_post_count) < 0:
            raise WorkloadError("numbers of operations and posts cannot be negative")
        if self.initial_post_count + self.tick_count > model.TICKS_MAX:
            raise WorkloadError(
                f"posts and operations together cannot be more than {model.TICKS_MAX}: times have ten digits"
            )
        if self.tweet_bytes < 1:
            raise WorkloadError(f"a tweet has at least one byte, not {self.tweet_bytes}")


def follows(spark: SparkSession, twip: Twip) -> DataFrame:
    """Return who follows whom: columns ``user`` and ``poster``, each pair once.

    Every user draws others by weight, one after another, until it has the wanted number of different ones.

    Cost:
        Runs at once, to check that all users found enough; about 1.25 draws a follow. The result stays cached.
    """
    weights = _popularity(twip)
    users = spark.range(twip.user_count).select(f.col("id").alias("user"), _follow_count(twip).alias("wanted"))
    draws_per_follow = 1.25
    while True:
        tries = f.ceil(f.col("wanted") * draws_per_follow) + 16
        attempts = users.withColumn("attempt", f.explode(f.sequence(f.lit(0).cast("bigint"), tries)))
        drawn = draw_items(attempts, "poster", weights, twip.seed, "follow", "user", "attempt")
        others = (
            drawn.where("user <> poster").groupBy("user", "wanted", "poster").agg(f.min("attempt").alias("attempt"))
        )
        place = f.row_number().over(Window.partitionBy("user").orderBy("attempt"))
        found = others.withColumn("place", place).where("place <= wanted").select("user", "wanted", "poster").persist()
        satisfied = found.groupBy("user", "wanted").count().where("count = wanted").count()
        if satisfied == twip.user_count:
            return found.select("user", "poster")
        found.unpersist()
        draws_per_follow *= 2


def operations(graph: DataFrame, twip: Twip) -> DataFrame:
    """Return all operations: columns ``tick``, ``kind``, ``user``, ``detail``.

    A logout of a user who is logged out already, which happens if users are very few, does nothing.

    Args:
        graph: Who follows whom (`follows`, or another graph with bigint columns ``user`` and ``poster``).
        twip: The workload.

    Cost:
        Runs ``graph`` at once, for the numbers of followers.
    """
    kinds = _kinds(graph.sparkSession, twip)
    turns = _turns(graph.sparkSession, twip)
    parts = [
        _checks(_numbered(kinds), turns),
        _logouts(_numbered(kinds), turns),
        _subscribes(kinds, twip),
        _posts(kinds, graph, twip),
    ]
    union = parts[0]
    for part in parts[1:]:
        union = union.union(part)
    return union


def subscription_rows(graph: DataFrame) -> DataFrame:
    """Return the base rows of subscriptions."""
    key = rendered(model.SUBSCRIPTION, f.col("user"), f.col("poster"))
    return graph.select(key.alias("key"), f.lit(model.FOLLOWS).alias("value"))


def post_rows(posts: DataFrame, twip: Twip) -> DataFrame:
    """Return the base rows of operations that are posts; others are left out."""
    key = rendered(model.POST, f.col("user"), f.col("tick"))
    rows = posts.where(f.col("kind") == "post")
    return rows.select(key.alias("key"), text(f.col("tick"), twip.tweet_bytes).alias("value"))


def write_twip(spark: SparkSession, twip: Twip, path: str, edges: DataFrame | None = None) -> None:
    """Write ``follows``, ``operations`` (in order) and ``rows`` (in key order) as Parquet under ``path``.

    Args:
        edges: Who follows whom, instead of the drawn graph: columns ``user`` and ``poster`` below the number of users.

    Raises:
        pyspark.errors.AnalysisException: The path exists already; it is left as it is.
    """
    graph = follows(spark, twip) if edges is None else edges.persist()
    graph.sort("user", "poster").write.parquet(f"{path}/follows")
    stream = operations(graph, twip).persist()
    initial = stream.where(f.col("tick") < twip.initial_post_count)
    stream.where(f.col("tick") >= twip.initial_post_count).sort("tick").write.parquet(f"{path}/operations")
    subscription_rows(graph).union(post_rows(initial, twip)).sort("key").write.parquet(f"{path}/rows")
    stream.unpersist()
    graph.unpersist()


def _popularity(twip: Twip) -> list[float]:
    """Return each user's chance to be followed, relative to the others."""
    weights = model.popularity(twip.graph.value, twip.user_count)
    _shuffle(weights, twip.seed)
    return weights


def _follow_count(twip: Twip) -> Column:
    """Return how many others a user (``id``) follows.

    At most a tenth of the users, since drawing more of them by weight would take very long: the synthetic model is
    exact from 2,000 users on.
    """
    tenth = max(1, twip.user_count // 10)
    if twip.graph is GraphModel.POWER_LAW:
        chance = 1 - uniform(twip.seed, "follow count", "id")
        pareto = f.floor(f.pow(chance, f.lit(-1 / model.POWER_LAW_EXPONENT)) * model.POWER_LAW_FOLLOWS_MEAN / 3)
        most = min(tenth, model.POWER_LAW_FOLLOWS_MAX)
        return f.least(f.greatest(pareto, f.lit(1)), f.lit(most)).cast("bigint")
    most = min(tenth, model.FOLLOWS_MAX)
    least = min(tenth, model.FOLLOWS_MIN)
    return uniform_below(most - least + 1, twip.seed, "follow count", "id") + least


def _kinds(spark: SparkSession, twip: Twip) -> DataFrame:
    """Return ``tick`` and ``kind`` of all operations and of the posts before them."""
    tick = f.col("tick")
    since = tick - twip.initial_post_count
    checks, subscribes, logouts, all_ = accumulate(model.WEIGHTS)
    chance = uniform_below(all_, twip.seed, "kind", "tick")
    kind = (
        f.when((since < 0) | (chance >= logouts), "post")
        .when((chance >= subscribes) & (since >= WARM_UP_TICKS), "logout")
        .when((chance >= checks) & (chance < subscribes), "subscribe")
        .otherwise("check")
    )
    ticks = spark.range(twip.initial_post_count + twip.tick_count).select(f.col("id").alias("tick"))
    return ticks.withColumn("kind", kind)


def _turns(spark: SparkSession, twip: Twip) -> DataFrame:
    """Return the active users in the order in which they check: ``turn``, ``user``, and their number ``turns``."""
    users = list(range(twip.user_count))
    _shuffle(users, twip.seed + 1)
    active = users[: model.active_count(twip.user_count)]
    table = pa.table({"turn": pa.array(range(len(active)), pa.int64()), "user": pa.array(active, pa.int64())})
    return spark.createDataFrame(table).withColumn("turns", f.lit(len(active)).cast("bigint"))


def _numbered(kinds: DataFrame) -> DataFrame:
    """Add the numbers of ``checks`` and ``logouts`` before each operation."""
    blocks = kinds.withColumn("block", f.floor(f.col("tick") / _BLOCK_TICKS))
    is_kind = {f"{kind}s": (f.col("kind") == kind).cast("bigint") for kind in ("check", "logout")}
    sums = blocks.groupBy("block").agg(*[f.sum(count).alias(name) for name, count in is_kind.items()])
    earlier = Window.orderBy("block").rowsBetween(Window.unboundedPreceding, -1)
    offsets = sums.select(
        "block", *[f.coalesce(f.sum(name).over(earlier), f.lit(0)).alias(f"{name}_offset") for name in is_kind]
    )
    within = Window.partitionBy("block").orderBy("tick").rowsBetween(Window.unboundedPreceding, -1)
    counted = blocks.select(
        "*", *[f.coalesce(f.sum(count).over(within), f.lit(0)).alias(name) for name, count in is_kind.items()]
    )
    totals = [(f.col(name) + f.col(f"{name}_offset")).alias(name) for name in is_kind]
    return counted.join(offsets, "block").select("tick", "kind", *totals)


def _checks(numbered: DataFrame, turns: DataFrame) -> DataFrame:
    checks = numbered.where(f.col("kind") == "check").crossJoin(f.broadcast(turns.select("turns").limit(1)))
    in_turn = checks.withColumn("turn", f.col("checks") % f.col("turns"))
    same_user = Window.partitionBy("turn").orderBy("tick")
    before = in_turn.withColumn("tick_before", f.lag("tick").over(same_user)).withColumn(
        "logouts_before", f.lag("logouts").over(same_user)
    )
    # The number of this user's logouts among the first ones: logout number l takes turn l modulo the number of users.
    own = "(({} + turns - 1 - turn) div turns)"
    is_full = f.col("tick_before").isNull() | f.expr(f"{own.format('logouts')} > {own.format('logouts_before')}")
    login = f.greatest(f.col("tick") - model.FULL_CHECK_TICKS, f.lit(0).cast("bigint"))
    detail = f.when(is_full, login).otherwise(f.col("tick_before"))
    return before.join(turns.select("turn", "user"), "turn").select("tick", "kind", "user", detail.alias("detail"))


def _logouts(numbered: DataFrame, turns: DataFrame) -> DataFrame:
    logouts = numbered.where(f.col("kind") == "logout")
    taken = logouts.join(turns, f.col("logouts") % f.col("turns") == f.col("turn"))
    return taken.select("tick", "kind", "user", f.lit(0).cast("bigint").alias("detail"))


def _subscribes(kinds: DataFrame, twip: Twip) -> DataFrame:
    drawn = kinds.where(f.col("kind") == "subscribe").select(
        "tick",
        "kind",
        uniform_below(twip.user_count, twip.seed, "subscriber", "tick").alias("user"),
        uniform_below(twip.user_count - 1, twip.seed, "subscribed", "tick").alias("other"),
    )
    other = f.col("other") + (f.col("other") >= f.col("user")).cast("bigint")
    return drawn.select("tick", "kind", "user", other.alias("detail"))


def _posts(kinds: DataFrame, graph: DataFrame, twip: Twip) -> DataFrame:
    """Draw the authors of posts: roughly by the logarithm of their followers."""
    spread = f.floor(2 * f.log10("followers"))
    weight = 1.0 + f.floor(uniform(twip.seed, "activity", "poster") * (spread + 1))
    followers = graph.groupBy("poster").agg(f.count("*").alias("followers"))
    active = followers.select(
        "poster",
        f.when(f.col("followers") < model.FEW_FOLLOWERS, model.FEW_FOLLOWERS_WEIGHT).otherwise(weight).alias("weight"),
    )
    weights = [0.0] * twip.user_count
    for poster, chance in zip(*active.toArrow().to_pydict().values(), strict=True):
        weights[poster] = chance
    drawn = draw_items(kinds.where(f.col("kind") == "post"), "user", weights, twip.seed, "post", "tick")
    return drawn.select("tick", "kind", "user", f.lit(0).cast("bigint").alias("detail"))


def _shuffle(items: list[T], seed: int) -> None:
    Random(seed).shuffle(items)  # noqa: S311 -- a workload, no secret
