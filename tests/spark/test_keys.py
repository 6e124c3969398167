"""Keys are taken apart in Spark as in the engine, whatever bytes they are of."""

from __future__ import annotations

from random import Random

from pequod_spark.keys import as_text, put_together, take_apart
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from pequod.language.patterns import compile_matcher
from pequod.language.spec import Pattern, Slot
from tests.engine.draw import draw_join, draw_key
from tests.spark.rows import frame_of


def test_patterns_match_what_the_engine_matches(spark: SparkSession) -> None:
    random = Random(5)
    specs = [draw_join(random) for _ in range(12)]
    patterns = [
        *dict.fromkeys(source.pattern for spec in specs for source in spec.sources),
        Pattern((b"s|.\\E$^[\n", Slot("x", 2), Slot("y"), b"|", Slot("x", 2), b"\xff\x00")),
        Pattern((b"s|", Slot("x", 1), b"\n", Slot("x", 1))),
        Pattern((b"s|all",)),
    ]
    keys = [draw_key(random, specs) for _ in range(400)]
    keys += [b"s|.\\E$^[\nab\xe9\x80|ab\xff\x00", b"s|\n\n\n", b"s|\xe9\n\xe9", b"s|all", b"s|all\n", b"s|al"]
    columns = [f.col("key")]
    for number, pattern in enumerate(patterns):
        taken = take_apart(pattern, f.col("key"))
        values = f.array(*[taken.slots[name] for name in compile_matcher(pattern).names]).cast("array<binary>")
        columns.append(f.when(taken.matches, values).alias(f"p{number}"))
    table = frame_of(spark, dict.fromkeys(keys, b"")).select(*columns).toArrow()
    matched = 0
    for number, pattern in enumerate(patterns):
        match = compile_matcher(pattern).match
        for key, values in zip(table["key"].to_pylist(), table[f"p{number}"].to_pylist(), strict=True):
            expected = match(key)
            assert values == (None if expected is None else list(expected.groups())), (str(pattern), key)
            matched += expected is not None
    assert matched > 100


def test_every_byte_is_one_character_in_the_same_order(spark: SparkSession) -> None:
    rows = {bytes((a, b)): b"" for a in range(256) for b in (0, 0x7F, 0x80, 0xFF)}
    frame = frame_of(spark, rows)
    for order in ("key", as_text(f.col("key"))):
        assert [bytes(row.key) for row in frame.orderBy(order).collect()] == sorted(rows)
    built = put_together((b"\xff|", Slot("x"), b"\x00"), {"x": f.col("key")})
    assert {bytes(row.built) for row in frame.select(built.alias("built")).collect()} == {
        b"\xff|" + key + b"\x00" for key in rows
    }
