"""Sessions over two servers beside a PostgreSQL, tiny: each sees its own writes."""

from __future__ import annotations

import io

import pytest
from pequod_bench.report.progress import ProgressBars
from pequod_bench.sessions import run
from pequod_bench.settings import SessionSettings
from pequod_bench.systems.postgres_cluster import find_postgres
from pequod_bench.systems.system import Missing
from rich.console import Console

from tests.installed import lacking


@pytest.mark.usefixtures("forked_servers")
def test_sessions_see_their_own_writes() -> None:
    if isinstance(missing := find_postgres(), Missing):
        lacking(missing.reason)
    report = run(SessionSettings(seconds=0.5, rate=40.0, writers=2), ProgressBars(Console(file=io.StringIO())))
    assert not report.fault()
    assert report.session_reads > report.plain_reads > 0
    assert report.visible.p50_ms <= report.visible.p99_ms
