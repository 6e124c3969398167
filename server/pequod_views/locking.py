"""Locks of transactions that install and uninstall beside managers.

All transactions lock in one order, or two might wait for each other: managers, parts by view and first key, the log,
then the tables of views and their rows. A manager that takes in changes has one part and rows of its view.
"""

from __future__ import annotations

from pequod_views.targets import TargetDialect, TargetTransaction


async def lock_ledger(dialect: TargetDialect, transaction: TargetTransaction) -> None:
    """Have the whole ledger for this transaction alone, before it is removed.

    Rows are not enough: a manager that waits for one has a lock of the table, for which the removal would wait.
    """
    if dialect.lock_tables:
        tables = ", ".join(dialect.prefix + name for name in ("managers", "parts", "log", "views"))
        await transaction.fetch(dialect.lock_tables.format(tables=tables))
