"""Newp's rows and sessions keep to the model, and the same seed gives the same."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from pequod_spark.newp import Newp, operations, rows
from pequod_spark.twip import WorkloadError
from pyspark.sql import SparkSession

from tests.spark.rows import rows_of

NEWP = Newp(article_count=50, session_count=2_000, vote_percent=25, seed=3, text_bytes=30)


@pytest.fixture(scope="module")
def written(newp_path: Path) -> Path:
    return newp_path


def sessions_of(spark: SparkSession, path: Path) -> list[tuple[int | None, ...]]:
    return sorted(tuple(row) for row in spark.read.parquet(str(path / "operations")).collect())


def test_the_population_is_that_of_the_model(spark: SparkSession, written: Path) -> None:
    found = rows_of(spark.read.parquet(str(written / "rows")))
    assert all(one[0] < other[0] for one, other in pairwise(found)), "no key twice"
    tables: dict[bytes, list[list[int]]] = {}
    for key, value in found:
        table, *numbers = key.split(b"|")
        assert all(len(number) == 8 for number in numbers)
        assert value == b"1" if table == b"vote" else len(value) == 30
        tables.setdefault(table, []).append([int(number) for number in numbers])
    articles, comments, votes = tables[b"article"], tables[b"comment"], tables[b"vote"]
    authors = {article: author for author, article in articles}
    assert sorted(authors) == list(range(50))
    assert set(authors.values()) <= set(range(25))
    assert sorted(comment for *_, comment, _ in comments) == list(range(500))
    # 1,000 draws of 50 articles times 25 voters: some are the same.
    assert 600 < len(votes) < 1_000
    for author, article, *_, user in comments + votes:
        assert authors[article] == author
        assert 0 <= user < 25


def test_sessions_read_vote_and_comment_as_often_as_the_model_says(spark: SparkSession, written: Path) -> None:
    found = sessions_of(spark, written)
    assert [session for session, *_ in found] == list(range(2_000))
    assert abs(sum(voter is not None for *_, voter, _ in found) - 500) < 5 * 375**0.5
    assert abs(sum(commenter is not None for *_, commenter in found) - 20) < 5 * 20**0.5
    assert max(Counter(article for _, _, article, _, _ in found).values()) < 2 * 2_000 / 50
    keys = [key.split(b"|") for key, _ in rows_of(spark.read.parquet(str(written / "rows")))]
    authors = {int(key[2]): int(key[1]) for key in keys if key[0] == b"article"}
    assert all(authors[article] == author for _, author, article, _, _ in found if article is not None)


def test_the_same_seed_gives_the_same_rows_however_partitioned(spark: SparkSession, written: Path) -> None:
    before = sessions_of(spark, written), rows_of(spark.read.parquet(str(written / "rows")))
    spark.conf.set("spark.sql.leafNodeDefaultParallelism", "5")
    try:
        again = sorted(tuple(row) for row in operations(spark, NEWP).collect()), rows_of(rows(spark, NEWP))
    finally:
        spark.conf.unset("spark.sql.leafNodeDefaultParallelism")
    assert again == before
    other = Newp(article_count=50, session_count=0, vote_percent=25, seed=4, text_bytes=30)
    assert rows_of(rows(spark, other)) != before[1]


def test_nobody_and_everybody_votes(spark: SparkSession) -> None:
    for percent, voters in ((0, 0), (100, 50)):
        newp = Newp(article_count=3, session_count=50, vote_percent=percent)
        assert operations(spark, newp).where("voter is not null").count() == voters


def test_numbers_that_make_no_newp_are_refused() -> None:
    with pytest.raises(WorkloadError, match="at least one article, not 0"):
        Newp(article_count=0, session_count=1)
    with pytest.raises(WorkloadError, match="sessions cannot be negative"):
        Newp(article_count=1, session_count=-1)
    with pytest.raises(WorkloadError, match="0 to 100 can vote, not 101"):
        Newp(article_count=1, session_count=1, vote_percent=101)
    with pytest.raises(WorkloadError, match="cannot be more than 100000000 together"):
        Newp(article_count=10**7, session_count=1)
    with pytest.raises(WorkloadError, match="at least one byte, not 0"):
        Newp(article_count=1, session_count=1, text_bytes=0)
