"""PostgreSQL whose primary is killed and whose standby takes over, behind two servers, seen by plain gRPC clients."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import grpc
import pytest

from tests.freshness.pair import pair
from tests.freshness.session import CallFailedError, Session, channel_to
from tests.freshness.tries import Run

#: Only tells a hang from a machine that is busy.
PATIENCE_S = 120.0


async def test_a_synchronous_standby_loses_no_acknowledged_write_and_sessions_go_on(tmp_path: Path) -> None:
    async with pair(tmp_path) as database:
        await database.be_synchronous()
        run = Run(database.place, seed=1, sessions=4, fault_s=0)
        tried = asyncio.create_task(run.carry_out(300))
        while run.report.tries < 100 and not tried.done():  # noqa: ASYNC110 - the run has no such event
            await asyncio.sleep(0.01)
        await database.fail_over()
        report = await tried
        assert not report.wrongs
        assert report.tries >= 300
        assert report.misses == 0
        assert report.failures.total() > 0, "the failover was not noticed"
        assert "TokenLostError" not in report.failures
        bodies = await database.bodies()
        assert run.acknowledged
        for key, body in run.acknowledged.items():
            # A write that was not acknowledged may be there; it is of another key from then on.
            assert bodies[key] >= body, key


async def test_a_lost_tail_is_told_to_those_who_saw_it_and_to_nobody_else(tmp_path: Path) -> None:
    async with pair(tmp_path) as database:
        channels = [channel_to(server.target) for server in database.place.servers]
        early, late, fresh = (Session(channels) for _ in range(3))
        for number in range(5):
            await patiently(early, 0, number)
        kept = early.token
        await database.catch_up()
        await database.part()
        for number in range(5, 10):
            await patiently(late, 0, number)
        assert await got(late, 1, 9) == "9"
        lost = late.token
        await database.fail_over()
        # Each server in turn, so that none of them holds what the other one has lost.
        for server in (0, 1):
            early.token, late.token = kept, lost
            assert await got(early, server, 4) == "4"
            with pytest.raises(CallFailedError, match="TokenLostError") as refused:
                await got(late, server, 9)
            assert refused.value.code is grpc.StatusCode.FAILED_PRECONDITION
            assert await got(fresh, server, 9) is None
        # The session that lost its writes begins anew, and goes on with what it writes now.
        late.token = b""
        await patiently(late, 0, 10)
        assert await got(late, 1, 10) == "10"
        assert await got(early, 1, 4) == "4"
        for channel in channels:
            await channel.close()


async def patiently(session: Session, server: int, number: int) -> None:
    """Write a post, again if need be."""
    end_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await session.put(server, f"p|ann|{number:010}", f"{number}")
        except CallFailedError as error:
            if error.code is not grpc.StatusCode.UNAVAILABLE or time.monotonic() > end_s:
                raise
            await asyncio.sleep(0.05)


async def got(session: Session, server: int, number: int) -> str | None:
    """Read a post once the server answers."""
    end_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await session.get(server, f"p|ann|{number:010}")
        except CallFailedError as error:
            if error.code is not grpc.StatusCode.UNAVAILABLE or time.monotonic() > end_s:
                raise
            await asyncio.sleep(0.05)
