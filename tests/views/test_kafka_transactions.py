"""Transactions of views in Kafka that are fenced off, torn, or stopped in the middle, as consumers see them."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import ProducerFenced
from pequod_views import DurableView, TargetAwayError, open_target
from pequod_views.moving import PartMover
from pequod_views.reading import status
from pequod_views.targets import kafka as kafka_target
from pequod_views.targets import kafka_waits

from pequod import AsyncClient
from tests.views.kafka_reading import committed, records
from tests.views.sites import KafkaSite, check_log, equal, installed, managing, until
from tests.views.test_kafka import HALVES, KARMA, rows_of

SCORES = DurableView.parse({"name": "score", "keys": "score|<who>", "value": "points", "log": True})


async def test_rows_and_their_position_are_of_one_transaction(
    kafka_site: KafkaSite, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each commit consumers see the rows of each position that the log has, and no others."""
    site = kafka_site
    await client.multi_put(rows_of(client, *range(10)))
    await installed(site, client, KARMA)
    judged, wrongs, commit = list[int](), list[str](), AIOKafkaProducer.commit_transaction

    async def commit_and_judge(self: AIOKafkaProducer) -> None:
        await commit(self)
        found = await records(site.broker.address, waits=True)
        of_rows = Counter(dict(one.headers)["position"].decode() for one in found["karma"])
        steps = [one for one in found["pequod_views"] if one.key.startswith(b'["log"')]
        rows = [json.loads(one.value) for one in steps]
        of_log = {f"{row['server_id']}:{row['revision']}": row["changes"] for row in rows if row["changes"]}
        judged.append(len(of_log))
        if of_rows != of_log:
            wrongs.append(f"records of rows {of_rows}, changes in the log {of_log}")

    monkeypatch.setattr(AIOKafkaProducer, "commit_transaction", commit_and_judge)
    async with managing(site, client, [KARMA]):
        for number in range(10, 40, 10):
            await client.multi_put(rows_of(client, *range(number, number + 10)))
            await equal(site, client, KARMA)
            # In a transaction of its own: of a row that changes twice in one, there is one record.
            await client.remove(f"karma|{number:03}")
            await equal(site, client, KARMA)
    assert wrongs == []
    assert max(judged) >= 4


@contextmanager
def paused(monkeypatch: pytest.MonkeyPatch, name: str) -> Iterator[tuple[asyncio.Event, asyncio.Event, asyncio.Event]]:
    """Have a manager stop before it commits; yield what tells that it has, lets it go on, and tells of its refusal."""
    stopped, goes_on, refused = asyncio.Event(), asyncio.Event(), asyncio.Event()
    commit = AIOKafkaProducer.commit_transaction

    async def stop(self: AIOKafkaProducer) -> None:
        # Who takes the id writes under it, too, and is not stopped.
        if not stopped.is_set() and self._txn_manager.transactional_id.endswith(name):
            await self.flush()
            stopped.set()
            await goes_on.wait()
        try:
            await commit(self)
        except ProducerFenced:
            refused.set()
            raise

    with monkeypatch.context() as patch:
        patch.setattr(AIOKafkaProducer, "commit_transaction", stop)
        yield stopped, goes_on, refused
        goes_on.set()


async def test_who_was_taken_for_dead_writes_nothing_more(
    kafka_site: KafkaSite, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two managers at once: the other one has taken the parts while the first had a transaction open."""
    site = kafka_site
    await client.multi_put(rows_of(client, *range(20)))
    await installed(site, client, HALVES)
    async with managing(site, client, [HALVES], name="a") as first:
        await equal(site, client, HALVES)
        with paused(monkeypatch, first.name) as (stopped, goes_on, refused):
            await client.multi_put(rows_of(client, *range(10, 30)))
            await stopped.wait()
            async with managing(site, client, [HALVES], name="b") as other:
                await until(lambda: len(other.parts) == 2)
                await client.put("karma|002", "8")
                await equal(site, client, HALVES)
                goes_on.set()
                await until(refused.is_set)
                await client.put("karma|002", "9")
                await equal(site, client, HALVES)
        await equal(site, client, HALVES)
    assert await check_log(site, HALVES) >= 4


async def test_who_takes_a_part_knows_what_was_committed_behind_an_open_transaction(
    kafka_site: KafkaSite, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = kafka_site
    await installed(site, client, KARMA, SCORES)
    async with (
        managing(site, client, [KARMA, SCORES], name="a") as first,
        managing(site, client, [KARMA, SCORES], name="b") as other,
    ):
        await until(lambda: len(first.parts) == len(other.parts) == 1)
        view = other.parts[0].view.name
        with paused(monkeypatch, first.name) as (stopped, _goes_on, refused):
            await until(stopped.is_set)
            # What it has open in the ledger hides from readers what the other one commits.
            done = other.counts.transactions
            await client.put(f"{view}|001", "1")
            await until(lambda: other.counts.transactions > done)
            target = open_target(site.database)
            await PartMover(target).split(view, f"{view}|010".encode())
            await target.close()
            await until(refused.is_set)
        await equal(site, client, KARMA, SCORES)
    for one in (KARMA, SCORES):
        await check_log(site, one)


async def test_a_torn_transaction_is_seen_by_nobody_and_done_again(
    kafka_site: KafkaSite, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = kafka_site
    await client.multi_put(rows_of(client, 1))
    await installed(site, client, KARMA)
    async with managing(site, client, [KARMA]) as manager:
        await equal(site, client, KARMA)
        torn = asyncio.Event()

        async def tear(self: AIOKafkaProducer) -> None:
            await self.flush()
            torn.set()
            raise OSError("the machine is gone")

        with monkeypatch.context() as patch:
            patch.setattr(AIOKafkaProducer, "commit_transaction", tear)
            await client.put("karma|001", "9")
            await torn.wait()
            # No consumer is shown it, though it is in the topic.
            assert (await committed(site.broker.address))["karma"] == {b"karma|001": b'{"who":"001","votes":1}'}
        await equal(site, client, KARMA)
        assert manager.counts.target_failures
    assert await check_log(site, KARMA) >= 2


async def test_a_manager_goes_on_after_a_broker_that_stood_still(
    kafka_site: KafkaSite, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = kafka_site
    monkeypatch.setattr(kafka_target, "_WORK_S", 5.0)
    await client.multi_put(rows_of(client, *range(20)))
    await installed(site, client, HALVES)
    async with managing(site, client, [HALVES]) as manager:
        await equal(site, client, HALVES)
        with site.broker.standing_still():
            await client.multi_put(rows_of(client, *range(10, 30)))
            await until(lambda: manager.counts.target_failures > 0)
            await client.put("karma|002", "8")
        await equal(site, client, HALVES)
        await client.put("karma|002", "9")
        await equal(site, client, HALVES)
    assert await check_log(site, HALVES) >= 3


async def test_closing_ends_while_the_broker_stands_still(
    kafka_site: KafkaSite, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a commit: what it comes to is known to who reads next."""
    site = kafka_site
    await client.multi_put(rows_of(client, *range(20)))
    await installed(site, client, KARMA)
    committing, commit = asyncio.Event(), AIOKafkaProducer.commit_transaction
    with ExitStack() as broker:

        async def stop(self: AIOKafkaProducer) -> None:
            if is_armed and not committing.is_set():
                broker.enter_context(site.broker.standing_still())
                committing.set()
            await commit(self)

        is_armed = False
        monkeypatch.setattr(AIOKafkaProducer, "commit_transaction", stop)
        async with managing(site, client, [KARMA]):
            await equal(site, client, KARMA)
            is_armed = True
            await client.put("karma|002", "8")
            await committing.wait()
            target = open_target(site.database)
            with monkeypatch.context() as patch, pytest.raises(TargetAwayError, match="nothing came for 1 s"):
                patch.setattr(kafka_waits, "_START_S", 1.0)
                await status(target)
            await target.close()
    async with managing(site, client, [KARMA]):
        await equal(site, client, KARMA)
    assert await check_log(site, KARMA) >= 2
