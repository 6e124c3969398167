"""Each structure of the engine can be taken out: it really is gone, and the answers stay the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from unittest.mock import patch

import pytest
from pequod_bench import keys
from pequod_bench.phases import NAMES
from pequod_bench.progress import QUIET
from pequod_bench.twip import Settings
from pequod_grammar import parse
from typer.testing import CliRunner

from pequod.cli.app import app
from pequod.engine import Engine, Rows
from pequod.engine.base import rows
from pequod.engine.base.rows import SortedRows
from pequod.engine.joins.contexts import Context

if rows.__file__.endswith(".so"):
    pytest.skip("a compiled engine cannot be taken apart", allow_module_level=True)

from pequod_bench import alternatives
from pequod_bench.factors import FACTORS, Factor, analyse

TWEETS = {tick: keys.tweet(tick, 40) for tick in range(6)}


def test_every_structure_is_measured_and_all_runs_answer_the_same() -> None:
    result = CliRunner().invoke(app, ["bench", "factors", "--smoke", "--json"])
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["difference"], report["rounds"]) == ("", 1)
    assert report["checks_verified"] > 1_000
    assert [row["name"] for row in report["results"]] == [factor.name for factor in FACTORS] + ["tamed collector"]
    for row in report["results"]:
        # With one round, all ways to put rounds together are the same.
        assert 0 < row["run_min"] == row["run_median"] == row["run_max"] == pytest.approx(row["run"])
        assert set(row["phases"]) == set(NAMES)
    weighed = {row["name"]: row["memory"] for row in report["results"] if row["memory"] is not None}
    assert set(weighed) == {"groups", "shared tails", "shared values", "shared updaters"}
    assert min(weighed["shared values"], weighed["shared updaters"]) > 1


def test_the_table_can_be_read_by_people() -> None:
    result = CliRunner().invoke(app, ["bench", "factors", "--smoke", "--only", "groups"])
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert "groups: or one ordered map for each table" in text
    assert "shared tails" not in text
    assert "equal a computation from scratch" in text


def test_a_compiled_engine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "__file__", "rows.cpython-311.so")
    result = CliRunner().invoke(app, ["bench", "factors", "--smoke"])
    assert result.exit_code != 0
    assert "this engine is compiled and cannot be taken apart" in result.stderr


@contextmanager
def nothing_found() -> Iterator[None]:
    with patch.object(SortedRows, "since", lambda *_: Rows([], [])):
        yield


def test_an_alternative_that_answers_something_else_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pequod_bench.factors.FACTORS", (Factor("broken", "nothing at all", nothing_found),))
    found = analyse(Settings(users=40, ticks=500), 1, "broken", QUIET)
    assert "broken: the plain way answers something else" in found.difference


def timelines_of(engine: Engine) -> list[Rows]:
    return [engine.scan(keys.timeline_first(user, 0), keys.timeline_last(user)) for user in (1, 2)]


def small_twip() -> Engine:
    """Users 1 and 2 follow 8 and 9, with some posts before their first checks and some after."""
    engine = Engine()
    engine.add_joins(parse(keys.PUSH_JOIN))
    for user in (1, 2):
        for poster in (8, 9):
            engine.put(keys.subscription_key(user, poster), keys.FOLLOWS)
    for tick in (0, 1, 2):
        engine.put(keys.post_key(8 + tick % 2, tick), TWEETS[tick])
    timelines_of(engine)
    for tick in (3, 4, 5):
        engine.put(keys.post_key(8 + tick % 2, tick), TWEETS[tick])
    return engine


def contexts_of(engine: Engine) -> list[Context]:
    return list(next(iter(engine._catalog)).contexts.values())


@pytest.mark.parametrize("factor", FACTORS, ids=lambda factor: factor.name)
def test_what_is_replaced_is_back_afterwards(factor: Factor) -> None:
    with factor.setting():
        plain = timelines_of(small_twip())
    engine = small_twip()
    assert timelines_of(engine) == plain
    assert engine.statistics().tables[b"p"].groups == 2
    engine._check()


def test_a_flat_store_has_no_groups() -> None:
    with alternatives.flat_store():
        engine = small_twip()
        assert engine._store.tables[b"p"].group_count == 0
        maps = {id(context.rows.map) for context in contexts_of(engine)}  # type: ignore[attr-defined]
        assert len(maps) == 1


def test_whole_keys_are_kept_whole() -> None:
    with alternatives.whole_keys():
        timeline = contexts_of(small_twip())[0].rows.map  # type: ignore[attr-defined]
        assert timeline.keys[0] == keys.timeline_key(1, 0, 8)


def test_copied_values_are_copies_and_shared_ones_are_not() -> None:
    def foreign_values(engine: Engine) -> int:
        known = {id(tweet) for tweet in TWEETS.values()}
        return sum(id(value) not in known for value in chain(*(context.rows.values for context in contexts_of(engine))))

    assert foreign_values(small_twip()) == 0
    with alternatives.copied_values():
        assert foreign_values(small_twip()) == 12


def test_lone_updaters_are_one_for_each_user_and_poster() -> None:
    def held(engine: Engine) -> int:
        return len({id(updaters) for context in contexts_of(engine) for updaters in context.updaters})

    # Both users' own subscriptions, and the posts of 8 and 9.
    assert held(small_twip()) == 2 + 2
    with alternatives.lone_updaters():
        assert held(small_twip()) == 2 + 4


def test_a_forgotten_timeline_keeps_no_log() -> None:
    def logged(engine: Engine) -> tuple[int, int]:
        engine.put(keys.subscription_key(1, 7), keys.FOLLOWS)
        join = engine.statistics().joins["t"]
        return join.log_entries, join.contexts

    assert logged(small_twip()) == (1, 2)
    with alternatives.forgotten_timelines():
        assert logged(small_twip()) == (0, 1)
