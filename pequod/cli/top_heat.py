"""The hot groups of keys in `top`: what each takes of the server's processor time, and where it is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pequod.cli.cluster_asking import state_of_server
from pequod.cli.text import escaped

if TYPE_CHECKING:
    from pequod.answers.heat import HeatStatistics
    from pequod.cluster.owners import Owners

#: Groups that are shown, and what they take of a core at the least.
_SHOWN: Final = 3
_CORES_MIN: Final = 0.001


@dataclass(frozen=True, slots=True)
class HotGroup:
    """A group of keys that processor time goes to."""

    group: str
    cores: float
    #: Of what the server takes, at most 1; None: the caller is not shown that.
    share: float | None
    #: Commands a second.
    reads: float
    writes: float
    #: The ids of the servers that clients read it at; empty: there is no cluster.
    read_at: tuple[str, ...]

    @property
    def line(self) -> str:
        """Return it in words."""
        share = "" if self.share is None else f" ({self.share:.0%})"
        rates = f"{self.reads:,.0f} reads/s, {self.writes:,.0f} writes/s"
        place = f", read at {', '.join(self.read_at)}" if self.read_at else ""
        return f"hot {self.group}: {self.cores:.3f} cores{share}, {rates}{place}"


class ReadPlaces:
    """Tells where groups are read, by the map of the server's cluster.

    Args:
        target: The server; a cluster as a target is asked nothing.
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self._has_map = "://" not in target

    def hot_groups(self, heat: HeatStatistics) -> tuple[HotGroup, ...]:
        """Return the groups that take most, the first the most."""
        hot = [one for one in heat.groups[:_SHOWN] if one.cores >= _CORES_MIN]
        owners = self._owners() if hot else None
        return tuple(
            HotGroup(
                escaped(one.group),
                one.cores,
                min(1.0, one.cores / heat.cores) if heat.cores else None,
                one.reads,
                one.writes,
                () if owners is None else owners.places_of(one.group),
            )
            for one in hot
        )

    def _owners(self) -> Owners | None:
        import asyncio

        from pequod.cluster.owners import Owners
        from pequod.errors import NoClusterError, PequodError

        if not self._has_map:
            return None
        try:
            return Owners(asyncio.run(state_of_server(self._target)))
        except NoClusterError:
            self._has_map = False
        except PequodError:
            # What else there is to see is shown; the next look asks again.
            pass
        return None
