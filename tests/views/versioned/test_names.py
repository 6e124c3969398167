"""The names of columns, keys and views: each is taken as it is, or refused with a reason before anything is done."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pequod_views.versioned import (
    EarlierFormatError,
    NameRefusedError,
    ShareLeases,
    SqliteReplicas,
    StoredCell,
    Update,
    VersionedView,
    ViewCoordinator,
    ViewSweeper,
)
from pequod_views.versioned.rows import view_column

#: Names of the book-keeping's cells, as they are and as they were, and names with what separates names from kinds.
AWKWARD = (
    *("next", "ready", "from", "turn", "root", "gone", "own next", "own ready", "own from", "own turn"),
    *("column own next", "column ", "column", "own", "key x", "done x", "done ", "", " ", "  ", "\0", "a\0b", "|"),
    *("ünï", "名前", "😀", "e\u0301", "\u202e", "'; DROP TABLE cells --", "x" * 5000),
)


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    return [tmp_path / f"{number}.db" for number in range(3)]


@pytest.fixture
def store(paths: list[Path]) -> Iterator[SqliteReplicas]:
    store = SqliteReplicas(paths, synchronous="OFF")
    yield store
    store.close()


async def test_a_column_of_any_name_is_in_the_view(store: SqliteReplicas, leases: ShareLeases) -> None:
    view = VersionedView("by owner", "ticket", "owner", AWKWARD)
    coordinator, sweeper = ViewCoordinator(store, [view], leases), ViewSweeper(store, [view], leases, forget_s=0.0)
    wanted = {}
    for time, owner in enumerate(["kim", "ray", "kim", "cy"], 1):
        await coordinator.put(Update("ticket", "1", "owner", StoredCell(owner, 1000 * time)), 2)
        for number, name in enumerate(AWKWARD):
            # Times far above and below the stamps of turns.
            wanted[name] = StoredCell(f"{owner} {number}", (1 << (number % 62)) * 8 + time)
            await coordinator.put(Update("ticket", "1", name, wanted[name]), 2)
        await coordinator.settle()
        assert await coordinator.get_view(view, owner) == {"1": wanted}
        await sweeper.sweep()
        assert await coordinator.get_view(view, owner) == {"1": wanted}
    assert await coordinator.get_view(view, "kim") == {}


async def test_a_key_of_any_name_has_its_row_and_is_swept(store: SqliteReplicas, leases: ShareLeases) -> None:
    view = VersionedView("next", "from", "turn", ("ready",))
    coordinator, sweeper = ViewCoordinator(store, [view], leases), ViewSweeper(store, [view], leases)
    for key in AWKWARD:
        await coordinator.put(Update("from", key, "ready", StoredCell(key, 1)), 2)
        await coordinator.put(Update("from", key, "turn", StoredCell(key, 2)), 2)
    await coordinator.settle()
    for key in AWKWARD:
        assert await coordinator.get_view(view, key) == {key: {"ready": StoredCell(key, 1)}}
        # Another process has written it, and died before it was propagated.
        await store.put("from", key, {column: StoredCell("all", 3) for column in [("turn", "")]}, 3)  # type: ignore[misc]
    assert (await sweeper.sweep()).propagated == len(AWKWARD)
    assert await coordinator.get_view(view, "all") == {key: {"ready": StoredCell(key, 1)} for key in AWKWARD}


@given(st.sets(st.text(), min_size=1))
def test_no_two_columns_share_a_cell_and_none_is_of_the_book_keeping(names: set[str]) -> None:
    stored = {view_column(name, "1").name for name in names}
    assert len(stored) == len(names)
    assert all(name.startswith("column ") for name in stored)


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        (("", "ticket", "owner", ()), "under the view's name"),
        (("ticket", "ticket", "owner", ()), "its base table has this name"),
        (("v", "ticket", "owner", ("a", "b", "a")), "has it twice"),
        (("v", "ticket", "owner", ("owner",)), "has it twice"),
        (("v", "ticket", "owner", ("\ud800",)), "no Unicode"),
        (("\udfff", "ticket", "owner", ()), "no Unicode"),
    ],
)
def test_a_view_that_could_be_mistaken_is_refused(members: tuple[str, str, str, tuple[str, ...]], reason: str) -> None:
    with pytest.raises(NameRefusedError, match=reason):
        VersionedView(*members)


def test_half_a_character_is_refused_before_anything_is_written() -> None:
    for members in [
        ("\ud800", "k", "c", "v"),
        ("t", "\ud800", "c", "v"),
        ("t", "k", "\ud800", "v"),
        ("t", "k", "c", "\ud800"),
    ]:
        with pytest.raises(NameRefusedError, match="no Unicode"):
            Update(*members[:3], StoredCell(members[3], 1))


async def test_views_that_would_share_records_are_refused(store: SqliteReplicas, leases: ShareLeases) -> None:
    one = VersionedView("one", "ticket", "owner", ())
    for other in (one, VersionedView("other", "one", "owner", ())):
        with pytest.raises(NameRefusedError, match="has this name"):
            ViewCoordinator(store, [one, other], leases)
        with pytest.raises(NameRefusedError, match="has this name"):
            ViewSweeper(store, [one, other], leases)
    with pytest.raises(NameRefusedError, match="no Unicode"):
        await ViewCoordinator(store, [one], leases).get_view(one, "\ud800")


async def test_rows_of_an_earlier_version_are_refused_and_another_name_is_the_way_out(
    store: SqliteReplicas, paths: list[Path], leases: ShareLeases
) -> None:
    view = VersionedView("by_owner", "ticket", "owner", ("from", "title"))
    coordinator = ViewCoordinator(store, [view], leases)
    for number, (column, value) in enumerate({"owner": "kim", "from": "mail", "title": "help"}.items(), 1):
        await coordinator.put(Update("ticket", "1", column, StoredCell(value, number)), 2)
    await coordinator.settle()
    # As the earlier version wrote them: columns without a prefix, and so the book-keeping.
    for path in paths:
        with sqlite3.connect(path) as file:
            file.execute("UPDATE OR REPLACE cells SET name = substr(name, instr(name, ' ') + 1) WHERE tbl = 'by_owner'")
        file.close()
    with pytest.raises(EarlierFormatError, match="Give the view another name and sweep"):
        await coordinator.get_view(view, "kim")
    with pytest.raises(EarlierFormatError, match="Give the view another name and sweep"):
        await ViewSweeper(store, [view], leases).sweep()
    again = VersionedView("by_owner_2", "ticket", "owner", ("from", "title"))
    await ViewSweeper(store, [again], leases).sweep()
    rows = await ViewCoordinator(store, [again], leases).get_view(again, "kim")
    assert rows == {"1": {"from": StoredCell("mail", 2), "title": StoredCell("help", 3)}}
