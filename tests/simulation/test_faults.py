"""Faults that are planted in the server, the client or the database's store: the simulation finds each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from unittest.mock import patch

from pequod_server.backing import (
    Changes,
    ConditionalChange,
    History,
    Landing,
    Place,
    RowChange,
    WrittenIf,
)
from pequod_server.backing.store import SequenceHorizon, WrittenThrough
from pequod_server.database.followed import Followed, Reached
from pequod_server.database.gate import Gate
from pequod_server.database.intake import Intake
from pequod_server.database.loader import Loader

from pequod.freshness import Token
from pequod.language.conditions import MET, Unmet
from tests.simulation.framing import Report
from tests.simulation.run import simulate
from tests.simulation.store import SimulatedStore

#: Schedules in which a planted fault must show; most of them show in the first ones.
FAULT_SCHEDULES = 30


def first_wrong(first: int = 0) -> Report | None:
    """Return the first report of a fault, from a schedule on."""
    schedules = range(first, first + FAULT_SCHEDULES)
    return next((report for report in map(simulate, schedules) if report.wrong), None)


def is_found(wrong: Report | None) -> bool:
    return wrong is not None and "WrongError" in wrong.wrong


# Writes whose clients give up.


def test_a_write_that_is_done_twice_is_found_where_its_client_gave_up() -> None:
    write = SimulatedStore.write

    async def twice(self: SimulatedStore, changes: Sequence[RowChange]) -> WrittenThrough:
        await write(self, changes)
        return await write(self, changes)

    with patch.object(SimulatedStore, "write", twice):
        wrong = first_wrong()
    assert is_found(wrong) and wrong is not None and "is done more than once" in wrong.wrong


# What a load and the feed make together.


def test_a_horizon_off_by_one_is_found() -> None:
    def covers(horizon: SequenceHorizon, stamp: int) -> bool:
        return stamp <= horizon.stamp + 1

    with patch.object(SequenceHorizon, "covers", covers):
        assert is_found(first_wrong())


def test_a_load_that_sees_further_than_the_feed_and_lands_at_once_is_found() -> None:
    async def landing_at_once(_intake: Intake, _place: Place, is_under_way: Callable[[], bool]) -> bool:
        return is_under_way()

    with patch.object(Intake, "_come_to", landing_at_once):
        assert is_found(first_wrong())


def test_a_feed_that_drops_what_a_load_under_way_needs_is_found() -> None:
    with patch.object(Landing, "is_flying", lambda _self, _key: False):
        assert is_found(first_wrong())


def test_a_feed_that_skips_a_change_is_found() -> None:
    wanted, count = SimulatedStore._wanted, 0

    def skipping(store: SimulatedStore, event: Changes) -> Changes:
        nonlocal count
        count += 1
        return wanted(store, event if count % 50 else Changes(event.position, event.stamp, ()))

    with patch.object(SimulatedStore, "_wanted", skipping):
        assert is_found(first_wrong())


def test_a_commit_that_is_shown_in_part_is_found() -> None:
    with patch.object(Gate, "close", lambda _self: None):
        # It shows in few schedules.
        assert is_found(first_wrong(56))


# Tokens and levels.


def test_a_token_taken_before_the_refresh_is_found() -> None:
    move, token_of = Followed.move, dict[Followed, bytes]()

    def late(followed: Followed, position: int, *, history: History | None = None, shown: int | None = None) -> None:
        before = token_of.get(followed, b"")
        move(followed, position, history=history, shown=shown)
        # The state is new, and the token that replies get is that of the state before.
        token_of[followed] = followed.token
        followed.token = before or followed.token

    with patch.object(Followed, "move", late):
        assert is_found(first_wrong())


def test_a_latest_that_asks_nobody_is_found() -> None:
    async def latest(store: SimulatedStore) -> Place:
        return Place(store._feed_timeline + 1, 0)

    with patch.object(SimulatedStore, "latest", latest):
        assert is_found(first_wrong())


def test_a_latest_that_a_replaced_primary_may_answer_is_found() -> None:
    with patch.object(SimulatedStore, "latest", SimulatedStore.position):
        assert is_found(first_wrong())


def test_a_token_merged_by_minimum_is_found() -> None:
    def merged(token: Token, other: Token) -> Token:
        smaller = dict(token.positions)
        for mark, position in other.positions.items():
            smaller[mark] = min(position, smaller.get(mark, position))
        return Token(smaller)

    with patch.object(Token, "merged", merged):
        assert is_found(first_wrong())


def test_a_server_that_does_not_notice_lost_tokens_is_found() -> None:
    reached = Followed.reached

    def never_lost(followed: Followed, place: Place) -> Reached:
        found = reached(followed, place)
        return Reached.YES if found is Reached.LOST else found

    with patch.object(Followed, "reached", never_lost):
        assert is_found(first_wrong())


def test_a_condition_that_is_always_met_is_found() -> None:
    async def met(store: SimulatedStore, change: ConditionalChange) -> WrittenIf:
        written = await store.write([RowChange(change.key, change.value)])
        return WrittenIf(written.place, MET)

    with patch.object(SimulatedStore, "write_if", met):
        assert is_found(first_wrong())


def test_a_present_value_of_the_wrong_key_is_found() -> None:
    write_if, before = SimulatedStore.write_if, [b"first"]

    async def mixed_up(store: SimulatedStore, change: ConditionalChange) -> WrittenIf:
        written = await write_if(store, change)
        if isinstance(written.outcome, Unmet) and written.outcome.value is not None:
            before.append(written.outcome.value)
            return WrittenIf(written.place, Unmet(before.pop(0)))
        return written

    with patch.object(SimulatedStore, "write_if", mixed_up):
        assert is_found(first_wrong())


def test_a_write_that_is_acknowledged_before_the_feed_has_it_is_found() -> None:
    async def wait(_loader: Loader, _holds: Callable[[], bool]) -> None:
        return

    with patch.object(Loader, "_wait", wait):
        assert first_wrong() is not None
