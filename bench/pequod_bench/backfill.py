"""The benchmark of backfills: how fast Spark materialises timelines, and what a server gains that is filled with them.

    Spark alone    subscriptions and posts, from Parquet, to sorted timeline rows, which are then dropped
    warm           a server, filled by `pequod_spark.backfill` while a client writes: first checks of some users
    exact          after the writes, its timelines are what it computes anew, all or 2,000 of them
    cold           the same server without any timeline: the same checks, computed when they are asked for

Spark is warm when it is timed: it has done the same with a hundredth of the posts. A check asks for what was posted
lately, as at a login; the users who check do not change subscriptions during the backfill. Checks go in batches, so
that the time of a round trip, which is the same warm and cold, does not hide what the server does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pequod_grammar import parse
from pequod_spark.backfill import Request, backfill
from pequod_spark.connection import Connection
from pequod_spark.cutting import PART_ROWS, Contexts, survey
from pequod_spark.pieces import compile_pieces
from pequod_spark.plan import read_from
from pequod_spark.ranges import sorted_ranges
from pequod_workloads import twip as keys
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f
from rich.console import Console

from pequod.client import Client
from pequod.errors import PequodError
from pequod_bench.report.printed import Printed, print_rows
from pequod_bench.settings import BackfillSettings
from pequod_bench.systems.pequod_results import count_rows
from pequod_bench.systems.server import stand_back, started_server, usage

#: Users whose first checks are timed, and checks in a batch.
CHECKED, CHECKS = 5_000, 250
#: Writes in a batch at most: enough to catch up where the server is busy, few enough not to make it so.
WRITES: Final = 250
#: Timelines that are compared in the end, and at a time.
COMPARED, BATCH = 2_000, 50
#: One of these many posts is there when Spark warms up.
WARM_UP: Final = 100
#: Rows that a check returns on average, as many as a login of Twip does.
ROWS_PER_CHECK: Final = 5
_LOAD_BATCH: Final = 10_000

#: Keys and values, in key order.
BaseRows = list[tuple[bytes, bytes]]


class WrongBackfillError(PequodError):
    """A timeline after a backfill is not what the server computes anew."""


@dataclass(frozen=True, slots=True)
class BackfillFigures(Printed):
    """What was measured; rows are timeline rows."""

    rows: int
    materialise_s: float
    #: The whole backfill, and of it from the first request to the end of the last: sorted, encoded, loaded.
    backfill_s: float
    load_s: float
    #: Writes while the backfill went on, and how long the slowest of them waited.
    writes: int
    slowest_write_s: float
    #: Time for one first check.
    cold_check_us: float
    warm_check_us: float
    #: Processor time of the server for one.
    cold_server_us: float
    warm_server_us: float
    #: Rows of a check.
    rows_per_check: float

    def derived(self) -> dict[str, float]:  # type: ignore[override]
        """Return the rates; how many times less a warm first check takes of the server, or by the clock."""
        cold, warm = self.cold_server_us, self.warm_server_us
        return {
            "rows_per_s": self.rows / self.materialise_s,
            "loaded_rows_per_s": self.rows / self.load_s,
            "writes_per_s": self.writes / self.backfill_s,
            "speedup": cold / warm if warm else self.cold_check_us / self.warm_check_us,
        }

    def print_table(self, console: Console) -> None:
        rates = self.derived()
        loaded = f"{self.load_s:.1f} s, {rates['loaded_rows_per_s']:,.0f} rows/s"
        rows = (
            ("timeline rows", f"{self.rows:,}"),
            ("Spark alone: computed and sorted", f"{self.materialise_s:.1f} s, {rates['rows_per_s']:,.0f} rows/s"),
            ("backfill of a server, in all", f"{self.backfill_s:.1f} s"),
            ("  of it sorting and loading", loaded),
            (
                "writes meanwhile",
                f"{rates['writes_per_s']:,.0f} a second, the slowest {self.slowest_write_s * 1e3:.1f} ms",
            ),
            ("first check, cold", f"{self.cold_check_us:,.1f} us"),
            ("first check, filled", f"{self.warm_check_us:,.1f} us, {rates['speedup']:.1f} times faster"),
        )
        print_rows(console, rows, {"what": "{0[0]}", "figure": "{0[1]}"}, left=2)


def base_rows(size: BackfillSettings) -> BaseRows:
    """Draw subscriptions and posts, in key order."""
    draw = np.random.default_rng(size.seed)
    rows: dict[bytes, bytes] = {}
    for user in range(size.users):
        others = draw.choice(size.users, min(size.follows, size.users), replace=False)
        rows.update((keys.subscription_key(user, int(other)), keys.FOLLOWS) for other in others)
    posters = draw.integers(size.users, size=size.posts).tolist()
    rows.update((keys.post_key(user, tick), keys.tweet(tick)) for tick, user in enumerate(posters))
    return sorted(rows.items())


def measure(spark: SparkSession, size: BackfillSettings) -> BackfillFigures:
    """Run the benchmark; needs a server's memory and a folder for the base rows.

    Raises:
        WrongBackfillError: What was loaded is not right.
    """
    if size.behind:
        jvm = spark.sparkContext._jvm
        assert jvm is not None
        stand_back(int(jvm.java.lang.ProcessHandle.current().pid()))
    base = base_rows(size)
    with TemporaryDirectory(prefix="pequod-bench-") as folder:
        _materialise(spark, Path(folder, "warm-up"), base_rows(replace(size, posts=max(1, size.posts // WARM_UP))))
        rows, materialise_s = _materialise(spark, Path(folder, "base"), base)
    checked = Random(size.seed).sample(range(size.users), min(CHECKED, size.users // 4))
    with started_server() as (target, pid), Client(target, timeout_s=600.0) as client:
        client.add_join(keys.PUSH_JOIN)
        for at in range(0, len(base), _LOAD_BATCH):
            client.multi_put(base[at : at + _LOAD_BATCH])
        with _writing(target, size, set(checked)) as written:
            started = time.perf_counter()
            outcome = backfill(spark, Connection(target, timeout_s=600.0).client, Request("t"))
            backfill_s = time.perf_counter() - started
        writes = sum(count for count, _ in written)
        since = size.posts + writes - ROWS_PER_CHECK * size.users // size.follows
        warm = _check(client, pid, checked, since)
        _compare(client, size)
        client.invalidate_range(*keys.TIMELINES)
        cold = _check(client, pid, checked, since)
    if cold.rows != warm.rows:
        raise WrongBackfillError(f"the warm server's checks have {warm.rows} rows, and the cold one's {cold.rows}")
    each_us = 1e6 / len(checked)
    return BackfillFigures(
        rows=rows,
        materialise_s=materialise_s,
        backfill_s=backfill_s,
        load_s=outcome.load_s,
        writes=writes,
        slowest_write_s=max((took_s for _, took_s in written), default=0.0),
        cold_check_us=cold.took_s * each_us,
        warm_check_us=warm.took_s * each_us,
        cold_server_us=cold.server_s * each_us,
        warm_server_us=warm.server_s * each_us,
        rows_per_check=warm.rows / len(checked),
    )


def _materialise(spark: SparkSession, path: Path, rows: BaseRows) -> tuple[int, float]:
    """Compute and sort all timelines of base rows in a file, and drop them; return their number and the seconds."""
    columns = [pa.array(column, pa.binary()) for column in zip(*rows, strict=True)]
    pq.write_table(pa.table(columns, names=["key", "value"]), path, row_group_size=100_000)
    (timeline,) = parse(keys.PUSH_JOIN)
    first, last = keys.TIMELINES
    started = time.perf_counter()
    base = read_from(spark.read.parquet(str(path)))

    def pieces(one_of: int) -> DataFrame:
        return compile_pieces(timeline, 1, base, first, last, one_of=one_of)

    found = survey(pieces, PART_ROWS, can_sample=True)
    splits = Contexts(timeline, 1).splits(found, first, last, PART_ROWS)
    counted = Observation()
    ordered = sorted_ranges(pieces(1), splits).observe(counted, f.count_if("is_row").alias("rows"))
    ordered.write.format("noop").mode("overwrite").save()
    return counted.get["rows"], time.perf_counter() - started


class _Checks(NamedTuple):
    took_s: float
    server_s: float
    rows: int


def _check(client: Client, pid: int, users: list[int], since: int) -> _Checks:
    """Check the timelines of some users from a tick on."""
    before_s, took_s, rows = usage(pid).cpu_s, 0.0, 0
    for at in range(0, len(users), CHECKS):
        batch = client.batch()
        for user in users[at : at + CHECKS]:
            batch.scan(*keys.timeline(user, since))
        started = time.perf_counter()
        results = batch.send()
        took_s += time.perf_counter() - started
        rows += count_rows(results)
    return _Checks(took_s, usage(pid).cpu_s - before_s, rows)


@contextmanager
def _writing(target: str, size: BackfillSettings, checked: set[int]) -> Iterator[list[tuple[int, float]]]:
    """Post and subscribe at a steady rate, all that is due at once in one batch; not for those who are checked.

    Yields:
        The number of writes of each batch and how long it took, to be looked at afterwards.
    """
    stopped = threading.Event()
    batches: list[tuple[int, float]] = []

    def write() -> None:
        draw = Random(size.seed + 1)
        with Client(target, timeout_s=600.0) as client:
            begun, done = time.perf_counter(), 0
            while not stopped.wait(0.002):
                due = int((time.perf_counter() - begun) * size.writes_per_s)
                batch = client.batch()
                for number in range(done, min(due, done + WRITES)):
                    user, other = draw.randrange(size.users), draw.randrange(size.users)
                    if number % 10:
                        batch.put(keys.post_key(user, size.posts + number), keys.tweet(number))
                        continue
                    while user in checked:
                        user = draw.randrange(size.users)
                    if number % 20:
                        batch.put(keys.subscription_key(user, other), keys.FOLLOWS)
                    else:
                        batch.remove(keys.subscription_key(user, other))
                started = time.perf_counter()
                results = batch.send()
                batches.append((len(results), time.perf_counter() - started))
                done += len(results)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield batches
    finally:
        stopped.set()
        thread.join()


def _compare(client: Client, size: BackfillSettings) -> None:
    """See that timelines are what the server computes anew."""
    compared = Random(size.seed + 2).sample(range(size.users), min(COMPARED, size.users))
    for at in range(0, len(compared), BATCH):
        users = compared[at : at + BATCH]
        held = [client.scan(*keys.timeline(user)) for user in users]
        for user in users:
            client.invalidate_range(*keys.timeline(user))
        for user, rows in zip(users, held, strict=True):
            if client.scan(*keys.timeline(user)) != rows:
                raise WrongBackfillError(f"the timeline of user {user} is not what the server computes anew")
