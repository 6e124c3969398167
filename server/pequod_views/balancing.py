"""A manager with more to write than others hands parts to them, and splits a part that is most of its load.

    at each beat    rates of all parts, by the ledger          the manager with the greatest load goes on
                    an exchange of parts evens the loads       hand them over
                    one part is the greater half of it         split it at the middle of its changes

All managers find the same rates, so one of them acts; if two do, the ledger lets one have each part.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from pequod.escapes import shown
from pequod_views.errors import TargetRefusedError
from pequod_views.followed import FollowedPart
from pequod_views.load import PartLoad, Rates, loads_of, middle, moves
from pequod_views.moving import PartMover
from pequod_views.parts import Place, Standing
from pequod_views.targets import Target

log = logging.getLogger("pequod.views")

#: Beats without a step after one, until the rates show what it has changed.
_CALM_BEATS: Final = 4
#: A part is split if it has this share of the load of its manager, and that manager this many times the mean.
_SHARE_MIN: Final = 0.5
_TIMES_MIN: Final = 1.3


class Balancer:
    """Evens out what the managers of a ledger have to write.

    Args:
        name: Of the manager that it is part of.
        above_rows_per_s: Managers with less than this leave all as it is.
    """

    def __init__(self, target: Target, name: str, above_rows_per_s: float) -> None:
        self._mover = PartMover(target)
        self._name = name
        self._above_rows_per_s = above_rows_per_s
        self._rates = Rates()
        self._calm_beats = _CALM_BEATS
        #: Parts that this manager has split, and parts that it has handed over.
        self.split_count = 0
        self.moved_count = 0

    async def consider(self, standing: Standing, held: Mapping[Place, FollowedPart], now_s: float) -> None:
        """Take a step if one is due.

        Args:
            standing: What the ledger has shown at this beat.
            held: The parts of this manager.
        """
        rates = self._rates.take({one.place: one.changes for one in standing.counts}, now_s)
        parts = [PartLoad(one.place, one.owner, one.epoch, rates[one.place]) for one in standing.counts]
        self._calm_beats -= 1
        if self._calm_beats > 0 or len(standing.managers) < 2:
            return
        loads = loads_of(parts, standing.managers)
        own = loads.get(self._name, 0.0)
        if own < self._above_rows_per_s or own < max(loads.values()):
            return
        moving = moves(parts, standing.managers)
        if moving:
            done = await self._mover.hand_over(parts, moving)
            self._note("moved", len(done))
            self.moved_count += len(done)
            return
        hottest = max((one for one in parts if one.owner == self._name), key=lambda one: one.rows_per_s)
        is_hot = hottest.rows_per_s >= _SHARE_MIN * own and own >= _TIMES_MIN * sum(loads.values()) / len(loads)
        if is_hot and hottest.place in held:
            await self._split(held[hottest.place])

    async def _split(self, part: FollowedPart) -> None:
        at = middle(part.recent_keys(), part.held.part.first)
        if at is None:
            return
        try:
            await self._mover.split(part.view.name, at)
        except TargetRefusedError as error:
            self._note(f"{part} is not split: {error.reason};", 0)
            return
        log.info("split %s at %s", part, shown(at))
        self.split_count += 1
        self._note("split", 1)

    def _note(self, what: str, count: int) -> None:
        """Be calm for a while."""
        self._calm_beats = _CALM_BEATS
        log.info("%s %d parts to even out the load", what, count)
