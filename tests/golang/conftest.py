"""The tests of the Go client as a program, built once; with the race detector if PEQUOD_GO_RACE is set."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest

from tests.golang.building import run_go, why_absent
from tests.installed import lacking

CLIENT: Final = Path(__file__).parents[2] / "proto/go"

#: Runs the tests of a pattern, with the variables that they ask for.
GoTests = Callable[..., Awaitable[str]]


@pytest.fixture(scope="session")
def go() -> None:
    """Skip the test where Go is not installed."""
    if reason := why_absent("the Go client"):
        lacking(reason)


@pytest.fixture(scope="session")
def go_tests(go: None, tmp_path_factory: pytest.TempPathFactory) -> GoTests:
    program = tmp_path_factory.mktemp("go") / "pequod.test"
    race = ["-race"] if os.environ.get("PEQUOD_GO_RACE") else []
    run_go(CLIENT, "test", *race, "-c", "-o", str(program), ".")

    async def run(pattern: str, **variables: str) -> str:
        command = (str(program), "-test.v", "-test.run", pattern)
        process = await asyncio.create_subprocess_exec(
            *command, env={**os.environ, **variables}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        try:
            printed = (await process.communicate())[0].decode()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        told = "\n".join(line for line in printed.splitlines() if not line.lstrip().startswith(("=== ", "--- PASS")))
        assert process.returncode == 0, told
        assert "--- PASS" in printed, f"no test is named {pattern}"
        assert "--- SKIP" not in printed, told
        return printed

    return run
