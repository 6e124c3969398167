"""A server with a folder is killed while a join takes the place of another: one of them is there, never both."""

from __future__ import annotations

import threading
from pathlib import Path
from random import Random

import pytest

from pequod import Client
from pequod.errors import PequodError
from tests.forked import ForkedServer

COUNT = "karma|<author> = count vote|<author>|<id>"
SUM = "karma|<author> = sum vote|<author>|<id>"
AUTHORS = 400


def _replace(target: str, begun: threading.Event, answers: list[str]) -> None:
    with Client(target, retries=0) as client:
        begun.set()
        try:
            answers.append(client.replace_join("karma", SUM).text)
        except PequodError:
            # The server was killed.
            return


@pytest.mark.parametrize("seed", range(4))
def test_after_a_kill_in_the_middle_one_of_the_two_joins_is_there(tmp_path: Path, seed: int) -> None:
    flags = ("--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"), "--fsync", "never")
    answers: list[str] = []
    with ForkedServer(*flags) as server, Client(server.target) as client:
        client.add_join(COUNT)
        client.multi_put({f"vote|a{number:03}|1": "5" for number in range(AUTHORS)})
        assert client.multi_get([f"karma|a{number:03}" for number in range(AUTHORS)]) == [b"1"] * AUTHORS
        begun = threading.Event()
        thread = threading.Thread(target=_replace, args=(server.target, begun, answers))
        thread.start()
        assert begun.wait(30)
        # At some step of it: each look is a call beside the building.
        for _ in range(Random(seed).randrange(1, 30)):
            client.replacements()
        server.kill()
        thread.join()
    with ForkedServer(*flags) as server, Client(server.target) as client:
        (join,) = client.joins()
        assert join.name == "karma"
        assert join.text in (answers or [COUNT, SUM])
        value = b"5" if join.text == SUM else b"1"
        assert client.scan(prefix="karma|") == [(f"karma|a{number:03}".encode(), value) for number in range(AUTHORS)]


def test_what_was_answered_is_there_after_a_kill(tmp_path: Path) -> None:
    flags = ("--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"), "--fsync", "never")
    with ForkedServer(*flags) as server, Client(server.target) as client:
        client.add_join(COUNT)
        client.put("vote|ann|1", "5")
        client.replace_join("karma", SUM)
        server.kill()
    with ForkedServer(*flags) as server, Client(server.target) as client:
        assert [join.text for join in client.joins()] == [SUM]
        assert client.scan(prefix="karma|") == [(b"karma|ann", b"5")]
