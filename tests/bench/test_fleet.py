"""Clusters of many servers by one that is real: what it is told, and what grows with their number."""

from __future__ import annotations

import io

from lab.fleet.changes import change_map, restart_all, spent_by
from lab.fleet.simulated import FleetSettings, run
from pequod_bench.report.progress import QUIET
from rich.console import Console


def test_a_change_of_the_map_is_heard_once_from_each_server_and_told_together() -> None:
    spent = spent_by(40, change_map)
    assert spent.heard == 1 + 40, "the map, and an entry of each"
    # The map at once, then what has come meanwhile, each time a while later.
    assert 2 <= spent.told <= 4
    assert 40 * 40 < spent.told_bytes < 100 * 40, "each entry once"
    assert 0 < spent.follower_cpu_s < spent.server_cpu_s
    assert spent.client_cpu_s > 0
    assert 0 < spent.behind_cpu_s < spent.server_cpu_s


def test_a_rolling_restart_is_told_by_what_changes() -> None:
    spent = spent_by(25, restart_all)
    restarted_homes = 3
    assert spent.heard == 3 * 24 + restarted_homes
    assert spent.seconds > 24 * 4.9
    assert spent.told <= spent.heard
    assert spent.told_bytes < spent.heard * 100


def test_the_report_is_of_all_sizes() -> None:
    report = run(FleetSettings(servers=(24, 96), graph="power-law", users=300), QUIET)
    few, many = report.runs
    assert (few.servers, many.servers) == (24, 96)
    assert 0 < few.told < many.told < 96
    assert many.map_change.heard == 97
    assert many.watchers_messages == 3 * 97
    assert many.behind_ms > 0
    assert 0 < few.server_kib < many.server_kib
    assert report.costs.tell > 0
    printed = io.StringIO()
    report.print_table(Console(file=printed, width=120))
    assert "A rolling restart" in printed.getvalue()
