"""The run's own check finds what is wrong, and nothing where all is right.

The store here is a fake that computes every timeline from nothing on each read, by the definition of the join.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from pequod_bench.settings import TwipSettings
from pequod_bench.twip.prepared import LOAD_BATCH, SCAN_BATCH, Prepared, prepare, verify
from pequod_bench.workloads.stream import CommandBatch, load_batches, make_stream, timed_batches, timeline_scans
from pequod_bench.workloads.verify import CommandFailedError, Differs, Reply, Same
from pequod_workloads import twip as keys

from pequod.commands.kinds import PUT
from pequod.engine import PequodError, Rows

#: The replies to the run, and to the scans at its end.
Answers = tuple[list[Reply], list[Reply]]


class FakeStore:
    """Base keys in a dict; a timeline is looked up by the definition."""

    def __init__(self) -> None:
        self.follows: dict[bytes, set[bytes]] = {}
        self.posts: dict[bytes, list[tuple[bytes, bytes]]] = {}

    def execute(self, batch: CommandBatch) -> Reply:
        commands = zip(batch.kinds, batch.arguments[::2], batch.arguments[1::2], strict=True)
        results: list[Rows | None] = []
        for kind, key, argument in commands:
            if kind == PUT:
                self.put(key, argument)
                results.append(None)
            else:
                results.append(self.scan(key, argument))
        return results

    def put(self, key: bytes, value: bytes) -> None:
        table, first, second = key.split(b"|")
        if table == b"s":
            self.follows.setdefault(first, set()).add(second)
        else:
            self.posts.setdefault(first, []).append((second, value))

    def scan(self, first: bytes, last: bytes) -> Rows:
        user = first.split(b"|")[1]
        rows = (
            (b"t|%s|%s|%s" % (user, time, poster), value)
            for poster in self.follows.get(user, ())
            for time, value in self.posts.get(poster, ())
        )
        found = sorted(row for row in rows if first <= row[0] < last)
        return Rows([row[0] for row in found], [row[1] for row in found])


def run(prepared: Prepared) -> Answers:
    store = FakeStore()
    for batch in load_batches(prepared.stream, prepared.settings.tweet_bytes, LOAD_BATCH):
        store.execute(batch)
    replies = [store.execute(batch) for batch in prepared.batches]
    return replies, [store.execute(batch) for batch in timeline_scans(prepared.stream, SCAN_BATCH)]


@pytest.fixture(scope="module", params=[0, 50], ids=["from nothing", "with initial posts"])
def prepared(request: pytest.FixtureRequest) -> Prepared:
    return prepare(TwipSettings(users=60, ticks=3_000, seed=5, tweet_bytes=9, initial_posts=request.param, batch=7))


@pytest.fixture(scope="module")
def answers(prepared: Prepared) -> Answers:
    return run(prepared)


def test_the_two_recomputations_equal_the_definition(prepared: Prepared, answers: Answers) -> None:
    verdict, checks_verified = verify(prepared, *answers)
    assert isinstance(verdict, Same)
    assert verdict.scan_count == 42
    assert verdict.row_count > 200
    assert checks_verified > 2_500


def spoiled(replies: list[Reply], how: str) -> list[Reply]:
    """Plant one difference in the first scan with many rows."""
    i, j, rows = next(
        (i, j, rows)
        for i, reply in enumerate(replies)
        for j, rows in enumerate(reply)
        if isinstance(rows, Rows) and len(rows.keys) > 4
    )
    keys_, values = rows.keys[:], rows.values[:]
    if how == "value":
        values[2] = b"something else"
    elif how == "order":
        keys_[1], keys_[2], values[1], values[2] = keys_[2], keys_[1], values[2], values[1]
    else:
        del keys_[2], values[2]
    reply = [*replies[i][:j], Rows(keys_, values), *replies[i][j + 1 :]]
    return [*replies[:i], reply, *replies[i + 1 :]]


@pytest.mark.parametrize("how", ["value", "order", "missing"])
def test_a_planted_difference_in_a_check_is_found(prepared: Prepared, answers: Answers, how: str) -> None:
    verdict, _ = verify(prepared, spoiled(answers[0], how), answers[1])
    assert isinstance(verdict, Differs)
    assert "the check at tick" in verdict.reason


@pytest.mark.parametrize("how", ["value", "order", "missing"])
def test_a_planted_difference_in_a_final_timeline_is_found(prepared: Prepared, answers: Answers, how: str) -> None:
    verdict, _ = verify(prepared, answers[0], spoiled(answers[1], how))
    assert isinstance(verdict, Differs)
    assert "the final timeline of user" in verdict.reason


def test_checks_are_left_alone_if_only_the_end_is_wanted(prepared: Prepared, answers: Answers) -> None:
    hasty = replace(prepared, settings=replace(prepared.settings, verify="final"))
    verdict, checks_verified = verify(hasty, spoiled(answers[0], "value"), answers[1])
    assert isinstance(verdict, Same)
    assert checks_verified == 0


def test_batches_hold_every_command_in_order() -> None:
    stream = make_stream("synthetic", 60, 1_000, seed=2)
    one, many = (timed_batches(stream, 5, size) for size in (10_000, 16))
    assert b"".join(batch.kinds for batch in many) == one[0].kinds
    assert [argument for batch in many for argument in batch.arguments] == one[0].arguments
    assert len(one[0].kinds) == 1_000 - stream.count(2)


@pytest.mark.parametrize("size_bytes", [0, 1, 5, 140, 1_000])
def test_a_tweet_has_the_size_that_is_asked_for(size_bytes: int) -> None:
    assert len(keys.tweet(123_456, size_bytes)) == size_bytes


def test_a_command_that_was_refused_ends_the_run(prepared: Prepared, answers: Answers) -> None:
    first, *others = answers[0]
    refused = [PequodError("no room"), *first[1:]]
    with pytest.raises(CommandFailedError, match="no room"):
        verify(prepared, [refused, *others], answers[1])
