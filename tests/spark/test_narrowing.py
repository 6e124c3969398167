"""Options narrow a read, exactly; conditions do not, so that no scan meets what another one asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, StructField, StructType
from pyspark_pequod import DefaultSource
from pyspark_pequod.narrowing import key_ranges
from pyspark_pequod.options import OptionError, key_pattern
from pyspark_pequod.reader import ReadPart

from pequod.client import Client
from tests.spark.served import served

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
USERS = ("ann", "bob", "liz")
PATTERN = "p|<user>|<time:4>"
Load = Callable[..., DataFrame]


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    """A server with ten posts of each of three users."""
    with served() as target:
        with Client(target) as client:
            client.multi_put({f"p|{user}|{number:04d}": str(number) for user in USERS for number in range(10)})
            client.multi_put({"p|bobby|0003": "3", "q|ann|0001": "1"})
        yield target


@pytest.fixture(params=["true", "false"])
def load(spark: SparkSession, target: str, request: pytest.FixtureRequest) -> Iterator[Load]:
    """Each call is a `load()` of its own, with Spark's pushdown of filters on and off."""

    def loaded(**options: str) -> DataFrame:
        given = {"target": target, "pattern": PATTERN, "partitions": "2", "prefix": "p|", **options}
        return spark.read.format("pequod").options(**given).load()

    before = spark.conf.get(PUSHDOWN)
    spark.conf.set(PUSHDOWN, request.param)
    yield loaded
    assert before is not None
    spark.conf.set(PUSHDOWN, before)


def test_a_filter_leaves_the_next_scan_alone(load: Load) -> None:
    posts = load()
    assert posts.where("user = 'ann'").count() == 10
    assert posts.count() == 31
    assert posts.where("user = 'bob'").count() == 10
    assert posts.where("user = 'liz' and time >= '0005'").count() == 5


def test_scans_of_one_query_leave_each_other_alone(load: Load) -> None:
    posts = load()
    ann, bob = posts.where("user = 'ann'"), posts.where("user = 'bob'")
    assert ann.union(bob).count() == 20
    assert ann.join(bob, "time").count() == 10
    assert posts.where("user = 'ann' or user = 'bob'").count() == 20
    assert posts.where("user in ('ann', 'liz') and not user <=> 'liz'").count() == 10


def test_scans_of_a_view_leave_each_other_alone(load: Load, spark: SparkSession) -> None:
    load().createOrReplaceTempView("posts")
    one, all_, above = (
        spark.sql(f"select count(*) from posts {condition}").collect()[0][0]
        for condition in (
            "where user = 'ann'",
            "",
            "where user = 'bob' and time > (select min(time) from posts where user = 'ann')",
        )
    )
    assert (one, all_, above) == (10, 31, 9)
    same = "select 1 from posts o where o.user = 'bob' and o.time = p.time"
    assert spark.sql(f"select count(*) from posts p where user = 'ann' and exists ({same})").collect()[0][0] == 10


def test_a_filter_of_what_is_cached_leaves_it_whole(load: Load) -> None:
    posts = load()
    filtered = posts.where("user = 'ann'").cache()
    try:
        assert (filtered.count(), posts.count()) == (10, 31)
        posts.cache()
        assert (posts.where("user = 'bob'").count(), posts.count()) == (10, 31)
    finally:
        posts.unpersist()
        filtered.unpersist()


def test_options_narrow_what_is_read(load: Load, spark: SparkSession, target: str) -> None:
    """A filter of each is a filter of its range alone."""
    users = {"where.user": '["ann", "liz"]'}
    assert load(**users).count() == 20
    assert load(**users).where("user = 'liz'").count() == 10
    assert load(**users, **{"where.time": "0003"}).count() == 2
    assert load(**{"where.user": "bob", "where.time.first": "0002", "where.time.last": "0004"}).count() == 2
    assert load(keys_only="true").columns == ["key", "user", "time"]
    reading = spark.read.format("pequod").option("target", target)
    assert reading.load("p|bob|").count() == 10
    assert reading.load(["p|ann|", "q|"]).count() == 11
    options = f"target '{target}', pattern '{PATTERN}', `where.user` 'ann'"
    spark.sql(f"create or replace temporary view ann using pequod options ({options})")
    assert spark.sql("select * from ann").count() == 10


TEXT = st.text(alphabet="ab}", min_size=1, max_size=2)
PATTERNS = {
    "p|<a>|<b>": r"p\|([^|]+)\|([^|]+)",
    "p|<a:2>|<b:2>": r"p\|(..)\|(..)",
    "p|<a:1><b:2>|c": r"p\|(.)(..)\|c",
    "p|<a>|<a>|<b:1>": r"p\|([^|]+)\|\1\|(.)",
    "<a>|<b:2>": r"([^|]+)\|(..)",
}


@given(
    st.sampled_from(sorted(PATTERNS)),
    st.lists(TEXT, max_size=3),
    st.one_of(st.none(), st.lists(TEXT, max_size=3), st.tuples(TEXT, TEXT)),
    st.lists(st.text(alphabet="ab|}c", max_size=8).flatmap(lambda tail: st.sampled_from([tail, "p|" + tail]))),
)
def test_the_ranges_hold_the_keys_whose_slots_are_as_the_options_say(
    text: str, a: list[str], b: list[str] | tuple[str, str] | None, keys: list[str]
) -> None:
    options = {"pattern": text, "where.A": json.dumps(a)}
    if isinstance(b, tuple):
        options |= {"where.b.first": b[0], "where.b.last": b[1]}
    elif b is not None:
        options["where.b"] = json.dumps(b)
    try:
        ranges = key_ranges(options, key_pattern(options))
    except OptionError as error:
        assert "bytes" in error.reason or "only if it has a width" in error.reason
        return
    assert all(last is None or first < last for first, last in ranges)
    assert all(last is not None and last < first for (_, last), (first, _) in pairwise(ranges))
    for key in keys:
        match = re.fullmatch(PATTERNS[text], key)
        if match is None:
            continue
        is_meant = match[1] in a and (b is None or (b[0] <= match[2] < b[1] if isinstance(b, tuple) else match[2] in b))
        is_read = any(first <= key.encode() and (last is None or key.encode() < last) for first, last in ranges)
        assert is_read == is_meant


NUMBERS = json.dumps([str(number) for number in range(400)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"where.user": "ann"}, "slots need the option `pattern`"),
        ({"pattern": PATTERN, "where.usr": "ann"}, "the pattern has no such slot; it has user, time"),
        ({"pattern": PATTERN, "where.time": "0001"}, "name the values of each slot before time"),
        ({"pattern": PATTERN, "where.user": "ann", "where.user.first": "a"}, "of user either values or bounds"),
        ({"pattern": PATTERN, "where.user.first": "a"}, "only if it has a width"),
        ({"pattern": PATTERN, "where.user": "a|b"}, "is no value of a slot"),
        ({"pattern": PATTERN, "where.user": "ann", "where.time": "1"}, "is not 4 bytes long; fill numbers up"),
        ({"pattern": PATTERN, "where.user": "ann", "where.time.last": "12345"}, "longer than the slot's 4 bytes"),
        ({"pattern": PATTERN, "where.user": "[ann]"}, r"is no list of texts, such as \[\"ann\", \"bob\"\]"),
        ({"pattern": PATTERN, "where.user": "[1]"}, "is no list of texts"),
        ({"prefix": "p|", "path": "q|"}, r"in the option or in load\(\), not in both"),
        ({"path": "p|", "first": "p|a"}, "name the range by prefix, or by first and last"),
        ({"pattern": "p|<a>|<b>", "where.a": NUMBERS, "where.b": NUMBERS}, "more than 100,000 ranges"),
        ({"keys_only": "true"}, "the schema names `value`"),
        ({"rows_per_s": "10"}, "a read takes none; it is for writes"),
    ],
)  # fmt: skip
def test_an_option_that_narrows_nothing_is_refused(options: dict[str, str], message: str) -> None:
    schema = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])
    with pytest.raises(OptionError, match=message):
        DefaultSource(options).reader(schema)


@pytest.mark.parametrize("option", ["prefix", "path", "first", "where.user", "keys_only"])
def test_a_write_takes_no_range(option: str) -> None:
    schema = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])
    with pytest.raises(OptionError, match="a write takes none: its rows go where `key`"):
        DefaultSource({option: "p|"}).writer(schema, overwrite=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prefix": json.dumps([f"{number}|" for number in range(101)])}, "a stream follows 1 to 100 ranges"),
        ({"maxRowsPerTrigger": "0"}, "option 'maxRowsPerTrigger': '0' is no whole number"),
        ({"maxBytesPerTriger": "9"}, "did you mean 'maxBytesPerTrigger'?"),
        ({"rows_per_s": "9"}, "a read takes none; it is for writes"),
    ],
)
def test_what_a_stream_cannot_do_is_refused(options: dict[str, str], message: str) -> None:
    schema = StructType([StructField("key", BinaryType())])
    with pytest.raises(OptionError, match=message):
        DefaultSource(options).simpleStreamReader(schema)


def test_the_limits_of_a_stream_are_of_no_other_use() -> None:
    schema = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])
    with pytest.raises(OptionError, match="a batch read takes none; it is for streams that are read"):
        DefaultSource({"maxRowsPerTrigger": "9"}).reader(schema)
    with pytest.raises(OptionError, match="a write takes none; it is for streams that are read"):
        DefaultSource({"maxbytespertrigger": "9"}).writer(schema, overwrite=False)


def test_many_ranges_are_read_by_few_tasks(target: str) -> None:
    schema = StructType([StructField("key", BinaryType())])
    options = {"target": target, "pattern": PATTERN, "partitions": "3"}

    def parts(users: list[str]) -> list[ReadPart]:
        return DefaultSource({**options, "where.user": json.dumps(users)}).reader(schema).partitions()

    many = parts([f"{number:03d}" for number in range(100)])
    assert [len(part.ranges) for part in many] == [33, 33, 34]
    assert [bounds for part in many for bounds in part.ranges] == [
        (b"p|%03d|" % number, b"p|%03d}" % number) for number in range(100)
    ]
    assert len(parts(["ann"])) == 3
    assert [part.ranges for part in parts([])] == [()]
