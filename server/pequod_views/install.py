"""Make the tables of views, compare them with their definition, and take views out again.

MariaDB commits where a table is made or dropped, so the order may end anywhere, and the next call does the rest:

    install      tables of the ledger | parts, which begin anew | tables of views     a new table meets no old position
    uninstall    tables of views | their parts | tables of the ledger                 what is left has its part
"""

from __future__ import annotations

from collections.abc import Sequence

from pequod.client import AsyncClient
from pequod_views.definition import DurableView
from pequod_views.errors import NOTHING_INSTALLED, TargetUnfitError
from pequod_views.ledger import PartLedger
from pequod_views.locking import lock_ledger
from pequod_views.origins import NO_ORIGINS, OriginNotes, demand_same, origins_of
from pequod_views.targets import Target, TargetTransaction


async def install(
    target: Target, client: AsyncClient, views: Sequence[DurableView], *, recut: bool = False, adopt: bool = False
) -> list[str]:
    """Make what views need in a database; return a line for each thing that was done.

    All of it is one transaction, but in MariaDB: there `install` does the rest after one that was killed.

    A view whose definition is the same as before keeps its table, parts and positions. One with another definition, or
    whose table is gone, begins anew: its rows are replaced by what differs.

    Args:
        client: Asked whose data it shows, and where to cut views of several parts.
        recut: Cut all views again, so that their parts are of equal size.
        adopt: Have the views show this server, though they were installed with another one.

    Raises:
        TargetUnfitError: A table is there and has other columns.
        OtherServerError: A view was installed with another server.
        TargetAwayError: The database does not answer.
        PequodError: The server refuses, or does not answer.
    """
    ledger, notes, done = PartLedger(target), OriginNotes(target), list[str]()
    origins = await origins_of(client, views[0])
    splits = {view.name: await _splits(client, view) for view in views if view.part_count > 1}
    async with target.transaction() as transaction:
        await transaction.take_turn()
        noted = {view.name: await notes.of(transaction, view.name) for view in views}
        others = [view for view in views if noted[view.name] and noted[view.name].isdisjoint(origins)]
        if others and not adopt:
            demand_same(others[0].name, noted[others[0].name], origins)
        new = [view for view in views if not await transaction.has_table(view)]
        there = [view for view in views if view not in new]
        problems = [text for view in there for text in await transaction.table_problems(view)]
        if problems:
            raise TargetUnfitError(target.name, "; ".join(problems))
        for statement in ledger.statements():
            await transaction.fetch(statement)
        await notes.make(transaction)
        befores = {view.name: await ledger.fingerprint(transaction, view) for view in views}
        changed = [view for view in views if recut or view in new or befores[view.name] != view.fingerprint]
        await transaction.lock_parts([view.name for view in (*changed, *others)])
        for view in changed:
            before, bounds = befores[view.name], splits.get(view.name, [])
            await ledger.cut(transaction, view, bounds)
            if view in there:
                await _delete_outside(transaction, view)
            done.append(
                f"{view.name}: {_why(view, before, is_made=view in new)}; its range has {len(bounds) + 1} parts"
            )
        for view in others:
            await ledger.fence_off(transaction, view.name)
            done.append(f"{view.name}: shows this server from now on; what differs is replaced")
        for view in views:
            kept = noted[view.name] - origins if view not in others else NO_ORIGINS
            await notes.note(transaction, view.name, origins | kept)
        for view in new:
            await transaction.make_table(view)
    return [*(f"{view.name}: made the table {view.table}" for view in new), *done]


async def uninstall(target: Target, names: Sequence[str] = (), *, drops_tables: bool = False) -> list[str]:
    """Take views out of a database; return a line for each thing that was done.

    All of it is one transaction, but in MariaDB: there `uninstall` does the rest after one that was killed. Managers
    lose the parts at once: a transaction of theirs that comes later is undone. With the last view everything beside the
    views goes, too.

    Args:
        names: Views; none: all that are installed.
        drops_tables: Drop the tables as well; otherwise they stay with the rows that they have.

    Raises:
        TargetUnfitError: A view is not installed.
        TargetRefusedError: Other things in the database depend on what would go.
        TargetAwayError: The database does not answer.
    """
    ledger, done = PartLedger(target), list[str]()
    async with target.transaction() as transaction:
        await transaction.take_turn()
        there = await ledger.installed(transaction)
        missing = [name for name in names if name not in there]
        if missing:
            raise TargetUnfitError(target.name, f"not installed: {', '.join(missing)}")
        leaving = list(names or there)
        if there and there.keys() <= set(leaving):
            await lock_ledger(target.dialect, transaction)
        await transaction.lock_parts(leaving)
        for name in leaving if drops_tables else ():
            await transaction.drop_table(there[name])
        for name in leaving:
            await ledger.remove(transaction, name)
            done.append(f"{name}: {'dropped' if drops_tables else 'kept'} the table {there[name]}")
        if not await ledger.installed(transaction) and await ledger.is_made(transaction):
            for statement in ledger.removal_statements():
                await transaction.fetch(statement)
            done.append("no view is left; removed what was beside them")
    return done


async def check(target: Target, views: Sequence[DurableView]) -> list[str]:
    """Return what is wrong with the tables of views; nothing if all is well.

    Raises:
        TargetAwayError: The database does not answer.
    """
    ledger, problems = PartLedger(target), list[str]()
    async with target.transaction() as transaction:
        if not await transaction.table_columns(f"{target.dialect.prefix}parts"):
            return [NOTHING_INSTALLED]
        for view in views:
            problems += await transaction.table_problems(view)
            before = await ledger.fingerprint(transaction, view)
            if before is None:
                problems.append(f"{view.name}: it is not installed; run `pequod views install`")
            elif before != view.fingerprint:
                problems.append(
                    f"{view.name}: it is installed with another definition; run `pequod views install`, "
                    "which keeps the table and replaces what differs"
                )
            elif not await OriginNotes(target).of(transaction, view.name):
                problems.append(
                    f"{view.name}: an earlier version has installed it, which did not note the server; "
                    "run `pequod views install`"
                )
    return problems


def _why(view: DurableView, before: str | None, *, is_made: bool) -> str:
    if before is None:
        return "is new"
    if before != view.fingerprint:
        return "has changed"
    return "had lost its table" if is_made else "is cut anew"


async def _delete_outside(transaction: TargetTransaction, view: DurableView) -> None:
    """Delete the rows that an earlier definition had outside the present range."""
    await transaction.delete_others(view, b"", view.first, [])
    if view.last is not None:
        await transaction.delete_others(view, view.last, None, [])


async def _splits(client: AsyncClient, view: DurableView) -> list[bytes]:
    # Rows that were not computed yet do not count.
    await client.count(view.first, view.last)
    found = await client.splits(view.part_count, view.first, view.last)
    return [split for split in found if view.first < split and (view.last is None or split < view.last)]
