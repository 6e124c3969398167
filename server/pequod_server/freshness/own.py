"""The names of the states of a server without a database: its number, or the folder in which its data outlive it."""

from __future__ import annotations

from typing import Protocol

from pequod.freshness import NO_TIMELINE, database_of
from pequod_server.backing import History


class OwnHistory(Protocol):
    """The history that the revisions of a server belong to."""

    @property
    def history(self) -> History:
        """The history; the same object until another timeline begins."""
        ...


class LifeHistory:
    """The history of a server whose data die with it."""

    __slots__ = ("history",)

    def __init__(self, server_id: int) -> None:
        self.history = History(database_of("server", server_id), NO_TIMELINE)
