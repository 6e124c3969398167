"""Metrics and health over real HTTP, of a server that really runs."""

import asyncio
import random
import re
import socket
import time
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import pytest
from aiohttp import ClientConnectionError, ClientSession
from grpc import aio
from pequod_bench.systems.server import free_port
from pequod_grammar import parse
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server import PequodServer, ServerConfig
from pequod_server.ops.metrics import TABLES_MAX, EngineCollector
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families

from pequod.commands import kinds as commands
from pequod.engine import Engine

ROOT = Path(__file__).parents[2]
TIMELINE = "t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"


class Observed:
    """A server with metrics, a stub, and what an HTTP client sees."""

    def __init__(self, server: PequodServer, http: ClientSession, channel: Any) -> None:
        self.server, self.http, self.channel = server, http, channel
        self.stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
        self.engine = server.engine

    async def get(self, path: str, **options: Any) -> tuple[int, str]:
        async with self.http.get(f"{self.server.instruments.url}{path}", **options) as response:
            return response.status, await response.text()

    async def samples(self) -> dict[str, float]:
        """Scrape; return values by `name{label=value}`, with labels in order."""
        status, text = await self.get("/metrics")
        assert status == 200
        return {
            _name(sample): sample.value for family in text_string_to_metric_families(text) for sample in family.samples
        }

    async def open_calls(self) -> dict[str, float]:
        """Return how many calls of each method are open, of those methods that were called."""
        return {name: value for name, value in (await self.samples()).items() if name.startswith("pequod_calls_open")}


def _name(sample: Any) -> str:
    labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
    return f"{sample.name}{{{labels}}}" if labels else str(sample.name)


@pytest.fixture
async def observed(tmp_path: Path) -> AsyncIterator[Observed]:
    file = tmp_path / "pequod.snapshot"
    server = PequodServer(
        ServerConfig(
            listen="127.0.0.1:0", metrics="127.0.0.1:0", drain_s=0.5, snapshot_file=file, snapshot_every_s=3600
        )
    )
    port = await server.start()
    async with ClientSession() as http, aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield Observed(server, http, channel)
    await server.stop()


async def test_calls_are_counted_by_method_and_code(observed: Observed) -> None:
    stub = observed.stub
    await stub.Put(pb.PutRequest(key=b"p|bob|1", value=b"v"))
    for key in (b"p|bob|1", b"p|bob|2", b"p|bob|3"):
        await stub.Get(pb.GetRequest(key=key))
    with pytest.raises(aio.AioRpcError):
        await stub.DropJoin(pb.DropJoinRequest(name="nobody"))
    assert len([chunk async for chunk in stub.Scan(pb.ScanRequest(first=b"p|"))]) == 1
    found = await observed.samples()
    assert found["pequod_calls_total{code=OK,method=Put}"] == 1
    assert found["pequod_calls_total{code=OK,method=Get}"] == 3
    assert found["pequod_call_seconds_count{code=OK,method=Get}"] == 3
    assert 0 < found["pequod_call_seconds_sum{code=OK,method=Get}"] < 10
    assert found["pequod_calls_total{code=NOT_FOUND,method=DropJoin}"] == 1
    assert {name: value for name, value in found.items() if name.startswith("pequod_calls_open")} == {
        f"pequod_calls_open{{method={method}}}": 0 for method in ("DropJoin", "Get", "Put", "Scan")
    }


async def test_commands_of_batches_are_counted_by_kind_and_streams_by_client(observed: Observed) -> None:
    observed.engine.add_joins(parse("karma|<author> = count vote|<author>|<voter>"))
    stream = observed.stub.Execute()
    kinds = bytes([commands.PUT, commands.PUT, commands.GET, commands.SCAN_LIMIT, commands.PUT])
    arguments = [b"vote|ann|1", b"", b"vote|ann|2", b"", b"karma|ann", b"karma|", b"karma}", b"karma|ann", b"9"]
    await stream.write(pb.ExecuteRequest(kinds=kinds, arguments=arguments, numbers=[1]))
    assert (await stream.read()).values == [b"2", b"2"]
    await stream.write(pb.ExecuteRequest(kinds=bytes([commands.GET]) * 70, arguments=[b"vote|ann|1"] * 70))
    await stream.read()
    found = await observed.samples()
    assert {
        kind: found[f"pequod_commands_total{{kind={kind}}}"] for kind in ("PUT", "GET", "SCAN", "SCAN_LIMIT", "COUNT")
    } == {"PUT": 3, "GET": 71, "SCAN": 0, "SCAN_LIMIT": 1, "COUNT": 0}
    assert found["pequod_command_errors_total{reason=ComputedKeyError}"] == 1
    buckets = {
        bound: found[f"pequod_batch_commands_bucket{{le={bound}}}"] for bound in ("4.0", "16.0", "64.0", "256.0")
    }
    assert buckets == {"4.0": 0, "16.0": 1, "64.0": 1, "256.0": 2}
    assert found["pequod_batch_commands_sum"] == 75
    assert found["pequod_batch_seconds_count"] == 2
    assert found["pequod_calls_open{method=Execute}"] == 1
    await stream.done_writing()
    assert await stream.code() is grpc.StatusCode.OK
    found = await observed.samples()
    assert found["pequod_calls_total{code=OK,method=Execute}"] == 1
    assert not any(name.startswith("pequod_call_seconds") for name in found), (
        "a stream takes as long as its client likes"
    )


async def test_calls_that_are_cancelled_at_any_point_do_not_stay_open(observed: Observed) -> None:
    for number in range(200):
        observed.engine.put(b"big|%03d" % number, b"v" * 10_000)
    chance = random.Random(7)
    async with asyncio.timeout(60):
        for number in count():
            # Where the machine is busy, a call may be cancelled before it has come anywhere; so later ones have longer.
            if number >= 60 and len(await observed.open_calls()) == 3:
                break
            stream = observed.stub.Execute()
            await stream.write(pb.ExecuteRequest(kinds=bytes([commands.GET]), arguments=[b"big|001"]))
            calls = [stream, observed.stub.Scan(pb.ScanRequest(first=b"big|")), observed.stub.Count(pb.CountRequest())]
            for _ in range(chance.randrange(max(40, number))):
                await asyncio.sleep(0)
            for call in calls:
                call.cancel()
        while any((await observed.open_calls()).values()):
            pass


async def test_methods_that_do_not_exist_share_one_name(observed: Observed) -> None:
    for name in ("Guess", "Another"):
        with pytest.raises(aio.AioRpcError):
            await observed.channel.unary_unary(f"/pequod.v1.Pequod/{name}")(b"")
    found = await observed.samples()
    assert found["pequod_calls_total{code=UNIMPLEMENTED,method=unknown}"] == 2
    assert not any("Guess" in name for name in found)


async def test_tables_and_joins_are_what_the_engine_says(observed: Observed) -> None:
    engine = observed.engine
    engine.add_joins(parse(TIMELINE))
    for poster in range(3):
        engine.put(b"s|ann|%d" % poster, b"1")
        for at in range(4):
            engine.put(b"p|%d|%010d" % (poster, at), b"text")
    engine.put(b"loose", b"")
    for _ in range(3):
        assert len(engine.scan(b"t|ann|", b"t|ann}").keys) == 12
    engine.put(b"s|ann|9", b"1")
    found = await observed.samples()
    statistics = engine.statistics()
    join = statistics.joins["t"]
    assert (join.rows, join.hits, join.computed_ranges, join.log_entries) == (12, 2, 1, 1)
    for field in ("rows", "key_bytes", "contexts", "status_ranges", "updaters", "log_entries"):
        assert found[f"pequod_join_{field}{{join=t}}"] == getattr(join, field), field
    for field in (
        "hits",
        "computed_ranges",
        "rows_computed",
        "log_applied",
        "invalidations",
        "not_a_number",
        "misfits",
    ):
        assert found[f"pequod_join_{field}_total{{join=t}}"] == getattr(join, field), field
    for name in ("s", "p"):
        table = statistics.tables[name.encode()]
        for field in ("keys", "key_bytes", "value_bytes"):
            assert found[f"pequod_table_{field}{{table={name}}}"] == getattr(table, field), field
    assert 0 <= found["pequod_join_age_seconds{join=t}"] < 60
    assert found["pequod_loose_keys"] == 1
    assert found["pequod_revision"] == engine.revision
    assert found["process_resident_memory_bytes"] > 1 << 20


async def test_names_of_tables_may_be_any_bytes(observed: Observed) -> None:
    observed.engine.put(b'\xff"\n|1', b"")
    assert (await observed.samples())[r'pequod_table_keys{table=\xff"\n}'] == 1


async def test_small_tables_beyond_the_limit_are_added_up(observed: Observed) -> None:
    for number in range(TABLES_MAX + 5):
        observed.engine.put(b"user%03d|1" % number, b"v" * (number + 1))
    found = await observed.samples()
    tables = {name: value for name, value in found.items() if name.startswith("pequod_table_value_bytes")}
    assert len(tables) == TABLES_MAX + 1
    assert tables["pequod_table_value_bytes{table=|others}"] == 1 + 2 + 3 + 4 + 5
    assert found["pequod_table_keys{table=|others}"] == 5


async def test_statistics_are_kept_for_twenty_times_as_long_as_they_took() -> None:
    # Collected from 100 to 102; asked for at 141.9, and at 142, when it takes until 142.5.
    engine = Engine()
    collector = EngineCollector(engine, iter((100.0, 102.0, 141.9, 142.0, 142.5)).__next__)

    async def keys_and_cost() -> tuple[float, float]:
        await collector.refresh()
        found = {sample.name: sample.value for metric in collector.collect() for sample in metric.samples}
        return found.get("pequod_table_keys", 0), found["pequod_statistics_seconds"]

    assert await keys_and_cost() == (0, 2.0)
    engine.put(b"a|1", b"")
    assert await keys_and_cost() == (0, 2.0)
    assert await keys_and_cost() == (1, 0.5)


async def test_others_have_their_turn_while_statistics_are_collected(observed: Observed) -> None:
    engine = observed.engine
    engine.add_joins(parse(TIMELINE))
    for user in range(3000):
        engine.scan(b"t|%04d|" % user, b"t|%04d}" % user)
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    others = asyncio.create_task(take_turns())
    collector = EngineCollector(engine)
    await asyncio.gather(collector.refresh(), collector.refresh())
    others.cancel()
    assert turns >= 10
    found = {sample.name: sample.value for metric in collector.collect() for sample in metric.samples}
    assert found["pequod_join_contexts"] == 3000


async def test_what_holds_up_the_loop_shows_as_lag(observed: Observed) -> None:
    time.sleep(0.3)  # noqa: ASYNC251 - this is what is measured
    async with asyncio.timeout(10):
        while True:
            found = await observed.samples()
            late = found["pequod_loop_lag_seconds_count"] - found["pequod_loop_lag_seconds_bucket{le=0.1}"]
            if late >= 1:
                break


async def test_the_page_lists_all_metrics_and_no_others(observed: Observed) -> None:
    observed.engine.put(b"p|1", b"")
    observed.engine.add_joins(parse(TIMELINE))
    await observed.stub.Count(pb.CountRequest())
    await observed.stub.SaveSnapshot(pb.SaveSnapshotRequest())
    status, text = await observed.get("/metrics")
    assert status == 200
    served: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        if family.name.startswith("pequod_") and not family.name.endswith("_created"):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            served[name] = {label for sample in family.samples for label in sample.labels} - {"le"}
    page = (ROOT / "docs/operations.md").read_text()
    documented: dict[str, set[str]] = {}
    for names, labels in re.findall(r"^\| ((?:`pequod_\w+`(?:, )?)+) \| ((?:`\w+`(?:, )?)*) ?\|", page, re.MULTILINE):
        for name in re.findall(r"\w+", names):
            documented[name] = set(re.findall(r"\w+", labels))
    assert set(documented) == set(served)
    # Labels of what has not happened cannot be seen.
    assert {name: labels for name, labels in documented.items() if served[name]} == {
        name: labels for name, labels in served.items() if labels
    }


async def test_prometheus_may_ask_for_open_metrics(observed: Observed) -> None:
    await observed.stub.Count(pb.CountRequest())
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    async with observed.http.get(f"{observed.server.instruments.url}/metrics", headers=accept) as response:
        assert response.content_type == "application/openmetrics-text"
        names = {family.name for family in open_metrics(await response.text())}  # type: ignore[no-untyped-call]
    assert {"pequod_calls", "pequod_call_seconds", "pequod_batch_seconds"} <= names


async def test_other_pages_and_methods_are_refused(observed: Observed) -> None:
    assert (await observed.get("/"))[0] == 404
    async with observed.http.post(f"{observed.server.instruments.url}/metrics") as response:
        assert response.status == 405


async def test_a_malformed_request_is_refused_without_a_line_in_the_log(
    observed: Observed, caplog: pytest.LogCaptureFixture
) -> None:
    port = int(str(observed.server.instruments.url).rpartition(":")[2])
    for request in (b"nonsense\r\n\r\n", b"\x16\x03\x01\0", b"GET / HTTP/1.1\r\nA: " + b"x" * 20_000 + b"\r\n\r\n"):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        assert b" 400 Bad Request" in await reader.readline()
        writer.close()
        await writer.wait_closed()
    assert caplog.records == []
    assert await observed.get("/healthz") == (200, "alive\n")


async def test_it_is_not_ready_before_it_listens() -> None:
    server = PequodServer(ServerConfig(listen="127.0.0.1:0", metrics="127.0.0.1:0"))
    await server.instruments.start()
    async with ClientSession() as http, http.get(f"{server.instruments.url}/readyz") as response:
        assert response.status == 503
    await server.close()


async def test_health_from_start_to_end(observed: Observed) -> None:
    assert await observed.get("/healthz") == (200, "alive\n")
    assert await observed.get("/readyz") == (200, "ready\n")
    # A reply that nobody reads keeps the call under way while the server drains.
    for number in range(40):
        observed.engine.put(b"big|%02d" % number, b"v" * 1_000_000)
    scan = observed.stub.Scan(pb.ScanRequest(first=b"big|"))
    await scan.read()
    stopping = asyncio.ensure_future(observed.server.stop())
    await asyncio.sleep(0)
    status, text = await observed.get("/readyz")
    assert (status, text) == (503, "not ready: starting or stopping\n")
    assert (await observed.get("/healthz"))[0] == 200
    assert not stopping.done()
    await stopping
    with pytest.raises(ClientConnectionError):
        await observed.get("/healthz")
    scan.cancel()


@pytest.mark.parametrize("address", ["9464", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:65536", ":9464"])
def test_a_malformed_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="must be HOST:PORT"):
        ServerConfig(metrics=address)


async def test_an_address_may_be_one_of_ipv6() -> None:
    server = PequodServer(ServerConfig(listen="127.0.0.1:0", metrics="[::1]:0"))
    await server.start()
    async with ClientSession() as http, http.get(f"{server.instruments.url}/healthz") as response:
        assert response.status == 200 and response.url.host == "::1"
    await server.stop()


async def test_an_address_in_use_is_refused_and_nothing_is_left(observed: Observed) -> None:
    taken = str(observed.server.instruments.url).removeprefix("http://")
    await _refused(ServerConfig(listen="127.0.0.1:0", metrics=taken), f"cannot listen on {taken} for metrics")
    with socket.create_server(("127.0.0.1", 0)) as other:
        free, used = free_port(), other.getsockname()[1]
        config = ServerConfig(listen=f"127.0.0.1:{used}", metrics=f"127.0.0.1:{free}")
        await _refused(config, "is another server there")
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", free)) != 0


async def _refused(config: ServerConfig, message: str) -> None:
    server = PequodServer(config)
    with pytest.raises(OSError, match=message):
        await server.start()
    # gRPC wants every server that was made to be stopped, in the event loop.
    await server.close()


async def test_without_an_address_nothing_is_served() -> None:
    server = PequodServer(ServerConfig(listen="127.0.0.1:0"))
    await server.start()
    assert server.instruments.url is None
    await server.stop()


async def test_a_join_ages_until_it_is_read(observed: Observed) -> None:
    stub, age = observed.stub, "pequod_join_age_seconds{join=t}"
    observed.engine.add_joins(parse(TIMELINE))
    timeline = pb.CountRequest(first=b"t|ann|", last=b"t|ann}")
    await stub.Count(timeline)
    assert (await observed.samples())[age] == 0.0
    await stub.Put(pb.PutRequest(key=b"s|ann|bob", value=b"1"))
    ages = [0.0]
    async with asyncio.timeout(30):
        # Past a tick of the clock; and figures are kept for a moment.
        while ages[-1] < 0.3:
            ages.append((await observed.samples())[age])
    assert ages == sorted(ages)
    assert ages[-1] < 60, "seconds since the change, not since some origin"
    (join,) = (await stub.Stats(pb.StatsRequest())).joins
    assert join.age_s >= ages[-1]
    await stub.Count(timeline)
    async with asyncio.timeout(30):
        while (await observed.samples())[age] > 0:
            pass
