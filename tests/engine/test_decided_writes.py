"""Walks find what is wrong with writes that look at the present value, where Python carries them out."""

from __future__ import annotations

from random import Random
from unittest.mock import patch

import pytest
from pequod_grammar import parse

from pequod.engine import Engine
from pequod.engine import engine as engine_module
from tests.engine.pair import DifferenceError
from tests.engine.random_walk import draw_add, draw_write_if
from tests.engine.walker import Step, Walker


def walk_of_writes(seed: int) -> None:
    """Walk over writes alone. All changes are watched, so that no write is quick."""
    random, walker = Random(seed), Walker()
    (join,) = parse("t|<user>|<time>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>")
    walker.take(Step("add", (join,)))
    walker.take(Step("watch", (b"", None)))
    for _ in range(30):
        walker.take(random.choice([draw_write_if, draw_add])(random, walker))


def test_walks_of_writes_agree() -> None:
    for seed in range(5):
        walk_of_writes(seed)


def test_a_condition_that_is_always_met_is_found() -> None:
    with patch.object(engine_module, "holds", lambda *_: True), pytest.raises(DifferenceError):
        walk_of_writes(1)


def test_a_present_value_of_the_wrong_key_is_found() -> None:
    get = Engine.get

    def of_another_key(engine: Engine, key: bytes, *, now: float = 0.0) -> bytes | None:
        value = get(engine, key, now=now)
        return value and engine.base_rows().values[-1]

    with patch.object(Engine, "get", of_another_key), pytest.raises(DifferenceError):
        walk_of_writes(1)


def test_a_sum_that_floats_make_is_found() -> None:
    def by_floats(_key: bytes, present: bytes | None, delta: bytes) -> bytes:
        return b"%g" % (float(present or 0) + float(delta))

    with patch.object(engine_module, "added", by_floats), pytest.raises((DifferenceError, ValueError)):
        for seed in range(5):
            walk_of_writes(seed)
