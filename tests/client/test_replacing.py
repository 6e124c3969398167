"""A join takes the place of another through each kind of client, and is put back, listed and cancelled."""

from collections.abc import Callable
from typing import Any

import pytest

from pequod.errors import JoinError, NotReplaceableError, UnknownJoinError
from tests.client.conftest import ServerProcess
from tests.client.test_clients import EVERYBODY

COUNT = "karma|<author> = count vote|<author>|<id>"
SUM = "karma|<author> = sum vote|<author>|<id>"


@pytest.mark.parametrize("connect", EVERYBODY.values(), ids=EVERYBODY)
def test_a_join_is_replaced_and_put_back(server: ServerProcess, connect: Callable[[str], Any]) -> None:
    with connect(server.target) as client:
        client.add_join(COUNT)
        client.multi_put({f"vote|a{number}|{vote}": "5" for number in range(300) for vote in (1, 2)})
        assert client.count(prefix="karma|") == 300
        done = client.replace_join("karma", SUM)
        assert (done.join, done.text, done.is_in_place) == ("karma", SUM, True)
        assert done.ranges_built == done.ranges_expected == 1
        assert client.scan(prefix="karma|") == [
            (f"karma|a{number}".encode(), b"10") for number in sorted(range(300), key=str)
        ]
        assert client.replace_join("karma", SUM).is_in_place, "it is there"
        assert [(join.name, join.text) for join in client.joins()] == [("karma", SUM)]
        assert client.undo_replacement("karma").text == COUNT
        assert client.get("karma|a7") == b"2"
        assert client.undo_replacement("karma").text == SUM
        assert [one.text for one in client.replacements()] == [SUM, COUNT, SUM, SUM]
        assert all(one.is_in_place for one in client.replacements())
        assert len({one.id for one in client.replacements()}) == 4
        client.cancel_replacement("karma")
        assert client.get("karma|a7") == b"10"


@pytest.mark.parametrize("connect", EVERYBODY.values(), ids=EVERYBODY)
def test_what_cannot_be_replaced_is_refused(server: ServerProcess, connect: Callable[[str], Any]) -> None:
    with connect(server.target) as client:
        client.add_join(COUNT)
        with pytest.raises(JoinError, match="computes keys of another table") as refused:
            client.replace_join("karma", "other|<author> = sum vote|<author>|<id>")
        assert "^^^^^" in str(refused.value)
        with pytest.raises(JoinError, match="the text declares several joins"):
            client.replace_join("karma", f"{SUM}; {COUNT}")
        with pytest.raises(JoinError, match="the text declares no join"):
            client.replace_join("karma", "")
        with pytest.raises(UnknownJoinError):
            client.replace_join("nobody", SUM)
        with pytest.raises(NotReplaceableError, match="no earlier text of it is known"):
            client.undo_replacement("karma")
        assert [join.text for join in client.joins()] == [COUNT]
        assert client.replacements() == []
