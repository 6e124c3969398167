"""What followers and their manager share: the parts that are followed, the settings, and counts."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pequod.errors import PequodError
from pequod.escapes import shown
from pequod_views.definition import DurableView
from pequod_views.parts import HeldPart, Place, Position
from pequod_views.steps import PartStep

#: Keys that are remembered of a part, and of one step at most, about.
_RECENT: Final = 1024
_OF_STEP: Final = 32


@dataclass(slots=True)
class Counts:
    """What a manager has done since its start."""

    transactions: int = 0
    changes: int = 0
    replacements: int = 0
    target_failures: int = 0
    server_failures: int = 0
    parts_lost: int = 0


@dataclass(frozen=True, slots=True)
class FollowerSettings:
    """How followers work."""

    lease_s: float = 4.0
    #: After this time without changes the position is moved on, so that tokens are reached.
    progress_s: float = 1.0
    #: Changes that wait for a transaction; beyond it the server keeps them.
    changes_max: int = 20_000
    #: Installed before the rows of a range are read.
    joins: str = ""
    #: With as many rows a second a manager hands parts to others and splits a hot one; 0: it never does.
    balance_above: float = 0.0


@dataclass(slots=True, eq=False)
class FollowedPart:
    """A part that a manager holds."""

    view: DurableView
    held: HeldPart
    #: Of the last transaction; None if the part was never filled.
    position: Position | None = None
    #: Rows of the server that do not fit the view.
    unfit_count: int = 0
    #: The server cannot continue after the position, so all rows are read again.
    is_behind: bool = False
    #: It is followed alone, since the server or the target has refused something of it.
    is_apart: bool = False
    #: Whether this manager still holds it, as far as it knows.
    is_held: bool = True
    #: Why it does not go on; empty if it does.
    trouble: str = ""
    #: When the position was written last.
    written_s: float = 0.0
    #: Some keys of the latest changes, by which the part is split if it is hot.
    _recent: deque[bytes] = field(default_factory=lambda: deque(maxlen=_RECENT))

    def __str__(self) -> str:
        return f"{self.held.part.view} from {shown(self.held.part.first)}"

    @property
    def needs_rows(self) -> bool:
        """Whether its rows have to be read as a whole."""
        return self.position is None or self.is_behind

    @property
    def goes_on(self) -> bool:
        """Whether it can go on by changes, together with others."""
        return not self.needs_rows and not self.is_apart

    def read(self, ledger: Mapping[Place, tuple[HeldPart, int]]) -> bool:
        """Take over how far the part is by the ledger; return whether its manager holds it there as it took it."""
        found = ledger.get(self.held.part.place)
        if found is None or found[0].epoch != self.held.epoch:
            return False
        self.position, self.unfit_count = found[0].position, found[1]
        return True

    def take(self, step: PartStep, now_s: float) -> None:
        """Note a step that was committed."""
        self.position, self.written_s = step.advance.after, now_s
        self.unfit_count += step.advance.unfit_count
        for keys in ([row[0] for row in step.written[:: 1 + len(step.written) // _OF_STEP]], step.deleted[:_OF_STEP]):
            self._recent.extend(key for key in keys if isinstance(key, bytes))

    def recent_keys(self) -> list[bytes]:
        """Return some keys of the latest changes."""
        return list(self._recent)


class PartRefusedError(PequodError):
    """The server refuses to tell a part's changes, or the target refuses its rows; nothing was written."""

    def __init__(self, part: FollowedPart, reason: str) -> None:
        super().__init__(reason)
        self.part = part
        self.reason = reason
