"""Sessions that write at one server and read at the other, again and again, while both are tormented.

    try     put p|w3|... 17 at server 0   ->  read at server 1: p|w3|..., t|r3|..., or both in a batch
    miss    the read shows 16 or nothing

With tokens there is never a miss; without them the same run has to show some, or it would prove nothing.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from math import inf
from typing import Final

import grpc

from tests.freshness.places import Place
from tests.freshness.session import CallFailedError, Session, channel_to

#: Only tells a hang from a machine that is busy.
STUCK_S: Final = 120.0
#: A read or a write that may be had again a moment later.
_PASSING: Final = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
)


@dataclass
class Report:
    """What a run did, and what was wrong."""

    tries: int = 0
    #: Reads that did not show the session's own write.
    misses: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    wrongs: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        faults = ", ".join(f"{name} {count}" for name, count in sorted(Counter(self.faults).items()))
        failures = ", ".join(f"{name} {count}" for name, count in sorted(self.failures.items()))
        return (
            f"{self.tries} tries, {self.misses} misses in {self.seconds:.0f} s; "
            f"faults: {faults or 'none'}; calls that failed and were repeated: {failures or 'none'}"
        )


class Run:
    """A run over two servers.

    Args:
        has_tokens: Whether the sessions use tokens.
        fault_s: The mean time between two faults; 0: there are none.
    """

    def __init__(
        self, place: Place, *, seed: int, sessions: int = 16, has_tokens: bool = True, fault_s: float = 4.0
    ) -> None:
        self._place = place
        self._draw = random.Random(seed)
        self._session_count = sessions
        self._has_tokens = has_tokens
        self._fault_s = fault_s
        #: Held while there is a fault.
        self._at_fault = asyncio.Lock()
        self.report = Report()
        #: The last acknowledged body of each post.
        self.acknowledged: dict[str, str] = {}

    async def carry_out(self, tries: int, *, faults: int = 0, seconds: float = inf) -> Report:
        """Try as often as asked, and until there were so many faults, or for so many seconds; say what came of it."""
        channels = [channel_to(server.target) for server in self._place.servers]
        begun_s = time.monotonic()
        tormentor = asyncio.create_task(self._torment())
        sessions = [Session(channels, has_tokens=self._has_tokens) for _ in range(self._session_count)]
        try:
            async with asyncio.TaskGroup() as group:
                for number, session in enumerate(sessions):
                    group.create_task(self._tried(session, number, tries, faults, begun_s + seconds))
        finally:
            # What was killed or stopped is there again.
            async with self._at_fault:
                tormentor.cancel()
            await asyncio.gather(tormentor, return_exceptions=True)
            for session in sessions:
                self.report.failures += session.failures
            self.report.seconds = time.monotonic() - begun_s
            for channel in channels:
                await channel.close()
        if not tormentor.cancelled() and (error := tormentor.exception()) is not None:
            raise error
        return self.report

    async def _torment(self) -> None:
        if not self._fault_s:
            return
        faults = self._place.faults(self._draw)
        # How many tries there had been at each of the last two faults.
        tries = deque([-1, -1], maxlen=2)
        while True:
            await asyncio.sleep(self._draw.expovariate(1 / self._fault_s))
            # A fault may meet what recovers from the one before, and not a third: a busy machine would never recover.
            while self.report.tries <= tries[0]:  # noqa: ASYNC110 - tries have no event to wait for
                await asyncio.sleep(0.01)
            tries.append(self.report.tries)
            name = self._draw.choice(sorted(faults))
            async with self._at_fault:
                await faults[name]()
                self.report.faults.append(name.split()[0])

    async def _tried(self, session: Session, number: int, tries: int, faults: int, end_s: float) -> None:
        draw = random.Random(f"{self._draw.random()} {number}")
        writer, user = f"w{number}", f"r{number}"
        await self._wrote(session, f"s|{user}|{writer}", "")
        time_slot, body = 0, 0
        report = self.report
        while (report.tries < tries or len(report.faults) < faults) and time.monotonic() < end_s:
            body += 1
            key = f"p|{writer}|{time_slot:010}"
            if not await self._wrote(session, key, f"{body:09}", once=True):
                # Nobody knows whether it will be written: if so, it may be after the next write of this key.
                time_slot += 1
                continue
            self.acknowledged[key] = f"{body:09}"
            self.report.tries += 1
            try:
                found = await self._read(session, draw, key, f"t|{user}|{time_slot:010}|{writer}")
            except CallFailedError as error:
                self.report.wrongs.append(f"a read failed: {error}")
                raise
            if found is None or int(found) < body:
                self.report.misses += 1
                if self._has_tokens:
                    self.report.wrongs.append(f"{key} is {found}, and {body} was written")
            elif int(found) > body:
                self.report.wrongs.append(f"{key} is {found}, and only {body} was written")

    async def _wrote(self, session: Session, key: str, value: str, *, once: bool = False) -> bool:
        """Write at the first server; return False if it is not known whether it was written, and only once is tried."""
        end_s = time.monotonic() + STUCK_S
        while True:
            try:
                await session.put(0, key, value)
            except CallFailedError as error:
                if error.code not in _PASSING or time.monotonic() > end_s:
                    self.report.wrongs.append(f"a write failed: {error}")
                    raise
                await asyncio.sleep(0.05)
                if once:
                    return False
            else:
                return True

    async def _read(self, session: Session, draw: random.Random, post: str, tweet: str) -> str | None:
        """Read what was written at the second server, until it answers: the post, or the tweet that is computed."""
        end_s = time.monotonic() + STUCK_S
        kind = draw.choice(["post", "tweet", "both"])
        first, last = tweet[: tweet.rindex("|") + 1], tweet[: tweet.rindex("|")] + "}"
        while True:
            try:
                match kind:
                    case "post":
                        return await session.get(1, post)
                    case "tweet":
                        return (await session.scan(1, first, last)).get(tweet)
                    case _:
                        found, rows = await session.batch(1, post, first, last)
                        if rows.get(tweet) != found and self._has_tokens:
                            self.report.wrongs.append(f"a batch has {post} {found}, and {tweet} {rows.get(tweet)}")
                        return found
            except CallFailedError as error:
                if error.code not in _PASSING or time.monotonic() > end_s:
                    raise
                await asyncio.sleep(0.02)
