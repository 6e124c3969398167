"""Backfills by Spark: every kind of join, from a server or a copy, while others write; afterwards all is exact."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import orjson
import pytest
from pequod_spark import backfill as backfill_module
from pequod_spark.backfill import Begun, Outcome, Request, SourceDiffersError, backfill
from pequod_spark.connection import Connection
from pequod_spark.plan import read_from
from pyspark.sql import SparkSession

from pequod.client import Client
from pequod.errors import BackfillEndedError, NotBackfillableError, UnknownJoinError
from tests.client.conftest import ServerProcess
from tests.spark.rows import frame_of

JOINS = """
t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:4>;
n|<user> = check s|<user>|<poster> count p|<poster>|<time:4>;
m|<user>|all = check s|<user>|<poster> max p|<poster>|<time:4>;
l|<time:4> = check s|<user>|<poster> copy p|<poster>|<time:4>;
x|<user> = count t|<user>|<time:4>|<poster>;
r|<user>|<kind>|<id> = check a|<user> with open = true copy e|<id> with of = <user>, kind = <kind> as {stars};
k|<user>|<kind> = sum e|<id> with of = <user>, kinds[] = <kind> as stars;
h|<user>|<kind> = avg e|<id> with of = <user>, kinds[] = <kind> as stars;
w|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:4> keep last 3 of <user>;
v|<poster>|<time:4> = copy p|<poster>|<time:4> keep first 9;
g|<user>|<poster> = check s|<user>|<poster> count p|<poster>|<time:4> keep first 2 of <user>
"""
USERS = [f"u{number:02}" for number in range(12)]


def record(random: Random) -> str:
    fields = {"of": random.choice(USERS), "kind": random.choice("xy"), "stars": random.randrange(6)}
    return orjson.dumps(fields | {"kinds": random.sample("xyz", 2)}).decode()


class Served:
    """A server that is filled anew, and a client of it."""

    def __init__(self, process: ServerProcess) -> None:
        self.connection = Connection(process.target)
        self.client = self.connection.client()
        for join in reversed(self.client.joins()):
            self.client.drop_join(join.name)
        self.client.remove_range(b"")
        assert self.client.count() == 0
        self.client.add_join(JOINS)
        random = Random(1)
        self.client.multi_put([(f"s|{user}|{other}", "1") for user in USERS for other in random.sample(USERS, 4)])
        self.client.multi_put([(f"p|{random.choice(USERS)}|{time:04}", f"{time % 7}.5") for time in range(120)])
        self.client.put("s|u99|u98", "1")
        self.client.multi_put([(f"a|{user}", f'{{"open": {random.choice(["true", "false"])}}}') for user in USERS])
        self.client.put("a|u99", "{}")
        self.client.multi_put([(f"e|{number}", record(random)) for number in range(60)])

    def check(self, join: str) -> None:
        """See that nothing has to be computed any more, and that all is as it should be."""
        prefix, end = f"{join}|", "|" if join in "tmrkwg" else ""
        computed = self.client.statistics().joins[join].computed_ranges
        for user in (*USERS, "u99"):
            self.client.scan(prefix=f"{prefix}{user}{end}")
        assert self.client.statistics().joins[join].computed_ranges == computed
        found = self.client.scan(prefix=prefix)
        assert found
        assert self.client.invalidate_join(join)
        assert self.client.scan(prefix=prefix) == found

    def close(self) -> None:
        self.client.close()


@pytest.fixture(scope="module")
def process() -> Iterator[ServerProcess]:
    process = ServerProcess()
    yield process
    process.kill()


@pytest.fixture
def served(process: ServerProcess) -> Iterator[Served]:
    served = Served(process)
    yield served
    served.close()


@contextmanager
def writing(connection: Connection) -> Iterator[None]:
    """Write all the while."""
    stopped = threading.Event()

    def write(client: Client) -> None:
        random, number = Random(2), 0
        while not stopped.is_set():
            number += 1
            client.put(f"p|{random.choice(USERS)}|{number % 400:04}", f"{number % 9}")
            client.remove(f"p|{random.choice(USERS)}|{random.randrange(400):04}")
            if number % 5 == 0:
                client.put(f"s|{random.choice(USERS)}|{random.choice(USERS)}", "1")
                client.remove(f"s|{random.choice(USERS)}|{random.choice(USERS)}")
                client.put(f"e|{random.randrange(70)}", record(random))
                client.remove(f"e|{random.randrange(70)}")
                client.put(f"a|{random.choice(USERS)}", random.choice(['{"open": true}', "{}"]))
            stopped.wait(0.002)

    with connection.client() as client:
        thread = threading.Thread(target=write, args=(client,))
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()


@pytest.mark.parametrize(
    ("join", "level"),
    [
        ("t", None),
        ("n", None),
        ("m", 0),
        ("l", None),
        ("r", None),
        ("k", 0),
        ("h", 0),
        ("w", None),
        ("w", 0),
        ("v", None),
        ("g", None),
    ],
)
def test_what_spark_loads_while_others_write_is_exact(
    spark: SparkSession, served: Served, join: str, level: int | None
) -> None:
    with writing(served.connection):
        request = Request(join, level=level, part_rows=600 if join in "tw" else 1_000_000)
        outcome = backfill(spark, served.connection.client, request)
    assert outcome.ranges
    assert outcome.skipped == outcome.contexts_before == 0
    served.check(join)


def test_few_sources_are_looked_at_once(spark: SparkSession, served: Served) -> None:
    """Also if much may follow from them: each follower of all posts would be 1,500 times as many rows."""
    served.client.multi_put([(f"s|v{number:04}|u{number % 12:02}", "1") for number in range(1500)])
    served.client.multi_put([(f"p|u00|{number:04}", "1") for number in range(1000, 2500)])
    begun = Begun(served.connection.client, Request("t", b"t|v0001|", b"t|v0002}"))
    assert begun.run(spark).ranges == 2
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(f"pequod backfill {begun.status.id:x}")
    assert len(jobs) == 4, "a survey and the load, each with one for the smaller side of its join"


def test_what_is_there_already_is_left_out(spark: SparkSession, served: Served) -> None:
    served.client.scan(prefix="t|u03|")
    first = backfill(spark, served.connection.client, Request("t", b"t|u02|", b"t|u05}"))
    assert (first.contexts_before, first.ranges) == (1, 3)
    second = backfill(spark, served.connection.client, Request("t"))
    assert (second.contexts_before, second.ranges) == (4, len(USERS) + 1 - 4)
    served.check("t")


def test_a_copy_that_is_not_the_same_is_refused(spark: SparkSession, served: Served, tmp_path: Path) -> None:
    base = dict(served.client.scan("p|", "p}")) | dict(served.client.scan("s|", "s}"))
    frame_of(spark, base).write.parquet(str(tmp_path / "base"))
    copy = read_from(spark.read.parquet(str(tmp_path / "base")))
    served.client.put("p|u01|0001", "other")
    before = {one.id for one in served.client.backfills.list()}
    with pytest.raises(SourceDiffersError, match="nothing was loaded"):
        backfill(spark, served.connection.client, Request("t"), read=copy)
    assert served.client.statistics().joins["t"].contexts == 0
    (ended,) = [one for one in served.client.backfills.list() if one.id not in before]
    assert ended.ended == "failed"


def test_a_copy_of_what_the_server_has_is_taken(
    spark: SparkSession, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A part of the posts is looked at first, as if there might be many rows.
    monkeypatch.setattr(backfill_module, "FEW_SOURCES", 0)
    base = dict(served.client.scan("p|", "p}")) | dict(served.client.scan("s|", "s}"))
    outcome = backfill(spark, served.connection.client, Request("t"), read=read_from(frame_of(spark, base)))
    assert isinstance(outcome, Outcome)
    served.check("t")


def test_a_backfill_that_is_cancelled_says_so(spark: SparkSession, served: Served) -> None:
    def cancel(_status: object) -> None:
        # Those that have ended are remembered, but not for ever.
        for one in served.client.backfills.list():
            if not one.ended:
                served.client.backfills.end(one, "cancelled")

    def read(first: bytes, last: bytes | None) -> object:
        cancel(None)
        return read_from(frame_of(spark, {b"s|a|b": b""}))(first, last)

    with pytest.raises(BackfillEndedError, match="cancelled"):
        backfill(spark, served.connection.client, Request("t"), read=read)  # type: ignore[arg-type]
    assert len(served.client.scan(prefix="t|u01|")) > 1


def test_joins_that_spark_cannot_load_are_refused_at_once(spark: SparkSession, served: Served) -> None:
    with pytest.raises(NotBackfillableError, match="joins compute some of its sources"):
        backfill(spark, served.connection.client, Request("x"))
    with pytest.raises(UnknownJoinError):
        backfill(spark, served.connection.client, Request("nobody"))
