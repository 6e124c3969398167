"""Calls that start by the clock count from their intended start."""

from __future__ import annotations

import asyncio

import pytest
from pequod_bench.report.latency import histogram, open_loop, percentiles


async def test_a_call_that_waits_for_another_is_charged_for_it() -> None:
    """Ten calls, one every millisecond, that all end when the last one starts."""
    gate = asyncio.Event()

    async def call(number: int) -> None:
        if number == 9:
            gate.set()
        await gate.wait()

    seconds = await open_loop(call, rate=1000, count=10)
    assert all(latency >= (9 - number) / 1000 for number, latency in enumerate(seconds))


async def test_a_call_that_fails_ends_the_run() -> None:
    async def call(number: int) -> None:
        if number == 1:
            raise ValueError("no")
        await asyncio.Event().wait()

    with pytest.raises(ValueError, match="no"):
        await open_loop(call, rate=1000, count=3)


def test_percentiles_of_one_call() -> None:
    only = percentiles(histogram([0.002]))
    assert (only.p50_ms, only.p999_ms, only.max_ms) == (2.0, 2.0, 2.0)
