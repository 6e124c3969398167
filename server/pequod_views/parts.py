"""Parts of views as the ledger has them: who holds each, and how far it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from pequod.freshness import NO_TOKEN, Token

#: The name of a view and the first key of a part: what names the part.
Place: TypeAlias = tuple[str, bytes]


@dataclass(frozen=True, slots=True)
class Position:
    """A state of the server that a part shows."""

    server_id: int
    revision: int
    token: Token = NO_TOKEN


@dataclass(frozen=True, slots=True)
class ViewPart:
    """A part of a view."""

    view: str
    first: bytes
    last: bytes | None

    @property
    def place(self) -> Place:
        """What names the part."""
        return self.view, self.first


@dataclass(frozen=True, slots=True)
class HeldPart:
    """A part as its holder took it."""

    part: ViewPart
    owner: str
    epoch: int
    #: None if the part was never filled.
    position: Position | None


@dataclass(frozen=True, slots=True)
class Advance:
    """A transaction's step of a part from one position to the next."""

    before: Position | None
    after: Position
    #: Changes that the step takes in; of a replacement, the rows.
    change_count: int
    is_replacement: bool
    #: The number of rows that do not fit the view: after a replacement, else how it changes.
    unfit_count: int
    #: Why one of them does not fit; empty if none is known.
    unfit_example: str
    #: How old the server's state is, as far as it knows.
    age_s: float


@dataclass(frozen=True, slots=True)
class PartCount:
    """A part of any manager, with the changes that it has had so far."""

    place: Place
    owner: str
    epoch: int
    changes: int


@dataclass(frozen=True, slots=True)
class Standing:
    """What a manager learns at each beat."""

    #: The names of the managers that live and serve the same views, in order.
    managers: tuple[str, ...]
    #: All parts of its views.
    part_count: int
    #: Those that this manager holds by the ledger.
    held: tuple[HeldPart, ...]
    #: The number of parts that nobody holds.
    free_count: int
    #: All parts of its views, with their changes.
    counts: tuple[PartCount, ...] = ()
    #: Its views that were installed with another definition since it was started, in order.
    changed: tuple[str, ...] = ()


def held_of(row: tuple[Any, ...]) -> HeldPart:
    """Return a part by a row of the ledger.

    Args:
        row: view, first, last, fingerprint, epoch, owner, server_id, revision, token.
    """
    view, first, last, _fingerprint, epoch, owner, server_id, revision, token = row[:9]
    position = None
    if server_id:
        position = Position(int(server_id, 16), revision, Token.parse(token) if token else NO_TOKEN)
    return HeldPart(ViewPart(view, first, last), owner, epoch, position)
