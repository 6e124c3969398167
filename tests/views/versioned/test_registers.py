"""Registers over replicas: whatever messages are late or lost, each swap sees the one before."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from pequod_views.versioned import QuorumError, SqliteReplicas
from pequod_views.versioned.registers import Accept, BallotRequest, Ballots, SwapRefusedError, Vote, swap_register


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteReplicas]:
    store = SqliteReplicas([tmp_path / f"{number}.db" for number in range(3)], synchronous="OFF")
    yield store
    store.close()


class OneRegister:
    """A replica with a register."""

    def __init__(self) -> None:
        self.promised = self.accepted = ""
        self.value: str | None = None

    def answer(self, request: BallotRequest) -> Vote:
        if request.ballot < self.promised:
            return Vote(False, self.promised, self.value)
        self.promised = request.ballot
        if isinstance(request, Accept):
            self.accepted, self.value = request.ballot, request.value
        return Vote(True, self.accepted, self.value)


def count_up(process: str, ballots: Ballots, done: list[tuple[str | None, str]]) -> Generator[BallotRequest, Any, None]:
    """Set a register to a value of its own behind the one that is there, again and again."""
    old: str | None = None
    tries = 0
    for _ in range(3):
        while True:
            tries += 1
            new = f"{process} {tries}"
            try:
                now = yield from swap_register("r", old, new, ballots)
            except SwapRefusedError:
                # It may be made all the same, so the next try has a value of its own.
                continue
            if now == new:
                done.append((old, new))
                old = new
                break
            old = now


@pytest.mark.parametrize("start", range(0, 300, 100))
def test_swaps_of_several_processes_come_one_after_another(start: int) -> None:
    for seed in range(start, start + 100):
        rng, done = random.Random(seed), list[tuple[str | None, str]]()
        replicas = [OneRegister() for _ in range(3)]
        work = [count_up(f"p{number}", Ballots(f"p{number}"), done) for number in range(3)]
        requests: dict[int, BallotRequest] = {number: next(steps) for number, steps in enumerate(work)}
        answers: dict[int, list[Vote]] = {number: [] for number in requests}
        late: list[tuple[OneRegister, BallotRequest]] = []
        while requests:
            if late and rng.random() < 0.3:
                replica, request = late.pop(rng.randrange(len(late)))
                replica.answer(request)
            number = rng.choice(list(requests))
            # One replica after another; of the third the message is late.
            at = rng.randrange(3)
            some = [replica for replica in replicas if replica is not replicas[at]]
            answers[number] = [replica.answer(requests[number]) for replica in some]
            late.append((replicas[at], requests[number]))
            try:
                requests[number] = work[number].send(answers[number])
            except StopIteration:
                del requests[number]
        assert len(done) == 9
        chain = dict(done)
        assert len(chain) == len(done), "two swaps replaced one value"


async def test_one_of_many_swaps_at_once_is_made(store: SqliteReplicas) -> None:
    others = [SqliteReplicas([Path(name) for name in await paths_of(store)]) for _ in range(2)]
    found = await asyncio.gather(*(one.swap("r", None, f"{at}") for at, one in enumerate([store, *others])))
    assert len(set(found)) == 1
    assert await store.swap("r", found[0], None) is None
    for other in others:
        other.close()


async def paths_of(store: SqliteReplicas) -> list[str]:
    found = await store._ask(lambda file: file.execute("PRAGMA database_list").fetchone()[2], 3)
    return list(found)


async def test_a_register_outlives_a_replica_and_two_are_too_many(store: SqliteReplicas) -> None:
    assert await store.swap("r", None, "a") == "a"
    store.down = {0}
    assert await store.swap("r", "a", "b") == "b"
    store.down = {1}
    assert await store.swap("r", "a", "c") == "b"
    store.down = {0, 1}
    with pytest.raises(QuorumError):
        await store.swap("r", "b", "d")
