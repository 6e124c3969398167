"""A backfill of a server before a lake: Spark reads the lake as of the SCU at which it began, and all is exact."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from pequod_lake import IngestLimits, Lake
from pequod_server import PequodServer, ServerConfig
from pequod_server.backing import parse_mappings
from pequod_spark.backfill import Begun, Request, SourceDiffersError
from pequod_spark.connection import Connection
from pequod_spark.lake_source import LakeSource, OtherLakeError
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from pequod.cli.app import app
from pequod.client.background import BackgroundLoop
from pequod.freshness import Latest
from tests.lake.conftest import MEMORY
from tests.lake.empty import empty_lake
from tests.lake.twip import JOIN, MAPPING, SCHEMA, Twip


class Served:
    """A lake with posts, and a server before it."""

    def __init__(self, path: Path) -> None:
        self.folder, self.mapping = path / "lake", path / "mapping.toml"
        self.mapping.write_text(MAPPING)
        self.lake = empty_lake(self.folder, SCHEMA)
        self.ingestor = self.lake.ingestor(IngestLimits(scu_age_s=0))
        self.twip = Twip(self.ingestor, 1)
        self.background = BackgroundLoop("served")
        config = ServerConfig(
            listen="127.0.0.1:0", joins=JOIN, backing=f"lake:{self.folder}", backing_mapping=self.mapping
        )
        self.server, port = self.background.run(_started(config))
        self.target = f"127.0.0.1:{port}"
        self.connection = Connection(self.target)
        self.client = self.connection.client()

    def check(self, *, is_filled: bool) -> None:
        """See that timelines are exact, and that the first reads compute nothing if they were filled."""
        computed = self.client.statistics().joins["t"].computed_ranges
        for user in {user for user, _ in self.twip.follows}:
            found = self.client.scan(prefix=f"t|{user}|", freshness=Latest(wait_s=30.0))
            assert found == self.twip.timeline(user), user
        assert not is_filled or self.client.statistics().joins["t"].computed_ranges == computed

    def close(self) -> None:
        self.client.close()
        self.background.close(self.server.stop)
        self.server.engine._check()
        self.ingestor.close()
        self.lake.close()


async def _started(config: ServerConfig) -> tuple[PequodServer, int]:
    server = PequodServer(config)
    return server, await server.start()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with TemporaryDirectory(prefix="lake-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as path:
        served = Served(Path(path))
        yield served
        served.close()


def test_scus_after_the_one_that_is_read_are_caught_up(served: Served, spark: SparkSession) -> None:
    for _ in range(25):
        served.twip.write()
    served.lake.worker().compact()
    for _ in range(3):
        last = served.twip.write()
    begun = Begun(served.connection.client, Request("t"))
    with LakeSource(str(served.folder), parse_mappings(MAPPING), begun) as source:
        assert source.scu == last
        for _ in range(5):
            served.twip.write()
        outcome = begun.run(spark, read=source.read(spark))
    assert outcome.rows > 0
    served.check(is_filled=True)
    for _ in range(5):
        served.twip.write()
    served.check(is_filled=True)


def test_another_lake_and_another_mapping_are_refused(served: Served, spark: SparkSession, tmp_path: Path) -> None:
    served.twip.write()
    begun = Begun(served.connection.client, Request("t"))
    with Lake.create(tmp_path / "other", SCHEMA):
        pass
    with pytest.raises(OtherLakeError, match="not behind the server"):
        LakeSource(str(tmp_path / "other"), parse_mappings(MAPPING), begun)
    other = parse_mappings(MAPPING.replace('value = "body"', 'value = "poster"'))
    with LakeSource(str(served.folder), other, begun) as source, pytest.raises(SourceDiffersError):
        begun.run(spark, read=source.read(spark))
    served.check(is_filled=False)


def test_the_command_reads_the_lake(served: Served, spark: SparkSession, tmp_path: Path) -> None:
    def backfill(*options: object) -> Result:
        arguments = ["backfill", "--target", served.target, "--join", "t", *map(str, options)]
        return CliRunner().invoke(app, arguments)

    served.client.invalidate_join("t")
    done = backfill("--source", f"lake:{served.folder}", "--mapping", served.mapping, "--json")
    assert done.exit_code == 0, done.output
    served.check(is_filled=True)
    wrong = backfill("--source", f"lake:{served.folder}")
    assert (wrong.exit_code, "--mapping" in wrong.stderr) == (2, True)
    wrong = backfill("--source", f"lake:{tmp_path}", "--mapping", served.mapping)
    assert (wrong.exit_code, "pequod lake init" in wrong.stderr) == (3, True)
