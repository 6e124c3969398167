"""The tables beside the views: which parts there are, who holds each, and how far it is.

    managers   name | serves | alive_until
    views      view | fingerprint | table | origins            what `install` was given last; whose data, see origins.py
    parts      view | first | last | owner | epoch | leased_until | server_id | revision | token | ...
    log        view | first | epoch | from_server, from_revision -> server_id, revision     views with `log = true`

The row of a part is its fence: every transaction that writes rows of the part begins with an update of this row, on the
condition that owner, epoch and position are what the writer believes. A writer that was taken for dead finds another
epoch, and its transaction is undone. All times are by the clock of the database. locking.py says in which order
transactions lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from pequod.freshness import NO_TOKEN, Token
from pequod_views.definition import DurableView
from pequod_views.errors import PartLostError
from pequod_views.targets import Target, TargetTransaction

#: A manager that was silent for this time is forgotten.
_FORGOTTEN_S: Final = 3600.0
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS {prefix}managers (
    name text PRIMARY KEY, serves text NOT NULL, alive_until {seconds} NOT NULL
)

CREATE TABLE IF NOT EXISTS {prefix}views (
    view text PRIMARY KEY, fingerprint text NOT NULL, table_name text NOT NULL, origins text NOT NULL DEFAULT ''
)

CREATE TABLE IF NOT EXISTS {prefix}parts (
    view text NOT NULL, first {key} NOT NULL, last {key}, fingerprint text NOT NULL,
    owner text NOT NULL DEFAULT '', epoch {number} NOT NULL, leased_until {seconds} NOT NULL DEFAULT 0,
    server_id text NOT NULL DEFAULT '', revision {number} NOT NULL DEFAULT 0, token text NOT NULL DEFAULT '',
    current_at {seconds} NOT NULL DEFAULT 0, changes {number} NOT NULL DEFAULT 0,
    unfit {number} NOT NULL DEFAULT 0, unfit_example text NOT NULL DEFAULT '', trouble text NOT NULL DEFAULT '',
    PRIMARY KEY (view, first)
)

CREATE TABLE IF NOT EXISTS {prefix}log (
    view text NOT NULL, first {key} NOT NULL, epoch {number} NOT NULL, owner text NOT NULL, at {seconds} NOT NULL,
    from_server text NOT NULL, from_revision {number} NOT NULL, server_id text NOT NULL, revision {number} NOT NULL,
    changes {number} NOT NULL, replaced {number} NOT NULL
)
"""


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


class PartLedger:
    """The tables beside the views of one target."""

    def __init__(self, target: Target) -> None:
        self._target = target
        dialect = target.dialect
        self._now = dialect.now_s
        self._skip = dialect.skip_locked
        self._for_update = dialect.for_update
        self._number = dialect.number_type
        self._managers, self._views, self._parts, self._log = (
            dialect.prefix + name for name in ("managers", "views", "parts", "log")
        )

    def statements(self) -> list[str]:
        """Return the statements that make the tables."""
        dialect = self._target.dialect
        text = _TABLES.format(
            prefix=dialect.prefix, key=dialect.bytes_type, seconds=dialect.seconds_type, number=dialect.number_type
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
            " ON CONFLICT (view) DO UPDATE SET fingerprint = excluded.fingerprint, table_name = excluded.table_name",
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
        return [*(f"DROP TABLE {table}" for table in tables), *self._target.dialect.removal]

    async def beat(self, name: str, serves: str, views: dict[str, DurableView], lease_s: float) -> Standing:
        """Say that a manager lives, renew the leases of its parts, and return how things stand.

        Args:
            serves: Names the set of views; managers share parts with those that serve the same set.
        """
        async with self._target.transaction() as transaction:
            fetch = transaction.fetch
            await fetch(
                f"INSERT INTO {self._managers} (name, serves, alive_until) VALUES ($1, $2, {self._now} + $3)"
                " ON CONFLICT (name) DO UPDATE SET alive_until = excluded.alive_until",
                name,
                serves,
                lease_s,
            )
            # A part that is locked is being written by a transaction that renews its lease itself.
            await fetch(
                f"UPDATE {self._parts} SET leased_until = {self._now} + $2 WHERE owner = $1 AND (view, first) IN"
                f" (SELECT view, first FROM {self._parts} WHERE owner = $1 ORDER BY view, first{self._skip})",
                name,
                lease_s,
            )
            await fetch(f"DELETE FROM {self._managers} WHERE alive_until < {self._now} - $1", _FORGOTTEN_S)
            managers = await fetch(
                f"SELECT name FROM {self._managers} WHERE serves = $1 AND alive_until >= {self._now} ORDER BY name",
                serves,
            )
            rows = await fetch(
                "SELECT view, first, last, fingerprint, epoch, owner, server_id, revision, token,"
                f" leased_until >= {self._now} FROM {self._parts} ORDER BY view, first"
            )
        known = [row for row in rows if row[0] in views and views[row[0]].fingerprint == row[3]]
        return Standing(
            tuple(one[0] for one in managers),
            len(known),
            tuple(_held(row) for row in known if row[5] == name),
            sum(row[5] == "" or not row[9] for row in known),
        )

    async def take(self, name: str, views: dict[str, DurableView], count: int, lease_s: float) -> list[HeldPart]:
        """Take parts that nobody holds, or whose holder is silent for longer than its lease."""
        async with self._target.transaction() as transaction:
            rows = await transaction.fetch(
                f"SELECT view, first, last, fingerprint FROM {self._parts}"
                f" WHERE owner = '' OR leased_until < {self._now} ORDER BY view, first{self._skip}"
            )
            known = [row for row in rows if row[0] in views and views[row[0]].fingerprint == row[3]]
            taken = []
            for view, first, _last, _fingerprint in known[:count]:
                taken += await transaction.fetch(
                    f"UPDATE {self._parts} SET owner = $3, epoch = epoch + 1, leased_until = {self._now} + $4"
                    f" WHERE view = $1 AND first = $2 AND (owner = '' OR leased_until < {self._now})"
                    " RETURNING view, first, last, fingerprint, epoch, owner, server_id, revision, token",
                    view,
                    first,
                    name,
                    lease_s,
                )
        return [_held(row) for row in taken]

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

    async def position(self, held: HeldPart) -> Position | None:
        """Return how far a held part is by the ledger.

        Raises:
            PartLostError: Another manager holds it.
        """
        async with self._target.transaction() as transaction:
            rows = await transaction.fetch(
                "SELECT view, first, last, fingerprint, epoch, owner, server_id, revision, token"
                f" FROM {self._parts} WHERE view = $1 AND first = $2 AND owner = $3 AND epoch = $4",
                held.part.view,
                held.part.first,
                held.owner,
                held.epoch,
            )
        if not rows:
            raise PartLostError(held.part.view, held.part.first)
        return _held(rows[0]).position

    async def advance(
        self, transaction: TargetTransaction, held: HeldPart, step: Advance, *, lease_s: float, is_logged: bool
    ) -> None:
        """Move a part to its next position, at the beginning of the transaction that writes the rows.

        Raises:
            PartLostError: Another manager holds it, or it is not at the position where the step begins.
        """
        part, before, after = held.part, step.before, step.after
        unfit = f"CAST($9 AS {self._number})"
        if not step.is_replacement:
            unfit = f"unfit + {unfit}"
        if await transaction.fetch(
            f"UPDATE {self._parts} SET server_id = $5, revision = $6, token = $7, current_at = {self._now} - $14,"
            f" leased_until = {self._now} + $8, changes = changes + $11, trouble = '', unfit = {unfit},"
            f" unfit_example = CASE WHEN {unfit} = 0 THEN '' WHEN $10 <> '' THEN $10 ELSE unfit_example END"
            " WHERE view = $1 AND first = $2 AND owner = $3 AND epoch = $4 AND server_id = $12 AND revision = $13"
            " RETURNING 1",
            part.view,
            part.first,
            held.owner,
            held.epoch,
            _hex(after),
            after.revision,
            str(after.token) if after.token.positions else "",
            lease_s,
            step.unfit_count,
            step.unfit_example.replace("\0", "\\0"),
            step.change_count,
            _hex(before),
            0 if before is None else before.revision,
            step.age_s,
        ) != [(1,)]:
            raise PartLostError(part.view, part.first)
        if is_logged:
            await transaction.fetch(
                f"INSERT INTO {self._log} VALUES ($1, $2, $3, $4, {self._now}, $5, $6, $7, $8, $9, $10)",
                part.view,
                part.first,
                held.epoch,
                held.owner,
                _hex(before),
                0 if before is None else before.revision,
                _hex(after),
                after.revision,
                step.change_count,
                int(step.is_replacement),
            )

    async def renew(self, transaction: TargetTransaction, held: HeldPart, lease_s: float) -> None:
        """Renew the lease of a part at the end of a transaction that took long."""
        await transaction.fetch(
            f"UPDATE {self._parts} SET leased_until = {self._now} + $3 WHERE view = $1 AND first = $2",
            held.part.view,
            held.part.first,
            lease_s,
        )

    async def tell_trouble(self, held: HeldPart, trouble: str) -> None:
        """Note why a part does not go on, for `status`; the next step forward wipes it out."""
        async with self._target.transaction() as transaction:
            await transaction.fetch(
                f"UPDATE {self._parts} SET trouble = $5 WHERE view = $1 AND first = $2 AND owner = $3 AND epoch = $4",
                held.part.view,
                held.part.first,
                held.owner,
                held.epoch,
                trouble.replace("\0", "\\0")[:500],
            )

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


def _hex(position: Position | None) -> str:
    return "" if position is None else f"{position.server_id:016x}"


def _held(row: tuple[Any, ...]) -> HeldPart:
    view, first, last, _fingerprint, epoch, owner, server_id, revision, token = row[:9]
    position = None
    if server_id:
        position = Position(int(server_id, 16), revision, Token.parse(token) if token else NO_TOKEN)
    return HeldPart(ViewPart(view, first, last), owner, epoch, position)
