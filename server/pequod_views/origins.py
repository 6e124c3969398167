"""Whose data a view shows: a table goes on with the server that it was installed with, and with no other one.

    ledger      karma | 9f3a61c2                 the databases behind the server, or the data in its memory
    server      9f3a61c2 a5b4d803                one in common: it may fill the table
                77e0b1c4                         none: it is another one, and is refused

A database has one name on all servers, after restarts and after failovers. Data in memory have a name for as long as
they live: a server that starts empty is another one, and a server that starts from a snapshot is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import aclosing
from typing import Final, TypeAlias

from pequod.client import AsyncClient
from pequod.errors import UnavailableError
from pequod_views.definition import DurableView
from pequod_views.errors import OtherServerError
from pequod_views.targets import Target, TargetTransaction

#: As the ledger keeps them: words in hexadecimal.
Origins: TypeAlias = frozenset[str]
NO_ORIGINS: Final[Origins] = frozenset()


def as_origins(names: Sequence[bytes]) -> Origins:
    """Return the names that a server sends as the ledger keeps them."""
    return frozenset(name.hex() for name in names)


async def origins_of(client: AsyncClient, view: DurableView) -> Origins:
    """Return the names of the data that a server shows.

    Args:
        view: Any: who may read its range may ask.

    Raises:
        UnavailableError: The server does not answer, or does not know its database yet.
    """
    # One key: no more of the range is loaded for it.
    async with aclosing(client.watch(view.first, view.first + b"\0", reconnect_s=0.0)) as events:
        begin = await anext(events)
    return known(as_origins(begin.origins))


def known(origins: Origins) -> Origins:
    """Return names that are known.

    Raises:
        UnavailableError: There is none.
    """
    if not origins:
        raise UnavailableError(
            "the server", "it does not name its data: its database does not answer, or it is of an earlier version"
        )
    return origins


def demand_same(view: str, noted: Origins, found: Origins) -> None:
    """Pass if a server shows the data that a view was installed with.

    Raises:
        OtherServerError: It shows others.
    """
    if noted.isdisjoint(found):
        raise OtherServerError(view, shown(noted), shown(found))


def shown(origins: Origins) -> str:
    """Return names as the ledger and messages have them."""
    return " ".join(sorted(origins))


class OriginNotes:
    """What the ledger of a target notes of the data that views show, in its table of views."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._views = f"{target.dialect.prefix}views"

    async def make(self, transaction: TargetTransaction) -> None:
        """Have a ledger of an earlier version take notes."""
        if "origins" not in await transaction.table_columns(self._views):
            await transaction.fetch(f"ALTER TABLE {self._views} ADD COLUMN origins text NOT NULL DEFAULT ''")

    async def of(self, transaction: TargetTransaction, view: str) -> Origins:
        """Return whose data a view shows; nothing if it is not installed, or an earlier version has installed it."""
        if "origins" not in await transaction.table_columns(self._views):
            return NO_ORIGINS
        rows = await transaction.fetch(f"SELECT origins FROM {self._views} WHERE view = $1", view)
        return frozenset(rows[0][0].split()) if rows else NO_ORIGINS

    async def of_all(self, views: Iterable[str]) -> dict[str, Origins]:
        """Return whose data views show.

        Raises:
            TargetAwayError: The database does not answer.
        """
        async with self._target.transaction() as transaction:
            return {view: await self.of(transaction, view) for view in views}

    async def note(self, transaction: TargetTransaction, view: str, origins: Origins) -> None:
        """Note whose data a view shows."""
        await transaction.fetch(f"UPDATE {self._views} SET origins = $2 WHERE view = $1", view, shown(origins))


async def check_server(target: Target, client: AsyncClient, views: Sequence[DurableView]) -> None:
    """Pass if a server is the one that views were installed with.

    Raises:
        OtherServerError: It is another one.
        UnavailableError: It does not answer, or does not know its database yet.
        TargetAwayError: The database does not answer.
    """
    found = await origins_of(client, views[0])
    for name, noted in (await OriginNotes(target).of_all(view.name for view in views)).items():
        demand_same(name, noted, found)
