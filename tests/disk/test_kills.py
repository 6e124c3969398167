"""A server with a folder of data that is killed in the middle of writes: what was acknowledged is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from pequod.native.http2 import why_absent
from tests.disk.killed import Killed

TRANSPORTS = ["grpcio", *(["native"] if why_absent() is None else [])]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_ten_kills_lose_nothing_that_was_acknowledged(tmp_path: Path, transport: str) -> None:
    killed = Killed(tmp_path / "data", 1, "--fsync", "always", "--transport", transport)
    for _ in range(10):
        killed.run(0.4)
    killed.run(0.1)
    assert killed.answered_count > 20, "writers have written"


@pytest.mark.parametrize("fsync", ["everysec", "never"])
def test_the_end_of_the_process_alone_loses_nothing_with_any_setting(tmp_path: Path, fsync: str) -> None:
    killed = Killed(tmp_path / "data", 2, "--fsync", fsync)
    for _ in range(3):
        killed.run(0.4)
    killed.run(0.1)
    assert killed.answered_count > 20, "writers have written"
