"""What a server makes of changes that come fast: few states, the last one soon, and one map parsed for each."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Self

import pytest
from lab.fleet.played import ENDPOINT, PlayedEtcd, run_played
from pequod_proto import pequod_pb2 as pb
from pequod_server.cluster.etcd import EtcdCoordinator

from pequod.cluster.map import ClusterMap, ClusterState
from pequod.cluster.messages import map_of
from pequod.cluster.servers import ServerEntry

MAP = ClusterMap("twip", 1)
#: As many as take changes together for a tenth of a second.
ENTRIES = [ServerEntry(f"s{number:03}", f"10.0.0.1:{7000 + number}", group="a") for number in range(100)]


class Following:
    """A server that follows a played etcd, and when it was told which state."""

    def __init__(self) -> None:
        self.played = PlayedEtcd()
        self.played.put_map(MAP)
        for entry in ENTRIES:
            self.played.put_server(entry)
        self.states: list[tuple[float, ClusterState]] = []

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._follow())
        await asyncio.sleep(1)
        self.states.clear()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self) -> None:
        async for state in EtcdCoordinator((ENDPOINT,), "twip", calls=self.played).follow():
            self.states.append((asyncio.get_running_loop().time(), state))


def test_maps_that_come_fast_are_one_state_each_20_ms_and_one_parsed_map(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []

    def counted(message: pb.ClusterMap) -> ClusterMap:
        made = map_of(message)
        parsed.append(made.version)
        return made

    monkeypatch.setattr("pequod_server.cluster.keys.map_of", counted)

    async def run() -> None:
        async with Following() as following:
            parsed.clear()
            for version in range(2, 102):
                following.played.put_map(replace(MAP, version=version))
                await asyncio.sleep(0.001)
            ended_s = asyncio.get_running_loop().time()
            await asyncio.sleep(1)
        versions = [state.map.version for _, state in following.states]
        assert versions[0] == 2, "the first one comes at once"
        assert versions[-1] == 101
        assert following.states[-1][0] <= ended_s + 0.02
        assert 5 <= len(versions) <= 7
        assert parsed == versions

    run_played(run())


def test_entries_that_come_fast_are_one_state_each_ms_a_server_and_a_map_does_not_wait() -> None:
    async def run() -> None:
        async with Following() as following:
            loop = asyncio.get_running_loop()
            begun_s = loop.time()
            for entry in ENTRIES:
                following.played.put_server(replace(entry, map_version=7))
                await asyncio.sleep(0.002)
            assert 2 <= len(following.states) <= 4
            following.played.put_map(replace(MAP, version=7))
            put_s = loop.time()
            await asyncio.sleep(0.021)
            told_s, state = following.states[-1]
            assert (state.map.version, told_s) <= (7, put_s + 0.02)
            assert state.map.version == 7
            assert {server.map_version for server in state.servers} == {7}
            await asyncio.sleep(1)
            assert following.states[-1][0] < begun_s + 0.4, "nothing is told twice"

    run_played(run())
