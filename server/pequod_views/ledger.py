"""The tables beside the views: which parts there are, who holds each, and how far it is.

    managers   name | serves | alive_until
    views      view | fingerprint | table | origins            what `install` was given last; whose data, see origins.py
    parts      view | first | last | owner | epoch | leased_until | server_id | revision | token | ...
    log        view | first | epoch | from_server, from_revision -> server_id, revision     views with `log = true`

The row of a part is its fence, see fence.py. All times are by the clock of the database. locking.py says in which order
transactions lock.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

from pequod_views.definition import DurableView
from pequod_views.errors import NOTHING_INSTALLED, TargetUnfitError
from pequod_views.parts import HeldPart, PartCount, Standing, held_of
from pequod_views.targets import Target, TargetTransaction

#: A manager that was silent for this time is forgotten.
_FORGOTTEN_S: Final = 3600.0
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS {prefix}managers (
    name {name} PRIMARY KEY, serves text NOT NULL, alive_until {seconds} NOT NULL
){options}

CREATE TABLE IF NOT EXISTS {prefix}views (
    view {name} PRIMARY KEY, fingerprint text NOT NULL, table_name text NOT NULL, origins text NOT NULL DEFAULT ''
){options}

CREATE TABLE IF NOT EXISTS {prefix}parts (
    view {name} NOT NULL, first {key} NOT NULL, last {key}, fingerprint text NOT NULL,
    owner text NOT NULL DEFAULT '', epoch {number} NOT NULL, leased_until {seconds} NOT NULL DEFAULT 0,
    server_id text NOT NULL DEFAULT '', revision {number} NOT NULL DEFAULT 0, token text NOT NULL DEFAULT '',
    current_at {seconds} NOT NULL DEFAULT 0, changes {number} NOT NULL DEFAULT 0,
    unfit {number} NOT NULL DEFAULT 0, unfit_example text NOT NULL DEFAULT '', trouble text NOT NULL DEFAULT '',
    PRIMARY KEY (view, first)
){options}

CREATE TABLE IF NOT EXISTS {prefix}log (
    view {name} NOT NULL, first {key} NOT NULL, epoch {number} NOT NULL, owner text NOT NULL, at {seconds} NOT NULL,
    from_server text NOT NULL, from_revision {number} NOT NULL, server_id text NOT NULL, revision {number} NOT NULL,
    changes {number} NOT NULL, replaced {number} NOT NULL
){options}
"""


class PartLedger:
    """The tables beside the views of one target."""

    def __init__(self, target: Target) -> None:
        self._target = target
        dialect = target.dialect
        self._now = dialect.now_s
        self._skip = dialect.skip_locked
        self._for_update = dialect.for_update
        self._managers, self._views, self._parts, self._log = (
            dialect.prefix + name for name in ("managers", "views", "parts", "log")
        )

    def statements(self) -> list[str]:
        """Return the statements that make the tables."""
        dialect = self._target.dialect
        text = _TABLES.format(
            prefix=dialect.prefix,
            name=dialect.name_type,
            key=dialect.bytes_type,
            seconds=dialect.seconds_type,
            number=dialect.number_type,
            options=dialect.table_options,
        )
        return [*dialect.before, *text.strip().split("\n\n"), *dialect.after]

    async def cut(self, transaction: TargetTransaction, view: DurableView, splits: list[bytes]) -> None:
        """Give a view new parts, which nobody holds and which begin anew; holders of old ones are fenced off.

        Requires:
            The transaction has locked the parts.
        """
        rows = await transaction.fetch(f"SELECT coalesce(max(epoch), 0) FROM {self._parts} WHERE view = $1", view.name)
        epoch = rows[0][0] + 1
        await transaction.fetch(f"DELETE FROM {self._parts} WHERE view = $1", view.name)
        bounds = [view.first, *splits, view.last]
        for first, last in pairwise(bounds):
            await transaction.fetch(
                f"INSERT INTO {self._parts} (view, first, last, fingerprint, epoch) VALUES ($1, $2, $3, $4, $5)",
                view.name,
                first,
                last,
                view.fingerprint,
                epoch,
            )
        await transaction.fetch(
            f"INSERT INTO {self._views} (view, fingerprint, table_name) VALUES ($1, $2, $3)"
            f"{self._target.dialect.on_conflict('view', ('fingerprint', 'table_name'))}",
            view.name,
            view.fingerprint,
            view.table,
        )

    async def fingerprint(self, transaction: TargetTransaction, view: DurableView) -> str | None:
        """Return the fingerprint that a view was installed with; None if it was not."""
        rows = await transaction.fetch(f"SELECT fingerprint FROM {self._views} WHERE view = $1", view.name)
        return rows[0][0] if rows else None

    async def fence_off(self, transaction: TargetTransaction, view: str) -> None:
        """Take the parts of a view from their holders; positions stay.

        Requires:
            The transaction has locked the parts.
        """
        statement = f"UPDATE {self._parts} SET owner = '', epoch = epoch + 1, leased_until = 0, trouble = ''"
        await transaction.fetch(f"{statement} WHERE view = $1", view)

    async def is_made(self, transaction: TargetTransaction) -> bool:
        """Return whether a table of the ledger is there."""
        for table in (self._views, self._log, self._parts, self._managers):
            if await transaction.table_columns(table):
                return True
        return False

    async def installed(self, transaction: TargetTransaction) -> dict[str, str]:
        """Return the tables of the views that are installed, by view; nothing if the ledger is not installed."""
        if not await transaction.table_columns(self._views):
            return {}
        return dict(await transaction.fetch(f"SELECT view, table_name FROM {self._views} ORDER BY view"))

    async def remove(self, transaction: TargetTransaction, view: str) -> None:
        """Forget a view; holders of its parts are fenced off.

        Requires:
            The transaction has locked the parts.
        """
        for table in (self._parts, self._views, self._log):
            await transaction.fetch(f"DELETE FROM {table} WHERE view = $1", view)

    def removal_statements(self) -> list[str]:
        """Return the statements that remove what `statements` makes."""
        tables = (self._managers, self._parts, self._log, self._views)
        return [*(f"DROP TABLE IF EXISTS {table}" for table in tables), *self._target.dialect.removal]

    async def beat(self, name: str, serves: str, views: dict[str, DurableView], lease_s: float) -> Standing:
        """Say that a manager lives, renew the leases of its parts, and return how things stand.

        Args:
            serves: Names the set of views; managers share parts with those that serve the same set.

        Raises:
            TargetUnfitError: Nothing is installed; managers outlive `uninstall`.
        """
        async with self._target.transaction() as transaction:
            if not await transaction.table_columns(self._managers):
                raise TargetUnfitError(self._target.name, NOTHING_INSTALLED)
            fetch = transaction.fetch
            await fetch(
                f"INSERT INTO {self._managers} (name, serves, alive_until) VALUES ($1, $2, {self._now} + $3)"
                f"{self._target.dialect.on_conflict('name', ('alive_until',))}",
                name,
                serves,
                lease_s,
            )
            # A part that is locked is being written by a transaction that renews its lease itself.
            own = await fetch(
                f"SELECT view, first FROM {self._parts} WHERE owner = $1 ORDER BY view, first{self._skip}", name
            )
            await transaction.fetch_each(
                f"UPDATE {self._parts} SET leased_until = {self._now} + $3 WHERE view = $1 AND first = $2",
                [(*place, lease_s) for place in own],
            )
            await fetch(f"DELETE FROM {self._managers} WHERE alive_until < {self._now} - $1", _FORGOTTEN_S)
            managers = await fetch(
                f"SELECT name FROM {self._managers} WHERE serves = $1 AND alive_until >= {self._now} ORDER BY name",
                serves,
            )
            rows = await fetch(
                "SELECT view, first, last, fingerprint, epoch, owner, server_id, revision, token,"
                f" leased_until >= {self._now}, changes FROM {self._parts} ORDER BY view, first"
            )
        known = [row for row in rows if row[0] in views and views[row[0]].fingerprint == row[3]]
        return Standing(
            tuple(one[0] for one in managers),
            len(known),
            tuple(held_of(row) for row in known if row[5] == name),
            sum(row[5] == "" or not row[9] for row in known),
            tuple(PartCount((row[0], row[1]), row[5] if row[9] else "", row[4], row[10]) for row in known),
            tuple(sorted({row[0] for row in rows if row[0] in views and views[row[0]].fingerprint != row[3]})),
        )

    async def take(self, name: str, views: dict[str, DurableView], count: int, lease_s: float) -> list[HeldPart]:
        """Take parts that nobody holds, or whose holder is silent for longer than its lease."""
        async with self._target.transaction() as transaction:
            # They are locked, so they stay as they are.
            rows = await transaction.fetch(
                f"SELECT view, first, last, fingerprint, epoch, server_id, revision, token FROM {self._parts}"
                f" WHERE owner = '' OR leased_until < {self._now} ORDER BY view, first{self._skip}"
            )
            taken = [row for row in rows if row[0] in views and views[row[0]].fingerprint == row[3]][:count]
            await transaction.fetch_each(
                f"UPDATE {self._parts} SET owner = $3, epoch = epoch + 1, leased_until = {self._now} + $4"
                " WHERE view = $1 AND first = $2",
                [(row[0], row[1], name, lease_s) for row in taken],
            )
        return [held_of((*row[:4], row[4] + 1, name, *row[5:])) for row in taken]

    async def give(self, held: HeldPart) -> None:
        """Hand a part over to another manager."""
        async with self._target.transaction() as transaction:
            await transaction.fetch(
                f"UPDATE {self._parts} SET owner = '', leased_until = 0"
                " WHERE view = $1 AND first = $2 AND owner = $3 AND epoch = $4",
                held.part.view,
                held.part.first,
                held.owner,
                held.epoch,
            )

    async def leave(self, name: str) -> None:
        """Hand over all parts of a manager that ends."""
        async with self._target.transaction() as transaction:
            await transaction.fetch(f"DELETE FROM {self._managers} WHERE name = $1", name)
            await transaction.fetch(
                f"SELECT 1 FROM {self._parts} WHERE owner = $1 ORDER BY view, first{self._for_update}", name
            )
            await transaction.fetch(f"UPDATE {self._parts} SET owner = '', leased_until = 0 WHERE owner = $1", name)

    async def shown(self) -> list[dict[str, Any]]:
        """Return the rows of all parts for `status`; nothing if the ledger is not installed."""
        names = (
            "view", "first", "last", "fingerprint", "owner", "epoch", "server_id", "revision", "token", "changes",
            "unfit", "unfit_example", "trouble",
        )  # fmt: skip
        async with self._target.transaction() as transaction:
            if not await transaction.table_columns(self._parts):
                return []
            rows = await transaction.fetch(
                f"SELECT {', '.join(names)}, CASE WHEN current_at > 0 THEN {self._now} - current_at END,"
                f" owner <> '' AND leased_until >= {self._now} FROM {self._parts} ORDER BY view, first"
            )
        return [dict(zip((*names, "age_s", "is_held"), row, strict=True)) for row in rows]
