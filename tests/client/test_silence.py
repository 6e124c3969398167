"""Every client and the embedded store tell, when a join is installed and when one asks, why it shows nothing."""

from collections.abc import Callable
from typing import Any

import pytest

import pequod
from pequod import Client
from pequod.errors import BadRequestError, JoinError
from tests.client.conftest import ServerProcess
from tests.client.test_clients import EVERYBODY

ABSENT, MEANT = "no key and no join has the table 'folow'", "is the table 'follow' meant?"
TEXT = "feed|<user>|<poster> = check folow|<user>|<poster> copy p|<poster>"


@pytest.mark.parametrize("connect", EVERYBODY.values(), ids=EVERYBODY)
def test_a_text_without_a_join_is_refused(server: ServerProcess, connect: Callable[[str], Any]) -> None:
    with connect(server.target) as client:
        for text in ("", " ;# nothing\n"):
            with pytest.raises(JoinError, match="the text declares no join"):
                client.add_join(text)


@pytest.mark.parametrize("connect", [Client, lambda _: pequod.open()], ids=["server", "embedded"])
def test_a_watch_of_an_empty_range_is_refused(server: ServerProcess, connect: Callable[[str], Any]) -> None:
    with connect(server.target) as client:
        for first, last in (("b", "a"), ("a", "a")):
            with pytest.raises(BadRequestError, match="its first key must come before its last"):
                next(client.watch(first, last))


@pytest.mark.parametrize("connect", EVERYBODY.values(), ids=EVERYBODY)
def test_a_misspelt_table_is_told_and_logged(
    server: ServerProcess, connect: Callable[[str], Any], caplog: pytest.LogCaptureFixture
) -> None:
    with connect(server.target) as client:
        client.put("follow|ann|bob", "")
        client.put("p|bob", "Hi")
        (join,) = client.add_join(TEXT)
        assert join.warnings == (f"{ABSENT}; {MEANT}",)
        assert caplog.messages == [f"join feed: {ABSENT}; {MEANT}"]
        assert [str(note) for note in client.explain_join("feed").notes] == [ABSENT, MEANT]
        shown = [str(note) for note in client.explain_range("feed|ann|", "feed|ann}").notes]
        assert shown == [f"join feed: {ABSENT}", f"join feed: {MEANT}"]
        (changed,) = client.add_join("feed|<who>|<poster> = check follow|<who>|<poster> copy p|<poster>")
        assert "client.drop_join('feed')" in changed.warnings[0]
        client.drop_join("feed.2")
        client.drop_join("feed")
        client.remove_range("follow|", "follow}")
        client.remove_range("p|", "p}")
