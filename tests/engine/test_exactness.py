"""The engine against the naive model, step by step, over joins that Hypothesis draws as well as the steps.

`Walker.take` compares and checks all structures after each step.
"""

from collections.abc import Sequence
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from pequod_grammar import parse

from pequod.engine import JoinSpec
from tests.engine.draw import VALUES, WORDS, draw_bound, draw_join, draw_key, draw_range, draw_slot
from tests.engine.draw_records import draw_record, draw_record_join
from tests.engine.earlier import draw_beginning, draw_earlier
from tests.engine.random_walk import (
    draw_add,
    draw_backfill_step,
    draw_fit_join,
    draw_limit,
    draw_replacement_step,
    draw_write_if,
    small_limits,
    walk,
)
from tests.engine.walker import Step, Walker

#: Each step draws the seed of its numbers: number by number, the draws took longer than the engine and the model.
RANDOMS = st.randoms(use_true_random=True)
TIMELINES = [
    "t|<user>|<time:2>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>",
    "t|<user>|<time:2>|<poster:1> = check s|<user>|<poster> copy p|<poster>|<time>",
    "t|<user>|<time:2>|<poster:2> = check s|<user>|<poster> copy p|<poster>|<time>",
]
#: Some hold the delimiter, as slots with a width may.
POSTERS = [*WORDS, b"|", b"||", b"a|", b"|b"]


class Exactness(RuleBasedStateMachine):
    """Any joins, any calls, on an engine that has met others before: see `tests.engine.earlier`."""

    snapshots = False
    backed: tuple[bytes, ...] = ()

    @initialize(random=RANDOMS)
    def start(self, random: Random) -> None:
        self.begin(random, [draw_join(random, snapshots=self.snapshots) for _ in range(random.choice([1, 1, 2, 3]))])

    def begin(self, random: Random, joins: Sequence[JoinSpec]) -> None:
        """Begin with joins on an engine that has met others, and with rows that they read."""
        self.limits = small_limits(random)
        self.limits.__enter__()
        self.walker = Walker()
        steps = [Step("back", self.backed)] if self.backed else []
        steps += [*draw_earlier(random, joins), *(Step("add", (join,)) for join in joins)]
        for step in [*steps, *draw_beginning(random, joins)]:
            self.walker.take(step)

    def teardown(self) -> None:
        if hasattr(self, "limits"):
            self.limits.__exit__()

    @rule(random=RANDOMS, value=st.sampled_from(VALUES))
    def put(self, random: Random, value: bytes) -> None:
        self.walker.take(Step("put", (draw_key(random, self.walker.specs), value)))

    @rule(random=RANDOMS)
    def remove(self, random: Random) -> None:
        keys = sorted(self.walker.model.base)
        if keys:
            self.walker.take(Step("remove", (random.choice(keys),)))

    @rule(random=RANDOMS)
    def write_if(self, random: Random) -> None:
        self.walker.take(draw_write_if(random, self.walker))

    @rule(random=RANDOMS)
    def add_to(self, random: Random) -> None:
        self.walker.take(draw_add(random, self.walker))

    @rule(random=RANDOMS, limit=st.sampled_from([None, 1, 2]))
    def remove_range(self, random: Random, limit: int | None) -> None:
        self.walker.take(Step("remove_range", (*draw_range(random, self.walker.specs), limit)))

    @rule(random=RANDOMS, limit=st.sampled_from([None, None, None, 1, 2]), reverse=st.booleans())
    def scan(self, random: Random, limit: int | None, reverse: bool) -> None:
        self.walker.take(Step("scan", (*draw_range(random, self.walker.specs), limit, reverse)))

    @rule(random=RANDOMS)
    def get(self, random: Random) -> None:
        self.walker.take(Step("get", (draw_bound(random, self.walker.specs),)))

    @rule(random=RANDOMS)
    def add_join(self, random: Random) -> None:
        if len(self.walker.specs) < 5:
            self.walker.take(Step("add", (draw_join(random, snapshots=self.snapshots),)))

    @rule(number=st.integers(0, 9))
    def drop_join(self, number: int) -> None:
        self.walker.take(Step("drop", (number,)))

    @rule(random=RANDOMS)
    def replace(self, random: Random) -> None:
        self.walker.take(draw_replacement_step(random, self.walker, snapshots=self.snapshots))

    @rule(count=st.integers(1, 3))
    def evict(self, count: int) -> None:
        self.walker.take(Step("evict", (count,)))

    @rule(random=RANDOMS)
    def invalidate(self, random: Random) -> None:
        self.walker.take(Step("invalidate", draw_range(random, self.walker.specs)))

    @rule(random=RANDOMS)
    def watch(self, random: Random) -> None:
        self.walker.take(Step("watch", draw_range(random, self.walker.specs)))

    @rule(number=st.integers(0, 9))
    def settle(self, number: int) -> None:
        self.walker.take(Step("settle", (number,)))

    @rule()
    def look_over(self) -> None:
        self.walker.take(Step("look_over"))

    @rule(number=st.integers(0, 9))
    def scan_again(self, number: int) -> None:
        self.walker.take(Step("again", (number,)))

    @rule(random=RANDOMS)
    def backfill(self, random: Random) -> None:
        self.walker.take(draw_backfill_step(random, self.walker))

    @rule(random=RANDOMS)
    def limit(self, random: Random) -> None:
        self.walker.take(Step("limit", (draw_limit(random),)))

    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0]))
    def wait(self, seconds: float) -> None:
        self.walker.take(Step("wait", (seconds,)))


class ExactnessWithBackfills(Exactness):
    """The same with joins that can be backfilled among them."""

    @initialize(random=RANDOMS)
    def start(self, random: Random) -> None:
        super().start(random)
        self.walker.take(Step("add", (draw_fit_join(random),)))


class ExactnessWithSnapshots(Exactness):
    """The same with snapshot joins among them."""

    snapshots = True


class ExactnessWithRecords(Exactness):
    """The same with joins over the fields of records."""

    @initialize(random=RANDOMS)
    def start(self, random: Random) -> None:
        super().start(random)
        self.walker.take(Step("add", (draw_record_join(random),)))

    @rule(random=RANDOMS)
    def put_record(self, random: Random) -> None:
        self.walker.take(Step("put", (draw_key(random, self.walker.specs), draw_record(random))))

    @rule(random=RANDOMS)
    def change_record(self, random: Random) -> None:
        keys = sorted(self.walker.model.base)
        if keys:
            self.walker.take(Step("put", (random.choice(keys), draw_record(random))))

    @rule(random=RANDOMS, slices=st.integers(1, 3))
    def index(self, random: Random, slices: int) -> None:
        self.walker.take(Step("index", (*draw_range(random, self.walker.specs), slices)))

    @rule(random=RANDOMS)
    def add_record_join(self, random: Random) -> None:
        if len(self.walker.specs) < 5:
            self.walker.take(Step("add", (draw_record_join(random),)))


class ExactnessWithDatabase(Exactness):
    """The same with a database that owns some tables: loads on demand, changes, ranges forgotten at any moment."""

    backed: tuple[bytes, ...] = (b"p", b"q")

    @rule(random=RANDOMS)
    def forget(self, random: Random) -> None:
        self.walker.take(Step("forget", draw_range(random, self.walker.specs)))

    @rule(random=RANDOMS)
    def forget_key(self, random: Random) -> None:
        key = draw_key(random, self.walker.specs)
        self.walker.take(Step("forget", (key, key + b"\0")))

    @rule(random=RANDOMS)
    def load(self, random: Random) -> None:
        self.walker.take(Step("load", draw_range(random, self.walker.specs)))


class ExactnessWithRecordsInADatabase(ExactnessWithRecords, ExactnessWithDatabase):
    """Joins over records of a database's tables."""


class TimelinesInADatabase(ExactnessWithDatabase):
    """Timelines alone, read to their ends: their logs and their rows by the kernel, where what they need is loaded."""

    @initialize(random=RANDOMS)
    def start(self, random: Random) -> None:
        self.backed = random.choice([(b"p",), (b"s", b"p"), (b"s",)])
        self.begin(random, parse(random.choice(TIMELINES)))

    def add_join(self) -> None:
        """Not a rule here: over others, and under them, a timeline is brought up to date in the general way."""

    @rule(random=RANDOMS, is_followed=st.booleans())
    def follow(self, random: Random, is_followed: bool) -> None:
        key = b"s|%s|%s" % (random.choice(WORDS[:3]), random.choice(POSTERS))
        self.walker.take(Step("put", (key, b"")) if is_followed else Step("remove", (key,)))

    @rule(random=RANDOMS)
    def check(self, random: Random) -> None:
        user, since = random.choice(WORDS[:3]), random.choice([b"", draw_slot(random, 2)])
        self.walker.take(Step("scan", (b"t|%s|%s" % (user, since), b"t|%s}" % user, None, False)))

    @rule(random=RANDOMS)
    def forget_posts(self, random: Random) -> None:
        poster = random.choice(POSTERS)
        self.walker.take(Step("forget", (b"p|%s|" % poster, b"p|%s}" % poster)))


TestExactness = Exactness.TestCase
TestExactness.settings = settings()
TestExactnessWithBackfills = ExactnessWithBackfills.TestCase
TestExactnessWithBackfills.settings = settings()
TestExactnessWithSnapshots = ExactnessWithSnapshots.TestCase
TestExactnessWithSnapshots.settings = settings()
TestExactnessWithRecords = ExactnessWithRecords.TestCase
TestExactnessWithRecords.settings = settings()
TestExactnessWithRecordsInADatabase = ExactnessWithRecordsInADatabase.TestCase
TestExactnessWithRecordsInADatabase.settings = settings()
TestExactnessWithDatabase = ExactnessWithDatabase.TestCase
TestExactnessWithDatabase.settings = settings()
TestTimelinesInADatabase = TimelinesInADatabase.TestCase
TestTimelinesInADatabase.settings = settings()


def _seeds(count: int) -> pytest.MarkDecorator:
    """Give a test `count` seeds in two halves; `make test` leaves the rest out."""
    return pytest.mark.parametrize("seeds", [range(count // 2), range(count // 2, count)], ids=["half", "rest"])


@_seeds(100)
def test_random_walks_agree(seeds: range) -> None:
    for seed in seeds:
        assert walk(seed, 40) is None, f"python -m tests.engine.random_walk --seed {seed} --steps 40"


@_seeds(75)
def test_random_walks_with_a_database_agree(seeds: range) -> None:
    for seed in seeds:
        script = walk(seed, 40, backed=True)
        assert script is None, f"python -m tests.engine.random_walk --backed --seed {seed} --steps 40"


@_seeds(75)
def test_random_walks_with_backfills_agree(seeds: range) -> None:
    for seed in seeds:
        records, backed = seed % 3 == 0, seed % 4 == 1
        script = walk(seed, 40, backfills=True, records=records, backed=backed)
        flags = "--backfills" + " --records" * records + " --backed" * backed
        assert script is None, f"python -m tests.engine.random_walk {flags} --seed {seed} --steps 40"


@_seeds(75)
def test_random_walks_over_records_agree(seeds: range) -> None:
    for seed in seeds:
        script = walk(seed, 40, records=True)
        assert script is None, f"python -m tests.engine.random_walk --records --seed {seed} --steps 40"


@_seeds(75)
def test_random_walks_over_records_of_a_database_agree(seeds: range) -> None:
    for seed in seeds:
        script = walk(seed, 40, records=True, backed=True)
        assert script is None, f"python -m tests.engine.random_walk --records --backed --seed {seed} --steps 40"


@_seeds(75)
def test_random_walks_over_records_that_a_database_is_searched_for_agree(seeds: range) -> None:
    for seed in seeds:
        script = walk(seed, 40, records=True, backed=True, searched=True)
        assert script is None, f"python -m tests.engine.random_walk --searched --seed {seed} --steps 40"


@_seeds(60)
def test_random_walks_over_fields_of_several_sources_agree(seeds: range) -> None:
    for seed in seeds:
        backed, backfills, searched = seed % 4 == 1, seed % 4 == 2, seed % 4 == 3
        script = walk(seed, 40, composed=True, backed=backed or searched, backfills=backfills, searched=searched)
        flags = "--composed" + " --backed" * backed + " --backfills" * backfills + " --searched" * searched
        assert script is None, f"python -m tests.engine.random_walk {flags} --seed {seed} --steps 40"


@_seeds(100)
def test_random_walks_with_replacements_agree(seeds: range) -> None:
    for seed in seeds:
        records, backed = seed % 3 == 0, seed % 4 == 1
        script = walk(seed, 40, replacements=True, records=records, backed=backed)
        flags = "--replacements" + " --records" * records + " --backed" * backed
        assert script is None, f"python -m tests.engine.random_walk {flags} --seed {seed} --steps 40"
