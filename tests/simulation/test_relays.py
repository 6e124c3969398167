"""Servers between homes and computes, simulated: what all answer, and that the simulation finds faults between them."""

from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import patch

import pytest
from pequod_server.backing import KeyRange
from pequod_server.homes.compute.store import PequodStore
from pequod_server.homes.home.passed_origin import PassedOrigin
from pequod_server.homes.home.relay import Relay

from tests.simulation.framing import Report, shows_fault
from tests.simulation.run import simulate

#: Schedules of 200 steps with two homes, a relay and a compute: a second of CPU each.
SUITE_SCHEDULES = 2
#: As in `test_peers`: each test begins with the schedule that shows its fault.
FAULT_SCHEDULES = 30


def tree(seed: int) -> Report:
    return simulate(seed, computes=1, relays=1)


def is_found(first: int) -> bool:
    """Return whether a planted fault shows in schedules from one on."""
    return shows_fault(map(tree, range(first, first + FAULT_SCHEDULES)))


@pytest.mark.timeout(600)
def test_every_answer_behind_relays_is_what_the_database_had_at_its_token() -> None:
    reports = [tree(seed) for seed in range(SUITE_SCHEDULES)]
    for report in reports:
        assert not report.wrong, report
    assert sum(report.checked for report in reports) > 80 * SUITE_SCHEDULES


@pytest.mark.timeout(600)
def test_a_relay_that_gives_up_what_a_compute_wants_is_found() -> None:
    def not_wanted(_relay: Relay, ranges: Sequence[KeyRange]) -> list[KeyRange]:
        return list(ranges)

    with patch.object(Relay, "not_wanted", not_wanted):
        assert is_found(8)


@pytest.mark.timeout(600)
def test_a_load_of_a_relay_that_names_a_place_before_its_rows_is_found() -> None:
    with patch.object(PassedOrigin, "shown_position", property(lambda origin: origin.relay.position)):
        assert is_found(4)


@pytest.mark.timeout(600)
def test_servers_that_stay_behind_each_other_are_found() -> None:
    with patch.object(PequodStore, "_pass_through", lambda *_: None):
        report = simulate(0, computes=2, relays=2)
    assert "_caught_up" in report.wrong, "they come to rest"
