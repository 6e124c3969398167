"""Contributions combine in Spark as in the engine."""

from __future__ import annotations

from random import Random

import pytest
from pequod_spark.contributions import combine
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from pequod.engine.joins.aggregates import make_aggregate
from pequod.language.spec import Operator
from tests.spark.rows import frame_of, rows_of

#: What each group is drawn from: carries and borrows, many digits, zeros of all kinds, numbers and text mixed.
ALPHABETS = [
    [b"1", b"-1", b"999999999", b"-999999999", b".000000001", b"-.000000001"],
    [b"9" * 64, b"-" + b"9" * 63, b"." + b"9" * 63, b"0." + b"0" * 61 + b"1", b"+5"],
    [b"0", b"-0", b"+0.0", b"00", b".0", b"0."],
    [b"1", b"1.0", b"01", b"+1", b"-2", b"-2.0", b"-02.50"],
    [b"x", b"", b"-", b".", b"1e3", b"1 ", b"1\n", b"9" * 65, b"\xff", "٣".encode(), b"NaN"],
    [b"x", b"10", b"9", b"-9", b"-10", b"1e3"],
]


def draw_values(random: Random) -> list[bytes]:
    if random.random() < 0.2:
        whole, fraction = random.choice([1, 9, 10, 20, 30]), random.choice([0, 1, 9, 10, 20])
        low, high = -(10 ** (whole + fraction)), 10 ** (whole + fraction)
        numbers = [random.randint(low, high) for _ in range(random.randrange(1, 9))]
        return [b"%d.%0*d" % (number // 10**fraction, fraction + 1, abs(number) % 10**fraction) for number in numbers]
    return random.choices(random.choice(ALPHABETS), k=random.randrange(1, 9))


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("operator", [operator for operator in Operator if operator.gives_value])
def test_contributions_combine_as_in_the_engine(spark: SparkSession, operator: Operator) -> None:
    random = Random(11)
    rows: dict[bytes, bytes] = {}
    expected: dict[bytes, bytes] = {}
    for group in range(400):
        key = b"%03d" % group
        aggregate, state = make_aggregate(operator), None
        for number, value in enumerate(draw_values(random)):
            source_key = bytes((random.choice([0, 0x7C, 0x80, 0xFF]), number))
            rows[key + source_key] = value
            state = aggregate.add(state, source_key, value)
        result = aggregate.result(state)
        if result is not None:
            expected[key] = result
    split = frame_of(spark, rows).select(
        f.substring("key", 1, 3).alias("key"), f.substring("key", 4, 2).alias("source_key"), "value"
    )
    assert rows_of(combine(operator, split, is_unique=False)) == sorted(expected.items())
