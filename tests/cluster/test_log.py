"""What a server's log says of its cluster: what happened, and that it is over."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from pequod_bench.systems.server import free_port
from pequod_server.cluster.etcd import EtcdCoordinator

from pequod.cluster.map import ClusterMap, HomeRange
from pequod.cluster.servers import ServerEntry, ServerRole
from tests.cluster.conftest import Etcd
from tests.cluster.test_computes import Mapped
from tests.cluster.waiting import eventually


@pytest.fixture
async def cluster(etcd: Etcd) -> AsyncIterator[Mapped]:
    async with AsyncExitStack() as stack:
        yield Mapped(etcd, stack)


def said(caplog: pytest.LogCaptureFixture, message: str) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.getMessage() == message]


async def test_a_lease_that_has_ended_is_no_coordinator_that_does_not_answer(
    etcd: Etcd, caplog: pytest.LogCaptureFixture
) -> None:
    coordinator = EtcdCoordinator(etcd.endpoints, "lease")
    await coordinator.put_map(ClusterMap("lease", 1))
    entry = ServerEntry("c1", "127.0.0.1:1", frozenset({ServerRole.COMPUTE}))
    await coordinator.register(entry)
    await coordinator._calls.revoke(coordinator._own._lease)
    changed = replace(entry, map_version=1)
    await coordinator.register(changed)
    assert (await coordinator.read()).servers == (changed,)
    assert said(caplog, "the server was away for longer than its lease; it registers again")
    assert not said(caplog, "the coordinator does not answer")
    await coordinator.close()


async def test_a_map_that_is_taken_in_is_logged_with_its_version(
    cluster: Mapped, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await cluster.begin()
    server = await cluster.server("c1")
    await cluster.put(ClusterMap(cluster.name, 2, "x|<a> = coutn p|<a>|<b>"))
    await eventually(lambda: said(caplog, "the map cannot be taken in"))
    await cluster.put(ClusterMap(cluster.name, 3, "x|<a> = count p|<a>|<b>"), server)
    records = said(caplog, "the map is taken in")
    assert [vars(record)["version"] for record in records] == [1, 3]


async def test_home_groups_that_answer_again_are_logged(cluster: Mapped, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    await cluster.begin(HomeRange(b"p|", b"p}", "a"), HomeRange(b"s|", b"s}", "b"))
    # One home that answers is enough to start.
    await cluster.home("h2", "b")
    address = f"127.0.0.1:{free_port()}"
    # A home that is registered, and does not answer.
    entry = ServerEntry("h1", address, frozenset({ServerRole.HOME}), "a")
    await cluster.coordinator.register(entry)
    await cluster.server("c1")
    assert [vars(record)["groups"] for record in said(caplog, "home groups do not answer")] == ["a"]
    assert not said(caplog, "home groups answer again")
    await cluster.coordinator.unregister()
    await cluster.home("h1", "a", listen=address)
    await eventually(lambda: said(caplog, "home groups answer again"))
