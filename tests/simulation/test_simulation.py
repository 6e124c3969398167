"""Servers beside a database, simulated: what they answer, and that the simulation finds faults."""

import asyncio
import os
import subprocess
import sys

import pytest

from tests.simulation.run import simulate

#: Schedules of 200 steps: two or three seconds of CPU.
SUITE_SCHEDULES = 8


def test_every_answer_is_what_the_database_had_at_the_moment_that_the_reply_names() -> None:
    reports = [simulate(seed) for seed in range(SUITE_SCHEDULES)]
    for report in reports:
        assert not report.wrong, report
        assert report.steps == 200
    # Much was compared, and little was not.
    assert sum(report.checked for report in reports) > 200 * SUITE_SCHEDULES
    assert sum(report.unchecked for report in reports) < 10 * SUITE_SCHEDULES
    assert any(report.refused for report in reports)
    # Clients gave writes up, of which some are done and some are not.
    assert all(any(report.refused.get(f"given up, {fate}") for report in reports) for fate in ("done", "not done"))


@pytest.mark.parametrize("seed", [5, 1195, 10220, 101555, 106177])
def test_schedules_that_were_judged_wrong_once(seed: int) -> None:
    report = simulate(seed)
    assert not report.wrong, report


def test_a_seed_is_one_run_in_every_process() -> None:
    async def printed(hash_seed: str) -> bytes:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.simulation", "--schedules", "2", "--seed", "7", "--trace"),
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        )
        out, _ = await process.communicate()
        assert process.returncode == 0, out
        # The last words are how long it took.
        return out.rpartition(b" in ")[0]

    async def both() -> tuple[bytes, bytes]:
        return await printed("1"), await printed("2")

    one, other = asyncio.run(both())
    assert one and one == other
    assert b"2 schedules, 0 wrong" in one
