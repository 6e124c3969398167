"""A server that is killed and started again, empty, in the midst of a load or a verification: neither succeeds."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pequod_spark import verify as verifying
from pequod_spark.connection import Connection, ServerChangedError
from pequod_spark.reading import read_ranges
from pequod_spark.verify import verify
from pyspark.sql import SparkSession
from pyspark_pequod import loading
from typer.testing import CliRunner

from pequod.cli.app import app
from pequod.client import Client
from pequod.client.background import BackgroundLoop
from tests.client.conftest import ServerProcess
from tests.client.relay import Relay


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    server = ServerProcess()
    yield server
    server.kill()


@pytest.mark.usefixtures("spark")
def test_a_load_does_not_succeed_with_rows_missing(
    server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks go on with the new server, as clients do, and the rows of those before are gone.

    It is there at once, as where an address leads to one of several: so the tasks need not be patient.
    """
    monkeypatch.setattr(loading, "PART_ROWS", 5_000)
    monkeypatch.setattr(loading, "FEW_BYTES", 0)
    keys = [b"p|%06d" % number for number in range(60_000)]
    pq.write_table(pa.table({"key": keys, "value": keys}), tmp_path / "rows.parquet")

    other, relay, background = ServerProcess(), Relay(server.target), BackgroundLoop("relay")
    is_over = Event()

    async def replace() -> None:
        relay.lead_to(other.target)
        relay.cut()

    def start_anew() -> None:
        with Client(server.target) as client:
            while not client.count():
                assert not is_over.wait(0.01), "the load ended before it had written a row"
        server.kill()
        background.run(replace())

    background.run(relay.__aenter__())
    with ThreadPoolExecutor() as pool:
        killing = pool.submit(start_anew)
        source = f"parquet:{tmp_path / 'rows.parquet'}"
        try:
            result = CliRunner().invoke(app, ["spark", "load", "--target", relay.target, "--source", source])
        finally:
            is_over.set()
        killing.result()
    with Client(other.target) as client:
        assert client.count() < len(keys), "some rows were written before"
    background.close(relay.__aexit__)
    other.kill()
    # A message that was on its way when the server died fails by itself, and the load with it; which of its tasks
    # says its reason first is chance.
    assert result.exit_code in (3, 4), result.stderr
    reasons = ("was started anew during the write", "whether writes under way were applied is not known")
    assert any(reason in result.stderr for reason in reasons), result.stderr


@pytest.mark.parametrize("with_join", [False, True])
def test_a_verification_does_not_succeed_with_what_it_verifies_gone(
    spark: SparkSession, server: ServerProcess, monkeypatch: pytest.MonkeyPatch, *, with_join: bool
) -> None:
    """A new server without joins, or with the same ones over nothing, would be found right in the next attempt."""

    def fill(*, with_rows: bool) -> None:
        # gRPC takes a second before it connects again to what was not there.
        with Client(server.target, retries=1000) as client:
            client.joins()
            if with_rows or with_join:
                client.add_join("n|<user> = count s|<user>|<poster>")
            if with_rows:
                client.put("s|ann|bob", "1")

    def start_anew_and_read(*arguments: object) -> object:
        monkeypatch.undo()
        server.kill()
        server.start()
        fill(with_rows=False)
        return read_ranges(*arguments)  # type: ignore[arg-type]

    fill(with_rows=True)
    monkeypatch.setattr(verifying, "read_ranges", start_anew_and_read)
    with pytest.raises(ServerChangedError, match="was started anew during the verification"):
        verify(spark, Connection(server.target))
