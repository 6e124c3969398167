"""Clusters whose computes hear of the map from homes, simulated: every answer is right, and no compute stays behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from random import Random
from unittest.mock import patch

import pytest
from pequod_server.cluster.through_servers import ServersFollowed

from pequod.cluster.map import ClusterState
from tests.simulation.clusters import ClusterSchedule, simulate_cluster
from tests.simulation.framing import Report, fault_of, in_loop
from tests.simulation.loop import SimulatedLoop
from tests.simulation.registry import SimulatedCoordinator

SUITE_SCHEDULES = 2
#: A look at the coordinator every 6 s, a second for a server that is late, and 5 s until the coordinator is watched.
_SOON_S = 25.0


@pytest.mark.timeout(600)
def test_every_answer_is_what_the_groups_had_while_homes_tell_the_map() -> None:
    reports = [simulate_cluster(seed, steps=100, follow=True) for seed in range(SUITE_SCHEDULES)]
    for report in reports:
        assert not report.wrong, report
    assert sum(report.checked for report in reports) > 30 * SUITE_SCHEDULES


async def homes_without_the_map(loop: SimulatedLoop, cut_off: int) -> Report:
    """Change the map when some of the homes that computes follow do not reach the coordinator.

    Args:
        cut_off: How many of the two.
    """
    schedule = ClusterSchedule(Random(0), follow=True)
    registry, computes = schedule._registry, schedule._computes

    async def steps() -> None:
        async with schedule.running():
            await asyncio.sleep(1.0)
            followed = computes[0].member._followed
            assert followed is not None
            registry.cut_off.update(one.partition(":")[0] for one in followed._addresses[:cut_off])
            changed = replace(registry.state.map, version=registry.state.map.version + 1)
            registry.put_map(changed)
            await asyncio.sleep(_SOON_S)
            for compute in computes:
                assert compute.member.map.version == changed.version, f"{compute.name} is behind"

    return Report(seed=0, steps=0, virtual_s=loop.time(), wrong=await fault_of(loop, steps()))


@pytest.mark.parametrize("cut_off", [0, 1, 2])
def test_a_home_that_is_behind_is_left(cut_off: int) -> None:
    report = in_loop(0, 0, lambda loop: homes_without_the_map(loop, cut_off))
    assert not report.wrong, report


def test_a_compute_that_does_not_look_stays_behind() -> None:
    async def believe(*_: object) -> None:
        pass

    with patch.object(ServersFollowed, "_check", believe):
        report = in_loop(0, 0, lambda loop: homes_without_the_map(loop, 2))
    assert "is behind" in report.wrong


def test_only_homes_watch_the_coordinator_while_they_are_there() -> None:
    watching, follow = set(), SimulatedCoordinator.follow

    def noted(coordinator: SimulatedCoordinator) -> AsyncIterator[ClusterState]:
        watching.add(coordinator._name)
        return follow(coordinator)

    with patch.object(SimulatedCoordinator, "follow", noted):
        assert not in_loop(0, 0, lambda loop: homes_without_the_map(loop, 0)).wrong
    assert watching == {"a1", "a2", "b1", "b2"}
