"""Where pieces are cut: by all keys, or by a part of them where there are many."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pequod_grammar import parse
from pequod_spark import cutting
from pequod_spark.cutting import Contexts, survey
from pequod_spark.pieces import compile_pieces
from pequod_spark.plan import contributes_once, read_from
from pyspark.sql import DataFrame, SparkSession

USERS, POSTS = 40, 600
BASE = [f"s|{user:02}|{(user + n) % USERS:02}" for user in range(USERS) for n in range(1, 6)]
BASE += [f"p|{number % USERS:02}|{number:04}" for number in range(POSTS)]
TIMELINE = "t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"
ROWS = 5 * POSTS


@pytest.mark.parametrize(("enough", "is_sample"), [(50, True), (100_000, False)])
def test_a_part_of_the_posts_tells_how_much_there_is_and_where_to_cut(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, enough: int, is_sample: bool
) -> None:
    monkeypatch.setattr(cutting, "_ENOUGH", enough)
    (timeline,) = parse(TIMELINE)
    frame = spark.createDataFrame(pa.table({"key": [key.encode() for key in BASE], "value": [b"1"] * len(BASE)}))
    asked = []

    def pieces(one_of: int) -> DataFrame:
        asked.append(one_of)
        return compile_pieces(timeline, 1, read_from(frame), b"t|", b"t}", one_of=one_of)

    found = survey(pieces, 1000, can_sample=contributes_once(timeline))
    assert asked == ([16] if is_sample else [16, 1])
    assert found.piece_count - found.row_count == USERS, "contexts are counted one by one"
    assert found.row_count == pytest.approx(ROWS, rel=0.5 if is_sample else 0)
    splits = Contexts(timeline, 1).splits(found, b"t|", b"t}", 1000)
    assert len(splits) == -(-found.piece_count // 1000) - 1
    sizes = [sum(first <= f"t|{user:02}|".encode() < last for user in range(USERS)) for first, last in _parts(splits)]
    assert max(sizes) <= 2 * USERS / len(sizes), "parts are of about equal sizes"


def _parts(splits: list[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip([b"t|", *splits], [*splits, b"t}"], strict=True))
