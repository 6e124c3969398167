"""What Spark computes is what the naive model evaluates."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from random import Random

import pytest
from pequod_grammar import parse
from pequod_spark.plan import compile_join, compile_scan, read_from
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pequod.engine import Engine, JoinError, JoinSpec
from pequod.engine.testing import NaiveModel, select
from tests.engine import draw
from tests.engine.draw import draw_join, draw_key, draw_range
from tests.engine.draw_records import draw_record_join, draw_value
from tests.engine.joins import CELEBRITY, NEWP
from tests.engine.shapes import SHAPES, draw_row_key, draw_row_value
from tests.spark.rows import frame_of, rows_of


def model_of(joins: str, rows: dict[bytes, bytes]) -> NaiveModel:
    model = NaiveModel()
    for spec in parse(joins):
        model.add(spec)
    for key, value in rows.items():
        model.put(key, value)
    return model


def draw_model(random: Random, draw: Callable[[Random], JoinSpec] = draw_join) -> NaiveModel:
    model = NaiveModel()
    engine = Engine()
    wanted = random.choice([1, 2, 3])
    while len(model.joins) < wanted:
        spec = draw(random)
        try:
            engine.add_joins([spec])
        except JoinError:
            continue
        model.add(spec)
    for _ in range(random.choice([5, 20, 40])):
        key = draw_key(random, model.joins)
        if not model.computes(key):
            model.put(key, draw_value(random, model.joins))
    return model


@pytest.mark.parametrize("seed", range(10))
def test_random_joins_give_what_the_model_gives(spark: SparkSession, seed: int) -> None:
    random = Random(seed)
    compare_with_model(spark, random, draw_model(random))


@pytest.mark.parametrize("seed", range(6))
def test_random_joins_over_records_give_what_the_model_gives(spark: SparkSession, seed: int) -> None:
    random = Random(seed)
    compare_with_model(spark, random, draw_model(random, draw_record_join))


@pytest.mark.parametrize("seed", range(4))
def test_random_joins_that_keep_rows_give_what_the_model_gives(
    spark: SparkSession, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draw, "KEEP_NONE", 0)
    random = Random(seed)
    compare_with_model(spark, random, draw_model(random))


@pytest.mark.parametrize("shape", ["by elements", "of computed rows", "of each other"])
def test_values_with_fields_of_several_sources_are_those_of_the_model(spark: SparkSession, shape: str) -> None:
    random = Random(shape)
    rows = {draw_row_key(random): draw_row_value(random) for _ in range(60)}
    model = model_of(SHAPES[shape], rows)
    found = rows_of(compile_scan(model.joins, read_from(frame_of(spark, rows))))
    assert found == model.scan(b"", None)
    assert any(b"null" in value for key, value in found if key.startswith(b"o|")) or shape == "of computed rows"


def compare_with_model(spark: SparkSession, random: Random, model: NaiveModel) -> None:
    first, last = draw_range(random, model.joins)
    read = read_from(frame_of(spark, model.base))
    plans = [compile_join(spec, read, first, last, installed=model.joins) for spec in model.joins]
    plans.append(compile_scan(model.joins, read))
    expected = [select(rows, first, last) for rows in model.evaluate_joins()]
    expected.append(model.scan(b"", None))
    numbered = [plan.withColumn("plan", f.lit(number)) for number, plan in enumerate(plans)]
    found = reduce(DataFrame.union, numbered).toArrow().to_pylist()
    for number, rows in enumerate(expected):
        assert sorted((row["key"], row["value"]) for row in found if row["plan"] == number) == rows


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("joins", [CELEBRITY, NEWP], ids=["twip", "newp"])
def test_twip_and_newp_from_parquet_give_what_the_engine_gives(spark: SparkSession, tmp_path: Path, joins: str) -> None:
    random = Random(7)
    specs = parse(joins)
    engine = Engine()
    engine.add_joins(specs)
    users = [b"ann", b"bob", b"liz", "zoë".encode()]
    rows: dict[bytes, bytes] = {}
    for _ in range(300):
        a, b, c = random.choices(users, k=3)
        time, number = b"%04d" % random.randrange(1000), b"%d" % random.randrange(4)
        rows[b"s|%b|%b" % (a, b)] = b"1"
        rows[random.choice([b"p", b"cp"]) + b"|%b|%b" % (a, time)] = b"tweet of " + time
        rows[b"article|%b|%b" % (a, number)] = b"text"
        rows[b"vote|%b|%b|%b" % (a, number, b)] = b""
        rows[b"comment|%b|%b|%b|%b" % (a, number, time, c)] = b"agreed"
    for key, value in rows.items():
        engine.put(key, value)
    frame_of(spark, rows).write.parquet(str(tmp_path / "rows"))
    read = read_from(spark.read.parquet(str(tmp_path / "rows")))
    scanned = engine.scan(b"", None, now=0.0)
    assert rows_of(compile_scan(specs, read)) == list(zip(scanned.keys, scanned.values, strict=True))


def test_a_pattern_without_slots_is_a_source_and_an_output(spark: SparkSession) -> None:
    model = model_of(
        """
        total|all = check open|now sum v|<x>;
        shut|all = check shut|now sum v|<x>;
        any|<x> = check open|now copy v|<x>;
        """,
        {b"open|now": b"", b"v|a": b"1", b"v|b": b"2"},
    )
    read = read_from(frame_of(spark, model.base))
    assert rows_of(compile_scan(model.joins, read)) == model.scan(b"", None)
    assert rows_of(compile_scan(model.joins, read, b"t", b"u")) == [(b"total|all", b"3")]


def test_values_themselves_are_fields_of_base_rows_and_of_computed_ones(spark: SparkSession) -> None:
    rows = {
        b"vote|%s|%d" % (who, number): b"1" for who, count in ((b"ann", 2), (b"bob", 11)) for number in range(count)
    }
    values = [b"7", b'"7"', b"7.50", b"null", b"{}", b"Hi"]
    model = model_of(
        """
        karma|<who> = count vote|<who>|<id>;
        top|<points:i64>|<who> = copy karma|<who> with . = <points>;
        known|<who> = copy karma|<who> with . >= 10 as {karma: .};
        by|<v>|<id> = copy x|<id> with . = <v> as .;
        """,
        rows | {b"x|%d" % number: value for number, value in enumerate(values)},
    )
    read = read_from(frame_of(spark, model.base))
    found = rows_of(compile_scan(model.joins, read))
    assert found == model.scan(b"", None)
    assert [key for key, _ in found if key.startswith(b"top|8000000000000002|")] == [b"top|8000000000000002|ann"]
    assert {key for key, _ in found if key.startswith((b"by|", b"known|"))} == {
        b"by|7.5|2",
        b"by|7|0",
        b"by|7|1",
        b"known|bob",
    }


def test_slots_that_differ_in_case_are_two(spark: SparkSession) -> None:
    model = model_of("t|<x>|<X> = check s|<x>|<X> copy p|<X>", {b"s|a|b": b"", b"p|b": b"1", b"p|a": b"2"})
    read = read_from(frame_of(spark, model.base))
    assert rows_of(compile_join(model.joins[0], read)) == [(b"t|a|b", b"1")]


def test_of_two_joins_that_compute_a_key_the_earlier_shows(spark: SparkSession) -> None:
    model = model_of("t|<x> = copy a|<x>; t|<x> = copy b|<x>", {b"a|1": b"A", b"b|1": b"B", b"b|2": b"B"})
    read = read_from(frame_of(spark, model.base))
    assert rows_of(compile_scan(model.joins, read, b"t|", b"t}")) == [(b"t|1", b"A"), (b"t|2", b"B")]
    assert rows_of(compile_scan(model.joins[::-1], read, b"t|", b"t}")) == [(b"t|1", b"B"), (b"t|2", b"B")]
    assert rows_of(compile_join(model.joins[1], read, installed=model.joins)) == [(b"t|1", b"B"), (b"t|2", b"B")]


def test_computed_rows_among_those_read_are_ignored(spark: SparkSession) -> None:
    """So a server's scan may be what is read: its computed rows may be older than its base rows."""
    specs = parse("karma|<a> = count vote|<a>|<v>; page|<a>|k = copy karma|<a>")
    rows = {b"vote|ann|1": b"", b"karma|ann": b"7", b"karma|bob": b"1", b"page|bob|k": b"1", b"page|bob|x": b"base"}
    read = read_from(frame_of(spark, rows))
    assert rows_of(compile_scan(specs, read)) == [
        (b"karma|ann", b"1"),
        (b"page|ann|k", b"1"),
        (b"page|bob|x", b"base"),
        (b"vote|ann|1", b""),
    ]


def test_a_range_of_outputs_reads_no_more_than_what_contributes(spark: SparkSession) -> None:
    (spec,) = parse("t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>")
    rows = {b"s|ann|bob": b"1", b"s|liz|bob": b"1", b"p|bob|0100": b"Hi", b"p|bob|0200": b"again"}
    asked: list[tuple[bytes, bytes | None]] = []

    def read(first: bytes, last: bytes | None) -> DataFrame:
        asked.append((first, last))
        return frame_of(spark, rows)

    assert rows_of(compile_join(spec, read, b"t|ann|0150", b"t|ann|0300")) == [(b"t|ann|0200|bob", b"again")]
    assert asked == [(b"s|ann|", b"s|ann}"), (b"p|", b"p}")]


def test_no_range_of_outputs_is_no_rows(spark: SparkSession) -> None:
    (spec,) = parse("t|<x> = copy a|<x>")
    read = read_from(frame_of(spark, {b"a|1": b"", b"a|2": b""}))
    for first, last in [(b"t|2", b"t|2"), (b"t|2", b"t|1"), (b"u", None), (b"a", b"b"), (b"", b"")]:
        assert rows_of(compile_join(spec, read, first, last)) == []


def test_joins_that_read_their_own_output_are_refused(spark: SparkSession) -> None:
    specs = [*parse("t|<x> = copy u|<x>"), *parse("u|<x> = copy t|<x>")]
    with pytest.raises(JoinError, match="would read its own output"):
        compile_scan(specs, read_from(frame_of(spark, {})))
