"""Newp's articles, comments, votes and sessions as DataFrames: drawn from one seed, whatever the partitioning.

    rows         key, value                                    the base rows of the start, in order of key:
                                                               article|<author:8>|<id:8>
                                                               comment|<author:8>|<id:8>|<cid:8>|<commenter:8>
                                                               vote|<author:8>|<id:8>|<voter:8>
    operations   session, author, article, voter, commenter    who reads which article, votes or comments on it; null
    where nobody does

Comment j of the start has the id j; the comment of session k has the id k plus the number of comments at the start.

Source:
    Paper §2.3 and §5.4.
"""

from __future__ import annotations

from dataclasses import dataclass

from pequod_workloads import newp as model
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from pequod_spark.draws import uniform, uniform_below
from pequod_spark.texts import rendered, text
from pequod_spark.twip import WorkloadError


@dataclass(frozen=True, slots=True)
class Newp:
    """A Newp to generate.

    Raises:
        WorkloadError: A number is out of its range.
    """

    article_count: int
    session_count: int
    #: Of a hundred sessions, the number that vote.
    vote_percent: float = 10.0
    seed: int = 1
    text_bytes: int = model.TEXT_BYTES

    def __post_init__(self) -> None:
        if self.article_count < 1:
            raise WorkloadError(f"Newp needs at least one article, not {self.article_count}")
        if self.session_count < 0:
            raise WorkloadError("the number of sessions cannot be negative")
        if self.article_count * model.COMMENTS_PER_ARTICLE + self.session_count > model.IDS_MAX:
            raise WorkloadError(
                f"ten comments an article and the sessions cannot be more than {model.IDS_MAX} together"
            )
        if not 0 <= self.vote_percent <= 100:
            raise WorkloadError(f"of a hundred sessions, 0 to 100 can vote, not {self.vote_percent}")
        if self.text_bytes < 1:
            raise WorkloadError(f"a text has at least one byte, not {self.text_bytes}")

    @property
    def user_count(self) -> int:
        """Return the number of users who write, comment and vote."""
        return model.user_count(self.article_count)

    @property
    def comment_count(self) -> int:
        """Return the number of comments at the start."""
        return self.article_count * model.COMMENTS_PER_ARTICLE


def rows(spark: SparkSession, newp: Newp) -> DataFrame:
    """Return the base rows of the start, each key once: two equal votes count as one."""
    users, articles = newp.user_count, newp.article_count
    article = f.col("article")
    written = spark.range(articles).select(f.col("id").alias("article"))
    comments = spark.range(newp.comment_count).select(
        uniform_below(articles, newp.seed, "commented", "id").alias("article"),
        f.col("id").alias("comment"),
        uniform_below(users, newp.seed, "commenter", "id").alias("commenter"),
    )
    votes = spark.range(articles * model.VOTES_PER_ARTICLE).select(
        uniform_below(articles, newp.seed, "voted", "id").alias("article"),
        uniform_below(users, newp.seed, "voter", "id").alias("voter"),
    )
    author = _author(newp)
    parts = [
        written.select(
            rendered(model.ARTICLE, author, article).alias("key"), text(article, newp.text_bytes).alias("value")
        ),
        comments.select(
            rendered(model.COMMENT, author, article, f.col("comment"), f.col("commenter")).alias("key"),
            text(f.col("comment"), newp.text_bytes).alias("value"),
        ),
        votes.distinct().select(
            rendered(model.VOTE, author, article, f.col("voter")).alias("key"), f.lit(model.VOTED).alias("value")
        ),
    ]
    return parts[0].union(parts[1]).union(parts[2])


def operations(spark: SparkSession, newp: Newp) -> DataFrame:
    """Return all sessions: ``session``, ``author``, ``article``, ``voter``, ``commenter``."""
    sessions = spark.range(newp.session_count).select(
        f.col("id").alias("session"), uniform_below(newp.article_count, newp.seed, "read", "id").alias("article")
    )

    def sometimes(percent: float, what: str) -> Column:
        who = uniform_below(newp.user_count, newp.seed, f"{what}: who", "session")
        return f.when(uniform(newp.seed, what, "session") * 100 < percent, who)

    return sessions.select(
        "session",
        _author(newp).alias("author"),
        "article",
        sometimes(newp.vote_percent, "session votes").alias("voter"),
        sometimes(100 * model.COMMENT_PART, "session comments").alias("commenter"),
    )


def write_newp(spark: SparkSession, newp: Newp, path: str) -> None:
    """Write ``rows`` (in key order) and ``operations`` (in order) as Parquet under ``path``.

    Raises:
        pyspark.errors.AnalysisException: The path exists already; it is left as it is.
    """
    rows(spark, newp).sort("key").write.parquet(f"{path}/rows")
    operations(spark, newp).sort("session").write.parquet(f"{path}/operations")


def _author(newp: Newp) -> Column:
    """Return the author of an ``article``."""
    return uniform_below(newp.user_count, newp.seed, "author", "article")
