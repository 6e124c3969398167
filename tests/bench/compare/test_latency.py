"""Latencies: every system answers at a fixed rate, and keeps the timelines."""

from __future__ import annotations

import time

import pytest
from pequod_bench.paper import latency
from pequod_bench.paper.measure import trying
from pequod_bench.paper.study import SYSTEMS_BY_CALL
from pequod_bench.report.latency import curve, histogram, open_loop, percentiles
from pequod_bench.systems.system import Missing, System

from tests.installed import lacking


@pytest.mark.usefixtures("forked_servers")
@pytest.mark.parametrize("system", SYSTEMS_BY_CALL, ids=lambda system: system.name)
def test_a_system_answers_at_fixed_rates_and_keeps_timelines(system: System) -> None:
    presence = system.find()
    if isinstance(presence, Missing):
        lacking(presence.reason)
    load = latency.make_load(60, rates=(400, 800), seconds=0.25, seed=3)
    with trying() as trials:
        found = latency.run_rates(system, load, trials)
    assert found.difference == ""
    assert [(at.rate, at.checks.count + at.posts.count) for at in found.rates] == [(400, 100), (800, 200)]
    for at in found.rates:
        assert 0 < at.checks.p50_ms <= at.checks.p99_ms <= at.checks.max_ms
        assert at.done_per_s > 0


def test_the_generator_alone_is_measured_like_a_system() -> None:
    load = latency.make_load(60, rates=(1_000,), seconds=0.1, seed=3)
    with trying() as trials:
        (at,) = latency.run_alone(load, trials).rates
    assert at.checks.count + at.posts.count == 100


async def test_a_stall_is_charged_to_all_who_wait() -> None:
    """One call of ten blocks everything for as long as nine more are due."""

    async def call(number: int) -> None:
        if number == 0:
            begun = time.perf_counter()
            while time.perf_counter() < begun + 0.1:
                pass

    seconds = await open_loop(call, rate=100.0, count=10)
    for number, spent in enumerate(seconds):
        assert spent >= 0.1 - number / 100


def test_a_histogram_keeps_three_digits_of_anything() -> None:
    kept = histogram([-1.0, 0.000_05, 0.012_345, 7_200.0])
    found = [kept.get_value_at_percentile(percent) for percent in (25, 50, 75, 100)]
    assert found == [0, 50, pytest.approx(12_345, rel=0.001), pytest.approx(3_600_000_000, rel=0.001)]
    levels = [percent for percent, _ in curve(kept)]
    assert levels == sorted(levels)
    summary = percentiles(histogram([0.002]))
    assert summary.count == 1
    assert summary.max_ms == pytest.approx(2.0, rel=0.001)
