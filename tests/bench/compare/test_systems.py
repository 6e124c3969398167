"""Every system that is installed ends with the timelines that a computation from scratch gives."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Self

import pytest
from pequod_bench.paper.measure import run_twip, trying
from pequod_bench.paper.study import SYSTEMS
from pequod_bench.paper.ycsb_stores import _PequodYcsb, _RedisYcsb
from pequod_bench.systems.memcached_system import MetaParser, _MemcachedMessage, record_of, records_since
from pequod_bench.systems.pequod_system import _PequodMessage
from pequod_bench.systems.pipe import NOTHING_YET
from pequod_bench.systems.postgres_system import POSTGRES_CALLS
from pequod_bench.systems.redis_system import _RedisMessage
from pequod_bench.systems.server import find_program
from pequod_bench.systems.system import Found, Missing, PeerError, System, SystemWorkload
from pequod_bench.workloads.stream import LOGOUT, make_stream

from pequod.client import Rows
from tests.installed import lacking

TINY = SystemWorkload(make_stream("synthetic", 150, 3_000, seed=7), tweet_bytes=20)


@pytest.mark.usefixtures("forked_servers")
@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_a_system_keeps_the_timelines(system: System) -> None:
    presence = system.find()
    if isinstance(presence, Missing):
        lacking(presence.reason)
    with trying() as trials:
        outcome = run_twip(system, TINY, trials)
    assert outcome.difference == ""
    assert outcome.final_rows > 500
    stream = TINY.stream
    assert outcome.commands >= stream.tick_count - stream.count(LOGOUT)
    assert outcome.commands >= outcome.messages >= 3_000 / 256
    assert (outcome.commands == outcome.messages) == (system is POSTGRES_CALLS)
    assert outcome.rows > 0
    assert outcome.seconds > 0
    assert outcome.client_cpu_seconds > 0
    assert outcome.server_mib > 1


def test_a_server_that_is_not_installed_is_told_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = find_program("redis-server", "install it with: apt-get install redis-server")
    assert missing == Missing("no redis-server on PATH; install it with: apt-get install redis-server")


def test_a_server_is_found_in_a_folder_beside_path(tmp_path: Path) -> None:
    program = tmp_path / "some-server"
    program.write_text("#!/bin/sh\necho some-server 1.2\necho more\n")
    program.chmod(0o755)
    assert find_program("some-server", "install it", folders=[tmp_path]) == Found(program, "some-server 1.2")


def test_replies_of_memcached_come_apart_wherever_they_are_cut() -> None:
    stream = b"VA 3\r\na\r\n\r\nEN\r\nVA 0\r\n\r\nMN\r\n"
    for cut in range(1, len(stream)):
        parser = MetaParser()
        replies = []
        for part in (stream[:cut], stream[cut:]):
            parser.feed(part)
            while (reply := parser.gets()) is not NOTHING_YET:
                replies.append(reply)
        assert replies == [b"a\r\n", None, b"", True]


def test_a_refusal_of_memcached_is_an_error() -> None:
    parser = MetaParser()
    parser.feed(b"SERVER_ERROR out of memory storing object\r\n")
    reply = parser.gets()
    assert isinstance(reply, PeerError)
    assert "out of memory" in str(reply)


def test_timelines_of_memcached_are_read_from_a_tick_on_in_order() -> None:
    record = record_of(1)
    value = b"".join(tick.to_bytes(4) + b"\0\0\0\1" + b"x" for tick in (5, 9, 7, 2))
    assert records_since(value, 5, record)["tick"].tolist() == [5, 7, 9]
    assert records_since(None, 0, record)["tick"].tolist() == []


class _Wire:
    """A pipe, or what makes batches: counts what was sent, and has its answers at once."""

    def __init__(self, *replies: object) -> None:
        self.sent = 0
        self._replies = list(replies)

    def batch(self) -> Self:
        return self

    def scan(self, *_: object) -> None:
        """Take a command."""

    get = put = scan

    def send(self, *_: object) -> asyncio.Future[list[object]]:
        self.sent += 1
        future = asyncio.get_running_loop().create_future()
        future.set_result(self._replies)
        return future


@pytest.mark.parametrize(
    ("message", "replies"),
    [
        (_RedisMessage, [[]]),
        (lambda wire: _MemcachedMessage(wire, record_of(1)), [b"", True]),
        (_PequodMessage, [Rows([], [])]),
        (_PequodYcsb, []),
        (lambda wire: _RedisYcsb(wire, b""), []),
    ],
)
async def test_a_message_is_under_way_before_its_answers_are_waited_for(message: Any, replies: list[object]) -> None:
    wire = _Wire(*replies)
    made = message(wire)
    if replies:
        made.check(1, 0)
    coming = made.send()
    assert wire.sent == 1
    answers = await coming
    assert (answers.row_count if replies else answers) == 0
