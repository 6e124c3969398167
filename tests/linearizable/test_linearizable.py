"""Histories of clients over kills are linearizable, as a checker that is not Pequod's finds; and it finds faults."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random, uniform
from typing import Any

import pytest
from pequod_server.backing import SqliteStore
from pequod_server.data.disk import Disk

from pequod import ANY
from pequod.client.columns import Columns
from tests.forked import run_serve
from tests.installed import lacking
from tests.linearizable import stopped
from tests.linearizable.history import recorded
from tests.linearizable.judge import Judge, why_absent


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    if reason := why_absent():
        lacking(reason)
    yield Judge(tmp_path_factory.mktemp("judge"))


async def test_histories_over_kills_are_linearizable(judge: Judge, tmp_path: Path) -> None:
    histories = await recorded(tmp_path / "data", 20, Random(1))
    assert judge.wrong(one.as_json() for one in histories) == []
    kinds = {each["kind"] for one in histories for each in one.operations}
    assert kinds == {"get", "put", "put_if", "add", "transfer"}


async def _is_found(judge: Judge, tmp_path: Path, serve: Callable[..., None] | None = None) -> bool:
    """Record with a fault until the judge finds it."""
    for attempt in range(10):
        folder, random = tmp_path / f"data{attempt}", Random(attempt)
        histories = await recorded(folder, 20, random, serve)
        if judge.wrong(one.as_json() for one in histories):
            return True
    return False


async def test_adds_that_are_sent_again_without_their_ids_are_found(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Columns, "protect", lambda _self: None)
    monkeypatch.setattr(Columns, "is_harmless_twice", lambda _self: True)
    assert await _is_found(judge, tmp_path)


def serve_hastily(*arguments: Any) -> None:
    """Serve, and answer writes before the folder has them."""
    Disk._is_safe = property(lambda _disk: True)  # type: ignore[assignment,method-assign]
    run_serve(*arguments)


async def test_a_server_that_answers_before_it_writes_is_found(judge: Judge, tmp_path: Path) -> None:
    assert await _is_found(judge, tmp_path, serve=serve_hastily)


async def test_reads_of_the_latest_at_servers_that_are_stopped_are_linearizable(judge: Judge, tmp_path: Path) -> None:
    histories = await stopped.recorded(tmp_path / "base.db", 20, Random(1))
    assert judge.wrong(one.as_json() for one in histories) == []


async def _pause_at_random(_store: SqliteStore) -> None:
    await asyncio.sleep(uniform(0.0, 1.0))


def serve_lazily(*arguments: Any) -> None:
    """Serve, and look for what others have written when it suits, however much that is asked for."""
    SqliteStore._pause = _pause_at_random  # type: ignore[assignment, method-assign]
    run_serve(*arguments)


async def test_reads_of_the_latest_wait_for_servers_that_are_told_late(judge: Judge, tmp_path: Path) -> None:
    histories = await stopped.recorded(tmp_path / "base.db", 10, Random(2), serve=serve_lazily)
    assert judge.wrong(one.as_json() for one in histories) == []


async def test_reads_of_any_state_at_such_servers_are_found(judge: Judge, tmp_path: Path) -> None:
    for attempt in range(20):
        file, random = tmp_path / f"base{attempt}.db", Random(attempt)
        histories = await stopped.recorded(file, 20, random, freshness=ANY, serve=serve_lazily)
        if judge.wrong(one.as_json() for one in histories):
            return
    raise AssertionError("no read was of an older state")
