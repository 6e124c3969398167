"""Homes and computes, simulated: what they answer, and that the simulation finds faults between them."""

from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import patch

import pytest
from pequod_proto import pequod_pb2 as pb
from pequod_server.backing import RowChange
from pequod_server.homes.compute.session import PeerSession
from pequod_server.homes.home.relay import Entry, Relay, Subscriber

from pequod.engine import Engine, Range
from tests.simulation.framing import Report, shows_fault
from tests.simulation.run import simulate

#: Schedules of 200 steps with two homes and two computes: some seconds of CPU.
SUITE_SCHEDULES = 4
#: Schedules in which a planted fault must show. Each test begins with the one that shows its fault; a change of servers
#: moves it: where a test takes more than some seconds, begin with the next one that does.
FAULT_SCHEDULES = 30


def cluster(seed: int) -> Report:
    return simulate(seed, computes=2)


def is_found(first: int) -> bool:
    """Return whether a planted fault shows in schedules from one on."""
    return shows_fault(map(cluster, range(first, first + FAULT_SCHEDULES)))


@pytest.mark.timeout(600)
def test_every_answer_of_homes_and_computes_is_what_the_database_had_at_its_token() -> None:
    reports = [cluster(seed) for seed in range(SUITE_SCHEDULES)]
    for report in reports:
        assert not report.wrong, report
    assert sum(report.checked for report in reports) > 80 * SUITE_SCHEDULES


@pytest.mark.parametrize("seed", [500_099, 501_562])
def test_schedules_that_were_judged_wrong_once(seed: int) -> None:
    """A compute had been told by one home how fresh its rows were, and another home, asked then, knew less.

    Or the one that had told it did not know that its primary had been replaced, and the other one did.
    """
    report = cluster(seed)
    assert not report.wrong, report


@pytest.mark.timeout(600)
def test_a_feed_that_skips_a_change_of_a_home_is_found() -> None:
    wanted, count = Relay.wanted, 0

    def skipping(relay: Relay, told: Entry, subscriber: Subscriber, start: int = 0) -> tuple[Sequence[RowChange], int]:
        nonlocal count
        count += 1
        return wanted(relay, told, subscriber, start) if count % 20 else ((), 0)

    with patch.object(Relay, "wanted", skipping):
        assert is_found(2)


@pytest.mark.timeout(600)
def test_an_overrun_feed_that_goes_on_without_a_reload_is_found() -> None:
    def lose(relay: Relay, subscriber: Subscriber, _reason: str) -> None:
        subscriber.told, subscriber.due = relay.sequence, None

    with patch.object(Relay, "lose", lose):
        assert is_found(23)


@pytest.mark.timeout(600)
def test_a_home_that_resumes_a_feed_although_changes_are_missing_is_found() -> None:
    def resume(relay: Relay, subscriber: Subscriber, _since: object) -> bool:
        subscriber.told, subscriber.due, subscriber.born = relay.sequence, None, relay.sequence
        return True

    with patch.object(Relay, "resume", resume):
        assert is_found(36)


@pytest.mark.timeout(600)
def test_a_feed_that_forgets_at_the_next_home_what_was_loaded_is_found() -> None:
    with patch("pequod_server.homes.compute.held.Subscriptions.ranges_of", lambda _self, _bits: iter(())):
        assert is_found(11)


@pytest.mark.timeout(600)
def test_a_release_of_what_is_loaded_again_is_found() -> None:
    with patch.object(Engine, "absent", lambda _self, first, last: [Range(first, last)]):
        assert is_found(3)


@pytest.mark.timeout(600)
def test_an_age_that_counts_from_the_answer_is_found() -> None:
    def fresh_s(session: PeerSession, reply: pb.PeerFeedReply) -> float | None:
        return session._clock() - reply.age_ms / 1000 if reply.HasField("age_ms") else None

    with patch.object(PeerSession, "fresh_s", fresh_s):
        assert is_found(0)
