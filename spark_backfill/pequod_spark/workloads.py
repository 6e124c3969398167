"""Workloads as requests to servers: the rows at the start, the requests, the division among servers, the joins.

    requests   at        the time, counted in operations from the first
               kind      check, subscribe, post; page, vote, comment
               home      the servers that get it: server number home modulo the number of servers; null: all of them
               key       the key of a write, or the first key of a scan
               last      the end of a scan; null for a write
               value     the value of a write; null for a scan

Several servers share the work without knowing of each other: each computes the pages of its part, and has the base keys
that these need. Twip's users are divided among the servers, and all posts are on each server; Newp's authors are
divided with their articles and comments, and all votes are on each server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Final

from pequod_workloads import newp, twip
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from pequod.errors import PequodError
from pequod_spark.newp import Newp, write_newp
from pequod_spark.texts import rendered, text
from pequod_spark.twip import Twip, write_twip


@dataclass(frozen=True, slots=True)
class WorkloadKind:
    """The properties of a workload that do not depend on its size."""

    joins: str
    #: For some tables, the place of the home's eight digits in the key (from 1); other tables are on all servers.
    homes: Mapping[str, int]

    def home(self) -> Column:
        """Return the home of a row by its ``key``, null if all servers have the row."""
        table = f.substring_index(f.decode("key", "UTF-8"), "|", 1)
        number = f.lit(None).cast("bigint")
        for name, place in self.homes.items():
            found = f.decode(f.substring("key", place, 8), "UTF-8").cast("bigint")
            number = f.when(table == name, found).otherwise(number)
        return number


TWIP: Final = WorkloadKind(twip.PUSH_JOIN, {"s": 3, "t": 3})
NEWP: Final = WorkloadKind(newp.COUNT_JOINS + newp.PAGE_JOINS, {"article": 9, "comment": 9, "page": 6})
_WORKLOADS: Final = {"twip": TWIP, "newp": NEWP}


class NoWorkloadError(PequodError):
    """A folder without a workload."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path} holds no workload: {reason}; `pequod spark generate` makes one")


@dataclass(frozen=True, slots=True)
class Generated:
    """A workload on disk.

    Shape:
        ``rows`` are base rows; ``requests`` are as above, in no order.
    """

    workload: WorkloadKind
    rows: DataFrame
    requests: DataFrame


def write(spark: SparkSession, settings: Twip | Newp, path: str, edges: DataFrame | None = None) -> None:
    """Generate a workload as Parquet under ``path``, with all that `replay` needs.

    Args:
        edges: Who follows whom in Twip, instead of a drawn graph.

    Raises:
        pyspark.errors.AnalysisException: The path exists already; it is left as it is.
    """
    if isinstance(settings, Twip):
        write_twip(spark, settings, path, edges)
        name, text_bytes, comment_count = "twip", settings.tweet_bytes, 0
    else:
        write_newp(spark, settings, path)
        name, text_bytes, comment_count = "newp", settings.text_bytes, settings.comment_count
    kept = [(name, text_bytes, comment_count)]
    spark.createDataFrame(kept, "name string, text_bytes int, comment_count bigint").write.parquet(f"{path}/settings")


def read(spark: SparkSession, path: str) -> Generated:
    """Return the workload under ``path``.

    Raises:
        NoWorkloadError: The folder holds no workload, or something else.
    """
    try:
        settings = spark.read.parquet(f"{path}/settings").first()
        operations = spark.read.parquet(f"{path}/operations")
        rows = spark.read.parquet(f"{path}/rows").select("key", "value")
    except AnalysisException as error:
        raise NoWorkloadError(path, str(error).splitlines()[0]) from error
    if settings is None or settings["name"] not in _WORKLOADS:
        raise NoWorkloadError(path, f"its settings are {settings}")
    if settings["name"] == "twip":
        requests = _twip(operations, settings["text_bytes"])
    else:
        requests = _newp(operations, settings["text_bytes"], settings["comment_count"])
    return Generated(_WORKLOADS[settings["name"]], rows, requests)


def writes(requests: DataFrame) -> DataFrame:
    """Return the rows that requests write."""
    return requests.where(f.col("last").isNull()).select("key", "value")


def _request(rows: DataFrame, kind: str, home: Column | None, key: Column, **others: Column) -> DataFrame:
    nothing = f.lit(None).cast("binary")
    return rows.select(
        "at",
        f.lit(kind).alias("kind"),
        (f.lit(None) if home is None else home).cast("bigint").alias("home"),
        key.cast("binary").alias("key"),
        others.get("last", nothing).cast("binary").alias("last"),
        others.get("value", nothing).cast("binary").alias("value"),
    )


def _twip(operations: DataFrame, tweet_bytes: int) -> DataFrame:
    began = operations.agg(f.min("tick").alias("first_tick"))
    timed = operations.crossJoin(f.broadcast(began)).withColumn("at", f.col("tick") - f.col("first_tick"))
    user, detail, tick = f.col("user"), f.col("detail"), f.col("tick")
    first, last = rendered(twip.TIMELINE_FIRST, user, detail), rendered(twip.TIMELINE_LAST, user)
    subscription, post = rendered(twip.SUBSCRIPTION, user, detail), rendered(twip.POST, user, tick)

    def of(kind: str) -> DataFrame:
        return timed.where(f.col("kind") == kind)

    return reduce(
        DataFrame.union,
        [
            _request(of("check"), "check", user, first, last=last),
            _request(of("subscribe"), "subscribe", user, subscription, value=f.lit(twip.FOLLOWS)),
            _request(of("post"), "post", None, post, value=text(tick, tweet_bytes)),
        ],
    )


def _newp(operations: DataFrame, text_bytes: int, comment_count: int) -> DataFrame:
    timed = operations.withColumn("at", f.col("session"))
    author, article = f.col("author"), f.col("article")
    first, last = (rendered(bound, author, article) for bound in (newp.PAGE_FIRST, newp.PAGE_LAST))
    comment = f.col("session") + comment_count
    return reduce(
        DataFrame.union,
        [
            _request(timed, "page", author, first, last=last),
            _request(
                timed.where(f.col("voter").isNotNull()),
                "vote",
                None,
                rendered(newp.VOTE, author, article, f.col("voter")),
                value=f.lit(newp.VOTED),
            ),
            _request(
                timed.where(f.col("commenter").isNotNull()),
                "comment",
                author,
                rendered(newp.COMMENT, author, article, comment, f.col("commenter")),
                value=text(comment, text_bytes),
            ),
        ],
    )
