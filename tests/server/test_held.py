"""What callers make a process hold, with clients that are not ours; server and clients are processes of their own."""

from pathlib import Path

import psutil
import pytest
from pequod_bench.process import started_server

from tests.soak import heavy

#: How many calls warm up the pools of gRPC and Python, and how many follow.
WARM, COUNT = 100, 500
#: A server that kept the requests would grow by 50 MB or more with each trick.
GROWTH_BYTES_MAX = 16 << 20


@pytest.mark.parametrize("tricks", [heavy.REFUSED, heavy.REFUSED_BY_ACCESS])
async def test_refused_calls_are_not_held(tricks: dict[str, heavy.Trick], tmp_path: Path) -> None:
    settings = [*heavy.SETTINGS, "--memory-limit", "none"]
    if tricks is heavy.REFUSED_BY_ACCESS:
        (tmp_path / "access.toml").write_text(heavy.ACCESS)
        settings += ["--access-file", str(tmp_path / "access.toml")]
    with started_server(*settings) as (target, pid):
        process = psutil.Process(pid)
        for trick in tricks:
            assert "OK" not in await heavy.in_a_process(target, trick, WARM)
            before_bytes = process.memory_info().rss
            codes = await heavy.in_a_process(target, trick, COUNT)
            assert sum(codes.values()) == COUNT
            assert "OK" not in codes
            assert process.memory_info().rss - before_bytes < GROWTH_BYTES_MAX, trick
