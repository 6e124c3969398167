"""Group-by views: what a reader sees is what SQL says of the base, whatever was propagated in between."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pequod_views.versioned import (
    AggregateRefusedError,
    ColumnCondition,
    GroupAggregate,
    GroupView,
    NameRefusedError,
    ShareLeases,
    SqliteReplicas,
    StoredCell,
    StoreSession,
    Update,
    ViewCoordinator,
    ViewRefusedError,
    ViewSweeper,
)

AGGREGATES = tuple(
    GroupAggregate.of(name, text)
    for name, text in {
        "tickets": "count", "rated": "count title", "hours": "sum hours", "least": "min hours", "most": "max  hours",
    }.items()
)  # fmt: skip
OPEN = (ColumnCondition.of('status != "closed"'),)
BY_STATUS = GroupView("work", "ticket", "assigned", AGGREGATES, ("status",), OPEN)
QUERY = """
    SELECT status, count(*), count(title), sum(hours), min(hours), max(hours) FROM ticket
    WHERE assigned = ? AND status != 'closed' GROUP BY status
"""


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteReplicas]:
    store = SqliteReplicas([tmp_path / f"{number}.db" for number in range(3)], synchronous="OFF")
    yield store
    store.close()


def in_sql(rows: dict[str, dict[str, str | None]], key: str) -> dict[tuple[str | None, ...], dict[str, str | None]]:
    """Return the groups as SQLite has them of a table of the same records."""
    with sqlite3.connect(":memory:") as base:
        base.execute("CREATE TABLE ticket (assigned, status, title, hours INTEGER)")
        for row in rows.values():
            values = [row.get(column) for column in ("assigned", "status", "title", "hours")]
            base.execute("INSERT INTO ticket VALUES (?, ?, ?, ?)", values)
        found = base.execute(QUERY, (key,)).fetchall()
    base.close()
    names = [aggregate.name for aggregate in AGGREGATES]
    return {
        (status,): {name: None if value is None else str(value) for name, value in zip(names, values, strict=True)}
        for status, *values in found
    }


@pytest.mark.parametrize("seed", range(3))
async def test_groups_are_those_of_sql(store: SqliteReplicas, leases: ShareLeases, seed: int) -> None:
    rng, coordinator = random.Random(seed), ViewCoordinator(store, [BY_STATUS.rows_view], leases)
    session, rows = StoreSession(), dict[str, dict[str, str | None]]()
    choices = {"assigned": ["kim", "cy", None], "status": ["open", "new", "closed", None], "title": ["x", None],
               "hours": ["1", "7", "-20", None]}  # fmt: skip
    for time in range(1, 41):
        key = f"t{rng.randrange(6)}"
        written = {column: rng.choice(choices[column]) for column in rng.sample(sorted(choices), rng.choice([1, 2, 4]))}
        rows.setdefault(key, {}).update(written)
        updates = [Update("ticket", key, column, StoredCell(value, time)) for column, value in written.items()]
        await coordinator.put_columns(updates, 2, session)
        if time % 5 == 0:
            for name in ("kim", "cy"):
                assert await coordinator.get_groups(BY_STATUS, name, session) == in_sql(rows, name)


async def test_writes_that_arrive_in_any_order_leave_the_groups_of_the_newest(
    store: SqliteReplicas, leases: ShareLeases
) -> None:
    coordinator = ViewCoordinator(store, [BY_STATUS.rows_view], leases)
    updates = [
        Update("ticket", "1", "status", StoredCell("closed", 4)),
        Update("ticket", "1", "status", StoredCell("open", 9)),
        Update("ticket", "1", "assigned", StoredCell("kim", 1)),
        Update("ticket", "1", "hours", StoredCell("2.50", 2)),
        Update("ticket", "1", "hours", StoredCell("many", 1)),
        Update("ticket", "2", "assigned", StoredCell("kim", 1)),
        Update("ticket", "2", "status", StoredCell("open", 1)),
        Update("ticket", "2", "hours", StoredCell("lots", 1)),
    ]
    for seed in range(3):
        random.Random(seed).shuffle(updates)
        for update in updates:
            await coordinator.put(update, 2)
        await coordinator.settle()
        numbers = {"hours": "2.5", "least": "2.5", "most": "2.5"}
        assert await coordinator.get_groups(BY_STATUS, "kim") == {("open",): {"tickets": "2", "rated": "0", **numbers}}


def test_numbers_keep_all_their_digits() -> None:
    view = GroupView("v", "b", "k", (GroupAggregate.of("all", "sum n"), GroupAggregate.of("least", "min n")))
    big = "9" * 5000
    rows = {
        str(at): {"n": StoredCell(text, 1)} for at, text in enumerate([big, "0.1", "0.2", "-0.30", "1", "x", "1e5"])
    }
    assert view.groups_of(rows) == {(): {"all": "1" + "0" * 5000, "least": "-0.3"}}
    assert view.groups_of({"1": {"n": StoredCell("-0.0", 1)}}) == {(): {"all": "0", "least": "0"}}
    assert view.groups_of({"1": {"n": StoredCell(None, 1)}, "2": {}}) == {(): {"all": None, "least": None}}
    assert view.groups_of({}) == {}


def test_what_cannot_be_is_refused() -> None:
    for text in ("", "avg hours", "sum", "total x", "countx"):
        with pytest.raises(AggregateRefusedError, match="it is `count`, or"):
            GroupAggregate.of("a", text)
    one = GroupAggregate.of("a", "count")
    for aggregates in ((), (one, one)):
        with pytest.raises(AggregateRefusedError):
            GroupView("v", "b", "k", aggregates)
    with pytest.raises(NameRefusedError, match="has it twice"):
        GroupView("v", "b", "k", (one,), ("k",))


async def test_where_rows_are_asked_for_a_view_of_groups_is_refused(store: SqliteReplicas, leases: ShareLeases) -> None:
    groups: Any = BY_STATUS
    text = "the view 'work' is one of groups: give its `rows_view` here, and the view itself to `get_groups`"
    for make in (ViewCoordinator, ViewSweeper):
        with pytest.raises(ViewRefusedError, match=text):
            make(store, [groups], leases)
    coordinator = ViewCoordinator(store, [BY_STATUS.rows_view], leases)
    with pytest.raises(ViewRefusedError, match=text):
        await coordinator.get_view(groups, "kim")
    assert await coordinator.get_groups(BY_STATUS, "kim") == {}
