"""Checks beside scans: the run is whole and looks at what it gets; latencies count from the intended start."""

from __future__ import annotations

import asyncio
import json

import pytest
from pequod_bench.report.latency import latencies, open_loop
from pequod_bench.scanner import ScannerError, scanning
from pequod_bench.settings import StallSettings
from pequod_bench.stall import RANGES, Checks, Kind, StallReport, WrongRowsError, fill
from rich.console import Console
from typer.testing import CliRunner

from pequod.cli.app import app
from pequod.client import AsyncClient
from tests.forked import started_server


def test_a_run_reports() -> None:
    result = CliRunner().invoke(app, ["bench", "stall", "--smoke", "--json", "--shape", "timelines"])
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert [kind["beside"] for kind in report["kinds"]] == ["nobody", "scan_iter", "scan"]
    for kind in report["kinds"]:
        checks = kind["checks"]
        assert 0 < checks["p50_ms"] <= checks["p99_ms"] <= checks["p999_ms"] <= checks["max_ms"]
        assert (kind["scans"] > 0) == (kind["scan_rows_per_s"] > 0) == (kind["beside"] != "nobody")
    assert isinstance(report["goals"]["met"], bool)


async def test_as_many_rows_as_asked_for_are_there_to_be_scanned() -> None:
    with started_server() as (target, _):
        async with AsyncClient(target) as client:
            for shape, (first, last) in RANGES.items():
                await fill(client, StallSettings(shape, rows=1000), lambda _: None)
                assert await client.count(first, last) == 1000


def test_the_report_says_whether_the_goals_are_met(capsys: pytest.CaptureFixture[str]) -> None:
    def report(*seconds: float) -> StallReport:
        return StallReport("table", 10, 100, 200.0, [Kind("scan", latencies(seconds), 2, 5.0, 1.0, 0.5)])

    report(0.001, 0.0199).print_table(Console(width=150))
    assert "under 16 MiB: met" in capsys.readouterr().out
    report(0.001, 0.0201).print_table(Console(width=150))
    assert "under 16 MiB: missed" in capsys.readouterr().out


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
    only = latencies([0.002])
    assert (only.p50_ms, only.p999_ms, only.max_ms) == (2.0, 2.0, 2.0)


async def test_checks_that_find_other_rows_are_found_out() -> None:
    with started_server() as (target, _):
        async with AsyncClient(target) as client:
            checks = await Checks.prepared(client)
            assert len(await checks.run(rate=1000, seconds=0.05)) == 50
            await client.remove(b"p|00000001|0000000020")
            with pytest.raises(WrongRowsError, match="found 2 rows, not 3"):
                await checks.run(rate=1000, seconds=0.001)


def test_a_scanner_that_ends_says_why() -> None:
    with scanning("127.0.0.1:1", b"a", b"b", "scan") as scanner:
        scanner._process.wait(30)
        with pytest.raises(ScannerError, match=r"127\.0\.0\.1:1"):
            scanner.scans()
