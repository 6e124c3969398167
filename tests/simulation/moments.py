"""Places in the history of the simulated database."""

from __future__ import annotations

from typing import NamedTuple


class Moment(NamedTuple):
    """A position of a timeline, both counted as the simulated database does: from 0 on."""

    timeline: int
    position: int
