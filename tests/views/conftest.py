"""Databases that views live in, and a server in this loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Final, TypeVar

import pytest
from pequod_server import ServerConfig

from pequod import AsyncClient
from tests.backing.conftest import Postgres, postgres
from tests.server.serving import serving
from tests.views.kafka_broker import Kafka, started_kafka
from tests.views.mariadb import Mariadb, started_mariadb
from tests.views.sites import KafkaSite, MariadbSite, PostgresSite, Site, SqliteSite

__all__ = ["postgres"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave MariaDB and Kafka to `make views-mariadb` and `make views-kafka`: the suite has PostgreSQL and SQLite."""
    if config.getoption("short") or config.getoption("long"):
        config.hook.pytest_deselected(items=[item for item in items if _is_left_out(item)])
        items[:] = [item for item in items if not _is_left_out(item)]


def _is_left_out(item: pytest.Item) -> bool:
    return item.nodeid.startswith("tests/views/") and any(
        f"[{name}" in item.nodeid or f"/test_{name}" in item.nodeid for name in ("mariadb", "kafka")
    )


@pytest.fixture
def sqlite_site(tmp_path: Path) -> SqliteSite:
    return SqliteSite(tmp_path / "live.db")


@pytest.fixture
async def postgres_site(postgres: Postgres) -> PostgresSite:
    site = PostgresSite(postgres)
    await site.clear()
    return site


S = TypeVar("S")


def shared(config: pytest.Config, key: pytest.StashKey[S], started: Callable[[], AbstractContextManager[S]]) -> S:
    """Return the server that all tests of this process share."""
    if key not in config.stash:
        stack = ExitStack()
        config.stash[key] = stack.enter_context(started())
        config.add_cleanup(stack.close)
    return config.stash[key]


_MARIADB: Final = pytest.StashKey[Mariadb]()


@pytest.fixture(scope="session")
def mariadb(pytestconfig: pytest.Config) -> Mariadb:
    return shared(pytestconfig, _MARIADB, started_mariadb)


@pytest.fixture
async def mariadb_site(mariadb: Mariadb) -> MariadbSite:
    site = MariadbSite(mariadb)
    await site.clear()
    return site


_KAFKA: Final = pytest.StashKey[Kafka]()


@pytest.fixture(scope="session")
def kafka(pytestconfig: pytest.Config) -> Kafka:
    return shared(pytestconfig, _KAFKA, started_kafka)


@pytest.fixture
async def kafka_site(kafka: Kafka) -> KafkaSite:
    site = KafkaSite(kafka)
    await site.clear()
    return site


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def site(request: pytest.FixtureRequest) -> Site:
    found: Site = request.getfixturevalue(f"{request.param}_site")
    return found


@pytest.fixture
async def client() -> AsyncIterator[AsyncClient]:
    """A client of a server of its own."""
    async with (
        serving(ServerConfig(listen="127.0.0.1:0", drain_s=0.5)) as port,
        AsyncClient(f"127.0.0.1:{port}") as one,
    ):
        yield one
