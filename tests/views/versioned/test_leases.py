"""Leases of shares: one process at a time, whatever is paused, dead or late; and processes that want one get it."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from pequod_views.versioned import LeaseLostError, QuorumError, ShareLeases, SqliteReplicas
from pequod_views.versioned.leases import LeaseText, Share

from tests.views.versioned.conftest import NewLeases


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteReplicas]:
    store = SqliteReplicas([tmp_path / f"{number}.db" for number in range(3)], synchronous="OFF")
    yield store
    store.close()


class OneRegisterStore(SqliteReplicas):
    """A register alone; a swap may fail after it was made, or before."""

    fails = True

    def __init__(self, rng: random.Random) -> None:
        self.replica_count = 1
        self.value: str | None = None
        self._rng = rng

    async def swap(self, register: str, old: str | None, new: str | None) -> str | None:
        fails = self._rng.choice(["no", "no", "no", "no", "before", "after"]) if self.fails else "no"
        if fails == "before":
            raise QuorumError(1, 0)
        if self.value == old:
            self.value = new
        if fails == "after":
            raise QuorumError(1, 0)
        return self.value


async def beat(share: Share) -> None:
    with contextlib.suppress(QuorumError):
        await share.beat()


@pytest.mark.parametrize("start", range(0, 200, 100))
async def test_no_two_processes_hold_a_share_and_no_two_leases_have_an_epoch(start: int) -> None:
    for seed in range(start, start + 100):
        rng, now = random.Random(seed), [0.0]
        store = OneRegisterStore(rng)
        shares = [Share(store, 1, f"p{number}", 10.0, partial(now.__getitem__, 0)) for number in range(3)]
        holders, epochs = list[int](), dict[int, int]()
        for _ in range(200):
            now[0] += rng.choice([0.1, 1.0, 1.0, 2.5, 11.0])
            number = rng.randrange(3)
            await beat(shares[number])
            held = [at for at, share in enumerate(shares) if share.is_held]
            assert len(held) <= 1
            holders += held
            if held and (lease := shares[held[0]]._held) is not None:
                epoch = lease.stamps._next >> 32
                assert epochs.setdefault(epoch, held[0]) == held[0], "an epoch is of one process"
        assert set(holders) == {0, 1, 2}, "each had it"


async def test_a_holder_that_was_paused_is_told_and_its_epoch_is_over() -> None:
    now = [0.0]
    store = OneRegisterStore(random.Random(0))
    store.fails = False
    one, other = (Share(store, 1, name, 10.0, lambda: now[0]) for name in ("one", "other"))
    await one.beat()
    turn = one._held
    assert turn is not None
    turn.check()
    stamp = turn.stamp()
    await other.beat()
    now[0] += 9.5
    with pytest.raises(LeaseLostError):
        turn.check()
    await other.beat()
    assert not other.is_held, "the time of a lease is not over where one counts from after the look"
    now[0] += 1.0
    await other.beat()
    assert other._held is not None
    assert other._held.stamp() > stamp
    await one.beat()
    assert not one.is_held
    with pytest.raises(LeaseLostError):
        turn.check()


async def test_a_process_that_asks_gets_the_share_while_the_other_one_works_without_end(
    store: SqliteReplicas, new_leases: NewLeases
) -> None:
    leases, turns, is_over = [new_leases(store), new_leases(store)], [0, 0], asyncio.Event()

    async def work(number: int) -> None:
        while not is_over.is_set():
            async with leases[number].hold("view", "key", exclusive=True) as turn:
                await asyncio.sleep(0)
                with contextlib.suppress(LeaseLostError):
                    # On a machine that is slow enough it may run out.
                    turn.check()
                    turns[number] += 1
                if min(turns) >= 3:
                    is_over.set()

    async with asyncio.timeout(60):
        await asyncio.gather(work(0), work(1))


async def test_a_share_that_was_given_back_is_free_at_once(store: SqliteReplicas) -> None:
    one, other = ShareLeases(store, lease_s=3600.0), ShareLeases(store, lease_s=3600.0)
    async with one.hold("view", "key", exclusive=True):
        pass
    await one.close()
    async with asyncio.timeout(60), other.hold("view", "key", exclusive=False):
        pass
    await other.close()


def test_the_text_of_a_register_says_all() -> None:
    for text in (LeaseText(4096, 0, "", ""), LeaseText(4097, 3, "a", "b"), LeaseText(4097, 3, "", "b")):
        assert LeaseText.of(text.text) == text
