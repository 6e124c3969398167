"""Views in topics of Kafka: from install to uninstall, shared, verified, dropped, and beside kills."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from pequod_views import DurableView, TargetAwayError, TargetRefusedError, ViewFileError, open_target
from pequod_views.definition import TableRow
from pequod_views.drift import DriftNotes
from pequod_views.install import check, install, uninstall
from pequod_views.kinds import KINDS
from pequod_views.moving import PartMover
from pequod_views.parts import ViewPart
from pequod_views.reading import status, wait_for
from pequod_views.targets.kafka_address import parse_address
from pequod_views.targets.kafka_values import decoded, encoded, stored
from pequod_views.verifying import Verifier

from pequod import AsyncClient
from tests.views.chaos.run import Run, Stage
from tests.views.kafka_reading import committed, policies, topics
from tests.views.sites import KafkaSite, check_log, equal, installed, managing, until

KARMA = DurableView.parse(
    {"name": "karma", "keys": "karma|<who>", "value": {"column": "votes", "type": "integer"}, "log": True}
)
HALVES = DurableView.parse(
    {"name": "halves", "table": "live.halves", "keys": "karma|<who>", "value": "body", "parts": 2, "log": True}
)


def rows_of(client: AsyncClient, *numbers: int) -> dict[str, str]:
    return {f"karma|{number:03}": str(number) for number in numbers}


async def produced(site: KafkaSite, topic: str, **rows: str | None) -> None:
    """Write records as a stranger does."""
    async with AIOKafkaProducer(bootstrap_servers=site.broker.address) as producer:
        for key, value in rows.items():
            await producer.send_and_wait(topic, None if value is None else value.encode(), key.encode())


async def test_a_topic_follows_its_range(kafka_site: KafkaSite, client: AsyncClient) -> None:
    site = kafka_site
    await client.multi_put(rows_of(client, *range(100)))
    done = await installed(site, client, KARMA)
    assert done == ["karma: made the table karma", "karma: is new; its range has 1 parts"]
    assert await installed(site, client, KARMA) == []
    assert set((await policies(site.broker.address, ["karma", "pequod_views"])).values()) == {"compact"}
    target = open_target(site.database)
    assert await check(target, [KARMA]) == []
    async with managing(site, client, [KARMA]):
        await equal(site, client, KARMA)
        await client.remove("karma|001")
        session = client.session()
        await session.put("karma|000", "7")
        assert await wait_for(target, "karma", session.token, 30.0)
        await equal(site, client, KARMA)
        assert [part.state for part in await status(target)] == ["follows"]
    found = (await committed(site.broker.address))["karma"]
    assert (found[b"karma|000"], found[b"karma|001"]) == (b'{"who":"000","votes":7}', None)
    assert await check_log(site, KARMA) >= 2
    assert await uninstall(target, drops_tables=True) == [
        "karma: dropped the table karma",
        "no view is left; removed what was beside them",
    ]
    assert set(await topics(site.broker.address)) == {"pequod_views"}
    assert await status(target) == []
    await target.close()


async def test_managers_share_parts_which_are_split_and_handed_over(kafka_site: KafkaSite, client: AsyncClient) -> None:
    site = kafka_site
    await client.multi_put(rows_of(client, *range(20)))
    await installed(site, client, HALVES)
    target = open_target(site.database)
    async with managing(site, client, [HALVES], name="a") as first, managing(site, client, [HALVES], name="b") as other:
        await until(lambda: len(first.parts) == len(other.parts) == 1)
        await equal(site, client, HALVES)
        await client.multi_put(rows_of(client, *range(10, 30)))
        await PartMover(target).split("halves", b"karma|004")
        await until(lambda: len(first.parts) + len(other.parts) == 3)
        await client.multi_put(rows_of(client, *range(5, 40)))
        await equal(site, client, HALVES)
    assert await check_log(site, HALVES) >= 3
    await target.close()


async def test_rows_that_a_stranger_wrote_are_found_and_mended(kafka_site: KafkaSite, client: AsyncClient) -> None:
    site = kafka_site
    await client.multi_put(rows_of(client, *range(20)))
    await installed(site, client, KARMA)
    target = open_target(site.database)
    async with managing(site, client, [KARMA]):
        await equal(site, client, KARMA)
        await produced(
            site,
            "karma",
            **{
                "karma|001": '{"who":"001","votes":17}',
                "karma|002": None,
                "karma|003": "no JSON",
                "karma|099": '{"who":"099","votes":1}',
                "l|1": "{}",
            },
        )
        told = [
            "karma|001 has another votes",
            "karma|002 is missing",
            "karma|003 has another who, votes",
            "karma|099 is no row of the view",
            "l|1 is no row of the view",
        ]
        (verdict,) = await Verifier(target, client).verify(KARMA)
        assert ([str(one) for one in verdict.drifts], verdict.trouble) == (told, "")
        (verdict,) = await Verifier(target, client, repairs=True).verify(KARMA)
        assert (verdict.drift_count, verdict.repaired_count, verdict.trouble) == (5, 5, "")
        await equal(site, client, KARMA)
        (verdict,) = await Verifier(target, client).verify(KARMA)
        assert (verdict.row_count, verdict.drift_count) == (20, 0)
    await target.close()


async def test_rows_are_compared_beside_writers(kafka_site: KafkaSite, client: AsyncClient) -> None:
    """A row that is only late is no difference."""
    site = kafka_site
    await client.multi_put(rows_of(client, *range(50)))
    await installed(site, client, KARMA)
    target = open_target(site.database)

    async def write() -> None:
        for number in range(10_000):
            await client.put(f"karma|{number % 50:03}", str(number))
            await asyncio.sleep(0.002)

    async with managing(site, client, [KARMA]) as manager:
        await equal(site, client, KARMA)
        writing = asyncio.create_task(write())
        for count in range(1, 4):
            (verdict,) = await Verifier(target, client).verify(KARMA)
            assert (verdict.drifts, verdict.trouble) == ([], "")
            done = manager.counts.transactions
            await until(lambda done=done: manager.counts.transactions > done)
            # Of a row that the manager writes as well.
            await DriftNotes(target).note(ViewPart("karma", KARMA.first, KARMA.last), count)
            assert await DriftNotes(target).total(["karma"]) == count
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
    await target.close()


async def test_a_topic_that_would_lose_rows_is_refused(kafka_site: KafkaSite, client: AsyncClient) -> None:
    site = kafka_site
    await installed(site, client, KARMA)
    admin = AIOKafkaAdminClient(bootstrap_servers=site.broker.address)
    await admin.start()
    await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, "karma", {"cleanup.policy": "delete"})])
    await admin.close()
    target = open_target(site.database)
    (problem,) = await check(target, [KARMA])
    assert "cleanup.policy of the topic karma is delete, which would lose rows; it should be compact" in problem
    with pytest.raises(TargetRefusedError, match="would lose rows"):
        await install(target, client, [KARMA])
    await target.close()


async def test_a_topic_that_was_dropped_begins_anew(kafka_site: KafkaSite, client: AsyncClient) -> None:
    site = kafka_site
    await client.multi_put(rows_of(client, 1, 2))
    await installed(site, client, KARMA)
    async with managing(site, client, [KARMA]):
        await equal(site, client, KARMA)
    admin = AIOKafkaAdminClient(bootstrap_servers=site.broker.address)
    await admin.start()
    await admin.delete_topics(["karma"])
    await admin.close()
    target = open_target(site.database)
    assert ["there is no topic" in one for one in await check(target, [KARMA])] == [True]
    await target.close()
    assert await installed(site, client, KARMA) == [
        "karma: made the table karma",
        "karma: had lost its table; its range has 1 parts",
    ]
    async with managing(site, client, [KARMA]):
        await equal(site, client, KARMA)


async def test_topics_are_equal_to_scans_after_kills(kafka_site: KafkaSite, tmp_path: Path) -> None:
    """A run of `make views-chaos TARGET=kafka`: managers and the broker are killed."""
    stage = Stage(kafka_site, tmp_path)
    try:
        await stage.start()
        report = await Run(stage, 7).carry_out()
        assert report.wrongs == [], stage.log.read_text()
        assert report.steps > 0
    finally:
        await stage.stop()


async def test_a_broker_that_is_away_is_told(kafka_site: KafkaSite) -> None:
    target = open_target("kafka://127.0.0.1:1")
    with pytest.raises(TargetAwayError, match="pequod_views does not answer"):
        await status(target)
    await target.close()


def test_addresses_of_kafka() -> None:
    found = parse_address("kafka://ann:se%2Fcret@one,two:9093/live.parts?mechanism=SCRAM-SHA-512")
    assert (found.brokers, found.ledger) == (("one:9092", "two:9093"), "live.parts")
    assert (found.user, found.password, found.mechanism) == ("ann", "se/cret", "SCRAM-SHA-512")
    assert "cret" not in found.shown
    wrongs = ("kafka://", "kafka://one/a b", "kafka://one?acks=1", "kafka://a:b@one?mechanism=GSSAPI")
    for wrong in (*wrongs, "kafka://one:x", "kafka://a@one"):
        with pytest.raises(ViewFileError):
            parse_address(wrong)
    with pytest.raises(ViewFileError, match=r"the certificates in /no/such\.pem cannot be read: No such file"):
        open_target("kafka://one?ca=/no/such.pem")


def test_cells_of_each_type_as_json() -> None:
    cells = {
        "text": (b'J\xc3\xbcrg "x"', 'Jürg "x"'),
        "bytes": (b"\0\xff", "AP8="),
        "integer": (b"-9223372036854775808", -(2**63)),
        "numeric": (b"1.50000000000000000000001", "1.50000000000000000000001"),
        "float": (b"0.1", 0.1),
        "boolean": (b"true", True),
        "json": (b'{"a":[1.50,null]}', {"a": [1.5, None]}),
        "timestamp_s": (b"1700000000", "2023-11-14T22:13:20.000000Z"),
        "timestamp_us": (b"1", "1970-01-01T00:00:00.000001Z"),
        "uuid": (b"12345678123456781234567812345678", "12345678-1234-5678-1234-567812345678"),
    }
    assert cells.keys() == KINDS.keys()
    for kind, (value, shown) in cells.items():
        view = DurableView.parse({"name": "v", "keys": "v|<a>", "value": {"column": "c", "type": kind}})
        row: TableRow | None = view.row(b"v|x", value)
        assert row is not None
        record = encoded(view, row)
        assert json.loads(record) == {"a": "x", "c": shown}
        key, slot, cell = decoded(view, b"v|x", record)
        assert (key, slot) == (b"v|x", "x")
        assert kind == "json" or cell == stored(row[2])
