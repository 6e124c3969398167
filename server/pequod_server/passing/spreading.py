"""Spreads the reads of hot groups over the workers of a server, as `pequod cluster advise` does in a cluster.

    w1, w2   w1.heat, w2.heat: what each works for, every 5 s --> w0: advice --> the map: t|ann| is read at 3 workers
    w2       t|ann| is its own from then on, and it passes no read of it on

The files are in the runtime folder, which only the server's user can open: so no worker needs rights at another one.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from pequod.answers.heat import GroupHeat, HeatStatistics
from pequod.cluster import edits
from pequod.cluster.advice import Asked, Bounds, Spread, advise
from pequod.cluster.map import ClusterMap
from pequod.errors import PequodError
from pequod.escapes import escaped
from pequod_server.cluster.member import Member
from pequod_server.heat.meter import HeatMeter
from pequod_server.memory.periodic import Periodic
from pequod_server.worker import HOME_ID, Worker, heat_file

log = logging.getLogger("pequod.server")

#: How often workers say what is hot, and the home decides.
_LOOK_S: Final = 5.0
#: Files of workers that are older are not gone by.
_AGE_S_MAX: Final = 3 * _LOOK_S


class Spreading:
    """The part of one worker; that of the home decides.

    Args:
        workers_max: The workers that may share the reads of a group; 1: none is spread.
        clock: Returns the time in seconds, the same for all workers.
    """

    def __init__(
        self,
        worker: Worker,
        member: Member,
        heat: HeatMeter,
        workers_max: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._worker = worker
        self._member = member
        self._heat = heat
        self._bounds = Bounds(spread=workers_max)
        self._clock = clock
        self._folder = Path(worker.door.removeprefix("unix:")).parent
        self._periodic = Periodic(self.look, lambda: _LOOK_S, "pequod spreading")

    def start(self) -> None:
        """Begin, if groups may be spread."""
        if self._bounds.spread > 1:
            self._periodic.start()

    async def stop(self) -> None:
        """End."""
        await self._periodic.stop()

    async def look(self) -> None:
        """Say what is hot here; at the home, spread what is hot anywhere."""
        try:
            self._say()
            if self._worker.id == HOME_ID:
                await self._spread()
        except (OSError, PequodError) as error:
            # The next look tries it again.
            log.warning("hot groups are spread later", extra={"error": str(error)})

    def _say(self) -> None:
        groups = [[one.group.hex(), one.cores, one.reads, one.writes] for one in self._heat.groups()]
        file = heat_file(self._folder, self._worker.id)
        beside = file.with_suffix(".heat.new")
        beside.write_text(json.dumps([self._clock(), self._heat.cores, groups]), "ascii")
        beside.replace(file)

    def _heat_of(self, name: str) -> HeatStatistics | None:
        """Return what a worker has said; None: nothing, or too long ago."""
        try:
            at_s, cores, groups = json.loads(heat_file(self._folder, name).read_text("ascii"))
        except FileNotFoundError:
            return None
        if self._clock() - at_s > _AGE_S_MAX:
            return None
        found = (GroupHeat(bytes.fromhex(group), busy, 0.0, reads, writes) for group, busy, reads, writes in groups)
        return HeatStatistics(cores, tuple(found))

    async def _spread(self) -> None:
        known = self._member.map
        asked = [Asked(server, self._heat_of(server.id)) for server in self._member.state.servers]
        if not (spreads := advise(known, asked, self._bounds).spreads):
            return
        await self._member.put_map(_spread_by(known, spreads))
        for one in spreads:
            facts = {"group": escaped(one.group), "workers": one.over, "before": one.before}
            log.info("the reads of a group are spread", extra={**facts, "cores": round(one.cores, 2)})


def _spread_by(known: ClusterMap, spreads: Sequence[Spread]) -> ClusterMap:
    """Return the next map, in which groups are read at other numbers of workers."""
    changed = known
    for one in spreads:
        changed = edits.spread(changed, one.group, one.over)
    return replace(changed, version=known.version_after)
