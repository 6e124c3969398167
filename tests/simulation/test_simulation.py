"""Servers beside a database, simulated: what they answer, and that the simulation finds faults."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from unittest.mock import patch

from pequod_server.backing import Changes, Landing, Place
from pequod_server.backing.store import SequenceHorizon
from pequod_server.database.intake import Intake

from tests.simulation.run import Report, simulate
from tests.simulation.store import SimulatedStore

#: Schedules of 200 steps: two or three seconds of CPU.
SUITE_SCHEDULES = 25
#: Schedules in which a planted fault must show: two seconds of CPU.
FAULT_SCHEDULES = 20


def first_wrong() -> Report | None:
    return next((report for report in map(simulate, range(FAULT_SCHEDULES)) if report.wrong), None)


def test_every_answer_is_what_the_database_had_at_the_moment_that_the_reply_names() -> None:
    reports = [simulate(seed) for seed in range(SUITE_SCHEDULES)]
    for report in reports:
        assert not report.wrong, report
        assert report.steps == 200
    # Much was compared, and little was not.
    assert sum(report.checked for report in reports) > 200 * SUITE_SCHEDULES
    assert sum(report.unchecked for report in reports) < 10 * SUITE_SCHEDULES
    assert any(report.refused for report in reports)


def test_a_load_that_sees_further_than_the_feed_and_lands_at_once_is_found() -> None:
    async def landing_at_once(_intake: Intake, _place: Place, is_under_way: Callable[[], bool]) -> bool:
        return is_under_way()

    with patch.object(Intake, "_come_to", landing_at_once):
        assert first_wrong() is not None


def test_a_horizon_off_by_one_is_found() -> None:
    def covers(horizon: SequenceHorizon, changes: Changes) -> bool:
        return changes.stamp <= horizon.stamp + 1

    with patch.object(SequenceHorizon, "covers", covers):
        assert first_wrong() is not None


def test_a_feed_that_drops_what_a_load_under_way_needs_is_found() -> None:
    with patch.object(Landing, "is_flying", lambda _self, _key: False):
        assert first_wrong() is not None


def test_a_feed_that_skips_a_change_is_found() -> None:
    wanted, count = SimulatedStore._wanted, 0

    def skipping(store: SimulatedStore, event: Changes) -> Changes:
        nonlocal count
        count += 1
        return wanted(store, event if count % 50 else Changes(event.position, event.stamp, ()))

    with patch.object(SimulatedStore, "_wanted", skipping):
        assert first_wrong() is not None


def test_a_seed_is_one_run_in_every_process() -> None:
    async def printed(hash_seed: str) -> bytes:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.simulation", "--schedules", "2", "--seed", "7", "--trace"),
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        )
        out, _ = await process.communicate()
        assert process.returncode == 0, out
        return out

    async def both() -> tuple[bytes, bytes]:
        return await printed("1"), await printed("2")

    one, other = asyncio.run(both())
    assert one == other
    assert b"2 schedules, 0 wrong" in one
