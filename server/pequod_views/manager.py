"""A manager holds parts of views, and keeps them by followers.

    one follower     all parts that go on by changes: one watch, one transaction a beat
    further ones     parts whose rows are read as a whole, until they can join the others
                     each part that the server or the target refuses, until a person has mended it

Managers know of each other by the ledger alone. At each beat a manager says that it lives, renews its leases, and
counts the living. Of p parts and m managers, each may hold p // m, and the first p % m managers by name one more. It
hands over what is beyond that, and takes what nobody holds; a dead manager's leases end by themselves. Which parts they
are, a `Balancer` may choose. A manager whose
server is not the one that the views were installed with holds nothing and does not count.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from pequod.client import AsyncClient
from pequod.errors import DeadlineExceededError, UnavailableError
from pequod_views.balancing import Balancer
from pequod_views.definition import DurableView
from pequod_views.drift import DriftNotes
from pequod_views.errors import OtherServerError, TargetAwayError, TargetBusyError, TargetRefusedError
from pequod_views.fence import PartFence
from pequod_views.followed import Counts, FollowedPart, FollowerSettings
from pequod_views.follower import Follower
from pequod_views.ledger import PartLedger
from pequod_views.load import quota_of
from pequod_views.origins import check_server
from pequod_views.parts import HeldPart, Place, Standing
from pequod_views.patience import Patience
from pequod_views.targets import Target

log = logging.getLogger("pequod.views")

#: Beats in the time of a lease: some may be late.
_BEATS: Final = 4
#: How long an orderly end waits for the database.
_LEAVE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Running:
    """A follower at work."""

    follower: Follower
    task: asyncio.Task[None]


class Manager:
    """Keeps the parts of views that fall to it, until it is cancelled.

    Args:
        name: Of this process; by default made of the host's name and a random number.
        on_beat: Called after each beat.

    Invariants:
        1. Each part has the epoch with which it was taken.
        2. Between two turns of the event loop each part has one follower, or waits for the next sharing out.
    """

    def __init__(
        self,
        client: AsyncClient,
        target: Target,
        views: Sequence[DurableView],
        settings: FollowerSettings | None = None,
        *,
        name: str = "",
        on_beat: Callable[[Manager], None] | None = None,
    ) -> None:
        # The random part tells a manager from an earlier one of the same name, which may still be writing.
        self.name = f"{name or socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self.counts = Counts()
        #: The error of the last beat; empty if it went well.
        self.target_trouble = ""
        #: Why the server may not fill the tables; empty if it may.
        self.server_trouble = ""
        #: The life of the server that was found to be the one of the views; None before the first.
        self._server_id: int | None = None
        self.managers: tuple[str, ...] = ()
        self._changed: tuple[str, ...] = ()
        #: Rows of its views that `verify` found other than the server's, and has not mended.
        self.drifted_count = 0
        self._client = client
        self._target = target
        self._ledger = PartLedger(target)
        self._patience = Patience(target.name)
        self._views = {view.name: view for view in views}
        fingerprints = sorted(f"{view.name}:{view.fingerprint}" for view in views)
        self._serves = hashlib.sha256("\n".join(fingerprints).encode()).hexdigest()[:16]
        self._settings = settings or FollowerSettings()
        self._on_beat = on_beat
        above = self._settings.balance_above
        self._balancer = Balancer(target, self.name, above) if above else None
        self._parts: dict[Place, FollowedPart] = {}
        self._running: list[Running] = []
        #: Set when a follower has ended.
        self._news = asyncio.Event()

    @property
    def parts(self) -> list[FollowedPart]:
        """The parts that this manager holds."""
        return list(self._parts.values())

    async def run(self) -> None:
        """Hold parts and follow them."""
        try:
            while True:
                try:
                    await self._beat()
                    self._patience.answers()
                    self.target_trouble = ""
                except TargetBusyError as error:
                    log.info("%s", error)
                except (TargetAwayError, TargetRefusedError) as error:
                    self._patience.is_away(error)
                    self.target_trouble = str(error)
                if self._on_beat is not None:
                    self._on_beat(self)
                await self._rest()
        finally:
            await self._leave()

    async def _rest(self) -> None:
        """Wait for the next beat; share out meanwhile what followers leave."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.lease_s / _BEATS):
                while True:
                    await self._news.wait()
                    self._news.clear()
                    await self._share_out(joins=False)

    async def _beat(self) -> None:
        await self._meet_server()
        if self.server_trouble:
            await self._withdraw()
            return
        standing = await self._ledger.beat(self.name, self._serves, self._views, self._settings.lease_s)
        self.managers = standing.managers
        if standing.changed and standing.changed != self._changed:
            log.warning(
                "%s: installed with another definition; this manager takes no part of it until it is started again",
                ", ".join(standing.changed),
            )
        self._changed = standing.changed
        self.drifted_count = await DriftNotes(self._target).total(self._views)
        self._agree(standing)
        quota = quota_of(self.name, standing.managers, standing.part_count)
        for part in self.parts[quota:]:
            self._drop(part)
            await self._ledger.give(part.held)
            log.info("handed over %s", part)
        wanted = min(quota - len(self._parts), standing.free_count)
        if wanted > 0:
            for held in await self._ledger.take(self.name, self._views, wanted, self._settings.lease_s):
                log.info("took %s", self._add(held))
        if self._balancer is not None:
            await self._balancer.consider(standing, self._parts, time.monotonic())
        await self._share_out(joins=True)

    async def _meet_server(self) -> None:
        """Find out whether the server is the one of the views, at first and after its restarts."""
        is_met = self._server_id is not None and self._client.server_id == self._server_id
        if is_met and not self.server_trouble and not any(one.follower.is_refused for one in self._running):
            return
        try:
            await check_server(self._target, self._client, list(self._views.values()))
            trouble = ""
        except OtherServerError as error:
            trouble = str(error)
        except (UnavailableError, DeadlineExceededError) as error:
            # The parts that it has stay with it, but before the first answer it takes none.
            trouble = self.server_trouble if self._server_id is not None else str(error)
        else:
            self._server_id = self._client.server_id
        if trouble and trouble != self.server_trouble:
            log.warning("no part is held: %s", trouble)
        if self.server_trouble and not trouble:
            log.info("the server is the one of the views")
        self.server_trouble = trouble

    async def _withdraw(self) -> None:
        """Hand over all parts, with the reason for `status`; other managers may have the right server."""
        await self._end(self._running)
        if self._parts or self.name in self.managers:
            await PartFence(self._target).tell_trouble([part.held for part in self.parts], self.server_trouble)
            await self._ledger.leave(self.name)
        self._parts.clear()
        self.managers = tuple(name for name in self.managers if name != self.name)

    def _agree(self, standing: Standing) -> None:
        """Drop parts that are not held any more, and add those that are missing."""
        held = {one.part.place: one for one in standing.held}
        for place, part in list(self._parts.items()):
            if place not in held or held[place].epoch != part.held.epoch:
                self._drop(part)
        for place, one in held.items():
            if place not in self._parts:
                self._add(one)

    def _add(self, held: HeldPart) -> FollowedPart:
        part = self._parts[held.part.place] = FollowedPart(self._views[held.part.view], held, held.position)
        return part

    def _drop(self, part: FollowedPart) -> None:
        """Take a part from its follower, which writes nothing of it any more."""
        part.is_held = False
        del self._parts[part.held.part.place]

    async def _share_out(self, *, joins: bool) -> None:
        """Give followers to the parts that have none.

        Args:
            joins: Have parts that go on by changes join the follower that has the most such parts.
        """
        await self._end([one for one in self._running if one.task.done() or one.follower.has_parts_to_leave])
        for part in self.parts:
            if not part.is_held:
                del self._parts[part.held.part.place]
        level = [one for one in self._running if one.follower.takes_others]
        if joins and (len(level) > 1 or (level and any(part.goes_on for part in self._unfollowed()))):
            await self._end(level)
        free = self._unfollowed()
        self._start([part for part in free if part.goes_on])
        self._start([part for part in free if part.needs_rows and not part.is_apart])
        for part in free:
            if part.is_apart:
                self._start([part])

    def _unfollowed(self) -> list[FollowedPart]:
        followed = {id(part) for one in self._running for part in one.follower.parts}
        return [part for part in self.parts if id(part) not in followed]

    def _start(self, parts: Sequence[FollowedPart]) -> None:
        if parts:
            follower = Follower(self._client, self._target, parts, self._settings, self.counts)
            task = asyncio.create_task(follower.run(), name=f"pequod views {parts[0].view.name}")
            task.add_done_callback(lambda _task: self._news.set())
            self._running.append(Running(follower, task))

    async def _end(self, running: Sequence[Running]) -> None:
        ending = list(running)
        for one in ending:
            self._running.remove(one)
            one.task.cancel()
        ended = await asyncio.gather(*(one.task for one in ending), return_exceptions=True)
        for outcome in ended:
            if isinstance(outcome, Exception):
                raise outcome

    async def _leave(self) -> None:
        for running in self._running:
            running.task.cancel()
        await asyncio.gather(*(running.task for running in self._running), return_exceptions=True)
        self._running.clear()
        self._parts.clear()
        try:
            async with asyncio.timeout(_LEAVE_S):
                await self._ledger.leave(self.name)
        except (TargetAwayError, TargetRefusedError, TimeoutError) as error:
            log.warning("the parts could not be handed over; their leases will end: %s", error)
