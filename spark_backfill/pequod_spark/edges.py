"""Follower graphs from files."""

from __future__ import annotations

from pequod_workloads.twip import USERS_MAX
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pequod_spark.twip import WorkloadError


def read_edges(spark: SparkSession, path: str) -> DataFrame:
    """Read who follows whom: columns ``user`` and ``poster``, each pair once, without users who follow themselves.

    Args:
        path: Parquet, whose first two columns are used, or text with a line ``user<TAB>poster`` for each pair (spaces
            may separate them too, and files may be compressed); lines that begin with ``#`` are comments.

    Raises:
        WorkloadError: The file does not exist, or does not hold such pairs.
    """
    try:
        if path.rstrip("/").endswith(".parquet"):
            table = spark.read.parquet(path)
            pairs = table.select(*[f.col(name).cast("string") for name in table.columns[:2]]).toDF("user", "poster")
        else:
            cells = f.split(f.trim("value"), r"\s+")
            lines = spark.read.text(path).where("trim(value) <> '' and not startswith(value, '#')")
            pairs = lines.select(cells[0].alias("user"), f.get(cells, f.lit(1)).alias("poster"))
    except AnalysisException as error:
        raise WorkloadError(f"there is no graph at {path!r}: {str(error).splitlines()[0]}") from error
    digits = r"\A[0-9]{1,8}\z"
    bad = pairs.where(
        ~(f.coalesce(f.col("user").rlike(digits) & f.col("poster").rlike(digits), f.lit(col=False)))
    ).first()
    if bad is not None:
        raise WorkloadError(
            f"{path!r} is no graph: a line must be user<TAB>poster, numbers below {USERS_MAX}, not {tuple(bad)}"
        )
    numbers = pairs.select(f.col("user").cast("bigint").alias("user"), f.col("poster").cast("bigint").alias("poster"))
    return numbers.where("user <> poster").distinct()


def user_count(graph: DataFrame) -> int:
    """Return the number of users in a graph: the highest user number plus one.

    Raises:
        WorkloadError: The graph is empty.
    """
    highest = graph.agg(f.max(f.greatest("user", "poster"))).first()
    if highest is None or highest[0] is None:
        raise WorkloadError("the graph is empty")
    found: int = highest[0] + 1
    return found
