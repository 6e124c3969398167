"""The joins of maps in an engine: their order, and joins that take the places of others whatever maps were missed."""

from __future__ import annotations

import pytest
from pequod_server.cluster.installing import MapJoins

from pequod.cluster.map import ClusterMap, JoinReplacement
from pequod.engine import Engine, JoinError
from tests.engine.joins import put_all, scan

COUNT = "karma|<author> = count vote|<author>|<id>"
SUM = "karma|<author> = sum vote|<author>|<id>"
MOST = "karma|<author> = max vote|<author>|<id>"
FIXED = "karma|<author> = copy fixed|<author>"
PLACES = "place|<author> = copy fixed|<author>"


class Taken:
    """An engine that takes maps in."""

    def __init__(self, *joins: str) -> None:
        self.engine = Engine()
        self.joins = MapJoins(self.engine)
        self.version = 0
        put_all(self.engine, {"vote|ann|1": "5", "vote|ann|2": "2", "fixed|ann": "0"})
        self.take(*joins)

    def take(self, *joins: str, replacement: JoinReplacement | None = None) -> None:
        self.version += 1
        self.joins.take_in(ClusterMap("twip", self.version, ";".join(joins), replacement=replacement))
        self.joins._check()
        self.engine._check()

    @property
    def texts(self) -> list[str]:
        return [str(join.spec) for join in self.engine.joins()]

    @property
    def names(self) -> list[str]:
        return [join.name for join in self.engine.joins()]

    @property
    def karma(self) -> str:
        return scan(self.engine, "karma|")["karma|ann"]


PREPARED = JoinReplacement(2, COUNT, SUM)
DONE = JoinReplacement(2, COUNT, SUM, is_in_place=True, ended="it is in its place")


def test_a_join_is_prepared_and_put_in_its_place_by_the_next_map() -> None:
    taken = Taken(COUNT, FIXED)
    assert taken.karma == "2"
    taken.take(COUNT, FIXED, replacement=PREPARED)
    while taken.engine.replace_some():
        pass
    present = taken.engine.replacement
    assert present is not None
    assert (present.is_built, present.ranges_built, taken.karma) == (True, 1, "2")
    taken.take(COUNT, FIXED, replacement=PREPARED)
    assert taken.engine.replacement is present, "the same state, told again"
    computed = taken.engine._reads.rows_computed
    taken.take(SUM, FIXED, replacement=DONE)
    assert (taken.texts, taken.names, taken.karma) == ([SUM, FIXED], ["karma", "karma.2"], "7")
    assert taken.engine._reads.rows_computed == computed
    assert str(taken.engine.replaced_spec("karma")) == COUNT


def test_a_server_that_missed_the_preparation_has_the_join_in_the_same_place() -> None:
    taken = Taken(COUNT, FIXED)
    assert taken.karma == "2"
    taken.take(SUM, FIXED, replacement=DONE)
    assert (taken.texts, taken.names, taken.karma) == ([SUM, FIXED], ["karma", "karma.2"], "7")


def test_joins_are_in_the_order_of_the_map_whatever_was_missed() -> None:
    taken = Taken(COUNT, FIXED)
    # Two joins took the places of others one after the other, and a third was added: the last replacement tells of one.
    other = JoinReplacement(5, FIXED, PLACES)
    for joins in ([MOST, FIXED], [SUM, FIXED, PLACES], [FIXED, SUM], [PLACES, COUNT, FIXED]):
        taken.take(*joins, replacement=other if joins[0] == COUNT else None)
        assert taken.texts == joins
    assert taken.karma == "2"


def test_a_server_that_starts_later_knows_what_the_join_was() -> None:
    taken = Taken()
    taken.take(SUM, replacement=DONE)
    assert str(taken.engine.replaced_spec("karma")) == COUNT


@pytest.mark.parametrize(
    "after", [None, JoinReplacement(2, COUNT, SUM, ended="it was cancelled"), JoinReplacement(3, COUNT, MOST)]
)
def test_what_the_map_does_not_want_any_more_ends(after: JoinReplacement | None) -> None:
    taken = Taken(COUNT)
    taken.take(COUNT, replacement=PREPARED)
    present = taken.engine.replacement
    assert present is not None
    taken.take(COUNT, replacement=after)
    assert present.ended == (after.ended if after and after.ended else "the map has it no more")
    if after is None or after.ended:
        assert taken.engine.replacement is None
    else:
        assert taken.engine.replacement is not None
    assert taken.karma == "2"


def test_the_old_join_stays_where_clients_have_written_keys_of_the_new_one_until_they_are_gone() -> None:
    wider = "karma|<author>|<id> = copy vote|<author>|<id>"
    taken = Taken(COUNT, FIXED)
    coming = JoinReplacement(2, COUNT, wider)
    taken.take(COUNT, FIXED, replacement=coming)
    put_all(taken.engine, {"karma|ann|9": "by a client"})
    done = JoinReplacement(2, COUNT, wider, is_in_place=True, ended="it is in its place")
    for _ in range(2):
        with pytest.raises(JoinError, match="which a client has written"):
            taken.take(wider, FIXED, replacement=done)
        assert (taken.texts, taken.engine.replacement) == ([COUNT, FIXED], None)
    taken.engine.remove(b"karma|ann|9")
    taken.take(wider, FIXED, replacement=done)
    assert taken.texts == [wider, FIXED]


def test_a_map_that_cannot_be_had_leaves_the_joins_in_their_order() -> None:
    taken = Taken(COUNT, FIXED)
    put_all(taken.engine, {"place|ann": "by a client"})
    with pytest.raises(JoinError, match="which a client has written"):
        taken.take(FIXED, PLACES)
    assert (taken.texts, taken.karma) == ([COUNT, FIXED], "2")
