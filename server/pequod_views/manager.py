"""A manager holds parts of views, and keeps each by a follower.

Managers know of each other by the ledger alone. At each beat a manager says that it lives, renews its leases, and
counts the living. Of p parts and m managers, each may hold p // m, and the first p % m managers by name one more. It
hands over what is beyond that, and takes what nobody holds; a dead manager's leases end by themselves. A manager whose
server is not the one that the views were installed with holds nothing and does not count.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import secrets
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pequod.client import AsyncClient
from pequod.errors import DeadlineExceededError, UnavailableError
from pequod_views.definition import DurableView
from pequod_views.errors import OtherServerError, TargetAwayError, TargetRefusedError
from pequod_views.follower import Counts, FollowerSettings, PartFollower
from pequod_views.ledger import HeldPart, PartLedger, Standing
from pequod_views.origins import check_server
from pequod_views.targets import Target

log = logging.getLogger("pequod.views")

#: Beats in the time of a lease: some may be late.
_BEATS: Final = 4
#: How long an orderly end waits for the database.
_LEAVE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Running:
    """A follower at work."""

    follower: PartFollower
    task: asyncio.Task[None]


class Manager:
    """Keeps the parts of views that fall to it, until it is cancelled.

    Args:
        name: Of this process; by default made of the host's name and a random number.
        on_beat: Called after each beat.

    Invariants:
        1. Each running follower has the epoch with which its part was taken.
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
        self._client = client
        self._target = target
        self._ledger = PartLedger(target)
        self._views = {view.name: view for view in views}
        fingerprints = sorted(f"{view.name}:{view.fingerprint}" for view in views)
        self._serves = hashlib.sha256("\n".join(fingerprints).encode()).hexdigest()[:16]
        self._settings = settings or FollowerSettings()
        self._on_beat = on_beat
        self._running: dict[tuple[str, bytes], Running] = {}

    @property
    def followers(self) -> list[PartFollower]:
        """The followers of the parts that this manager holds."""
        return [running.follower for running in self._running.values()]

    async def run(self) -> None:
        """Hold parts and follow them."""
        try:
            while True:
                try:
                    await self._beat()
                    if self.target_trouble:
                        log.info("%s answers again", self._target.name)
                    self.target_trouble = ""
                except (TargetAwayError, TargetRefusedError) as error:
                    if not self.target_trouble:
                        log.warning("%s; it is waited for", error)
                    self.target_trouble = str(error)
                if self._on_beat is not None:
                    self._on_beat(self)
                await asyncio.sleep(self._settings.lease_s / _BEATS)
        finally:
            await self._leave()

    async def _beat(self) -> None:
        await self._meet_server()
        if self.server_trouble:
            await self._withdraw()
            return
        standing = await self._ledger.beat(self.name, self._serves, self._views, self._settings.lease_s)
        self.managers = standing.managers
        await self._agree(standing)
        quota = quota_of(self.name, standing.managers, standing.part_count)
        for running in list(self._running.values())[quota:]:
            await self._end([running])
            await self._ledger.give(running.follower.held)
            log.info("handed over %s from %r", running.follower.held.part.view, running.follower.held.part.first)
        wanted = min(quota - len(self._running), standing.free_count)
        if wanted > 0:
            for held in await self._ledger.take(self.name, self._views, wanted, self._settings.lease_s):
                log.info("took %s from %r", held.part.view, held.part.first)
                self._start(held)

    async def _meet_server(self) -> None:
        """Find out whether the server is the one of the views, at first and after its restarts."""
        is_met = self._server_id is not None and self._client.server_id == self._server_id
        if is_met and not self.server_trouble and not any(one.is_refused for one in self.followers):
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
        running = list(self._running.values())
        await self._end(running)
        if running or self.name in self.managers:
            for one in running:
                await self._ledger.tell_trouble(one.follower.held, self.server_trouble)
            await self._ledger.leave(self.name)
        self.managers = tuple(name for name in self.managers if name != self.name)

    async def _agree(self, standing: Standing) -> None:
        """End followers of parts that are not held any more, and start those that are missing."""
        held = {(one.part.view, one.part.first): one for one in standing.held}
        wrong = [
            running
            for place, running in self._running.items()
            if running.task.done() or place not in held or held[place].epoch != running.follower.held.epoch
        ]
        await self._end(wrong)
        for place, one in held.items():
            if place not in self._running:
                self._start(one)

    def _start(self, held: HeldPart) -> None:
        view = self._views[held.part.view]
        follower = PartFollower(self._client, self._target, view, held, self._settings, self.counts)
        task = asyncio.create_task(follower.run(), name=f"pequod view {view.name}")
        self._running[held.part.view, held.part.first] = Running(follower, task)

    async def _end(self, running: Sequence[Running]) -> None:
        for one in running:
            part = one.follower.held.part
            del self._running[part.view, part.first]
            one.task.cancel()
        ended = await asyncio.gather(*(one.task for one in running), return_exceptions=True)
        for outcome in ended:
            if isinstance(outcome, Exception):
                raise outcome

    async def _leave(self) -> None:
        for running in self._running.values():
            running.task.cancel()
        await asyncio.gather(*(running.task for running in self._running.values()), return_exceptions=True)
        self._running.clear()
        try:
            async with asyncio.timeout(_LEAVE_S):
                await self._ledger.leave(self.name)
        except (TargetAwayError, TargetRefusedError, TimeoutError) as error:
            log.warning("the parts could not be handed over; their leases will end: %s", error)


def quota_of(name: str, managers: Sequence[str], part_count: int) -> int:
    """Return how many parts a manager may hold.

    >>> [quota_of(name, ["a", "b", "c"], 7) for name in "abc"]
    [3, 2, 2]
    """
    if name not in managers:
        return 0
    each, more = divmod(part_count, len(managers))
    return each + (managers.index(name) < more)
