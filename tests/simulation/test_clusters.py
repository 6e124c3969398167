"""Clusters of two home groups, simulated: what they answer while ranges move, and that the simulation finds faults."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from pequod_server.backing import RowChange
from pequod_server.cluster import moving
from pequod_server.cluster.copying import RangeCopy
from pequod_server.database.loader import Loader
from pequod_server.homes.compute.store import PequodStore
from pequod_server.homes.rules import HomeRules

from tests.simulation.clusters import ClusterSchedule, simulate_cluster
from tests.simulation.decided import Add
from tests.simulation.framing import Report, fault_of, in_loop, shows_fault
from tests.simulation.loop import SimulatedLoop
from tests.simulation.members import Server
from tests.simulation.truth import Session

#: Schedules with four homes and two computes: some seconds of CPU.
SUITE_SCHEDULES = 2
#: Schedules in which a planted fault must show. Each test begins with the one that shows its fault; a change of servers
#: moves it: where a test takes more than some seconds, begin with the next one that does. If one shows in none of these
#: any more, make its steps more frequent or write them down, as `homes_that_lack_a_change` does: schedules by the
#: hundred take minutes.
FAULT_SCHEDULES = 30


def is_found(first: int) -> bool:
    """Return whether a planted fault shows in schedules from one on: the first of them has shown it."""
    return shows_fault(map(simulate_cluster, range(first, first + FAULT_SCHEDULES)))


@pytest.mark.timeout(600)
def test_every_answer_is_what_the_groups_had_at_its_token_and_no_session_goes_back() -> None:
    reports = [simulate_cluster(seed) for seed in range(SUITE_SCHEDULES)]
    for report in reports:
        assert not report.wrong, report
    assert sum(report.checked for report in reports) > 60 * SUITE_SCHEDULES
    assert any(report.refused for report in reports)


async def homes_that_lack_a_change(loop: SimulatedLoop) -> Report:
    """Have computes load a table from its new group, and miss a change of it that no home of the group can tell.

    Hardly a schedule in two hundred comes to this.
    """
    schedule = ClusterSchedule(Random(0))
    network, session = schedule._network, Session()
    homes = homes_of(schedule, "b")

    async def steps() -> None:
        async with schedule.running():
            await schedule._operator.move(b"s|", b"s}", "b")
            for value in (b"1", b"2"):
                await schedule._written(session, RowChange(b"s|ann|bob", value), homes)
                for compute in schedule._computes:
                    if value == b"1":
                        await schedule._answered(compute, None, (b"s|", b"s}"))
                    for home in homes:
                        network.cut(compute.address, home.address)
            await asyncio.gather(*(home.restart(0.5) for home in homes))

    wrong = await fault_of(loop, steps())
    assert schedule.moves == 1
    return Report(seed=0, steps=0, virtual_s=loop.time(), wrong=wrong)


def test_a_table_that_is_not_read_again_is_found() -> None:
    assert not in_loop(0, 0, homes_that_lack_a_change).wrong
    with patch.object(PequodStore, "widen", lambda *_: None):
        assert shows_fault([in_loop(0, 0, homes_that_lack_a_change)])


@pytest.mark.timeout(600)
def test_a_move_that_does_not_wait_for_the_servers_is_found() -> None:
    async def go_on(*_: Any) -> None:
        pass

    with patch.object(moving, "spread", go_on):
        assert is_found(4)


async def moved(
    loop: SimulatedLoop,
    schedule: ClusterSchedule,
    step: str,
    write: Callable[[], Awaitable[None]],
    then: Callable[[], Awaitable[None]] | None = None,
) -> Report:
    """Move a table.

    Args:
        step: The method of `RangeCopy` after which the table is written to.
        then: What is done when it has moved.
    """
    done = getattr(RangeCopy, step)

    async def written(copy: RangeCopy) -> None:
        await done(copy)
        await write()

    async def steps() -> None:
        with patch.object(RangeCopy, step, written):
            async with schedule.running():
                await schedule._operator.move(b"s|", b"s}", "b")
                if then is not None:
                    await then()

    wrong = await fault_of(loop, steps())
    return Report(seed=0, steps=0, virtual_s=loop.time(), wrong=wrong)


def homes_of(schedule: ClusterSchedule, group: str) -> list[Server]:
    return [server for server in schedule._servers if server.group == group]


async def a_write_while_they_are_refused(loop: SimulatedLoop) -> Report:
    """Move a table, and write to its old homes when the last changes are copied, before it has come."""
    schedule, session = ClusterSchedule(Random(0)), Session()

    async def write() -> None:
        await schedule._written(session, RowChange(b"s|ann|bob", b"late"), homes_of(schedule, "a"))

    return await moved(loop, schedule, "come_to_end", write)


@pytest.mark.timeout(600)
def test_a_home_that_takes_writes_of_a_range_that_moves_away_is_found() -> None:
    error: Callable[[HomeRules, bytes], Any] = HomeRules.error_of

    def error_of(rules: HomeRules, key: bytes) -> Any:
        home = None if rules._known is None else rules._known.home_range_of(key)
        is_moving = home is not None and home.group == rules._entry.group and home.moves_to
        return None if is_moving else error(rules, key)

    assert not in_loop(0, 0, a_write_while_they_are_refused).wrong
    with patch.object(HomeRules, "error_of", error_of):
        assert shows_fault([in_loop(0, 0, a_write_while_they_are_refused)])


async def a_change_before_the_switch(loop: SimulatedLoop) -> Report:
    """Move a table, and write to it when its copy is as near as it comes before writes are refused.

    That takes some milliseconds, in which hardly a schedule writes.
    """
    schedule, session = ClusterSchedule(Random(0)), Session()

    async def write() -> None:
        await schedule._written(session, RowChange(b"s|ann|bob", b"late"), homes_of(schedule, "a"))

    report = await moved(loop, schedule, "come_near", write)
    home = schedule._registry.state.map.home_range_of(b"s|ann|bob")
    assert home is not None
    assert home.group == "b"
    return report


@pytest.mark.timeout(600)
def test_a_copy_without_the_last_changes_is_found() -> None:
    async def leave_out(*_: Any) -> None:
        pass

    assert not in_loop(0, 0, a_change_before_the_switch).wrong
    with patch.object(RangeCopy, "come_to_end", leave_out):
        assert shows_fault([in_loop(0, 0, a_change_before_the_switch)])


async def an_add_on_both_sides_of_the_switch(loop: SimulatedLoop) -> Report:
    """Add when a table is about to move, and send the same add again when it has."""
    schedule, session = ClusterSchedule(Random(0)), Session()
    command = Add(b"s|ann|bob", b"5", b"the same add ...")

    async def write() -> None:
        schedule._sent.begin(command)
        await schedule._written(session, command, homes_of(schedule, "a"))

    async def send_again() -> None:
        for server in schedule._servers:
            await schedule._written(session, command, [server])

    report = await moved(loop, schedule, "come_near", write, send_again)
    assert schedule.moves == 1
    return report


def test_a_move_without_the_last_request_ids_is_found() -> None:
    async def leave_out(_: RangeCopy) -> None:
        pass

    assert not in_loop(0, 0, an_add_on_both_sides_of_the_switch).wrong
    with patch.object(RangeCopy, "carry_ids", leave_out):
        assert shows_fault([in_loop(0, 0, an_add_on_both_sides_of_the_switch)])


@pytest.mark.timeout(600)
def test_a_compute_that_keeps_what_it_had_of_the_old_group_is_found() -> None:
    async def keep(*_: Any) -> None:
        pass

    with patch.object(Loader, "forget", keep):
        assert is_found(0)
