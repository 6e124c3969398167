"""The door for HTTP under a fuzzer that goes by its description: no call fails, and replies are what it says."""

import asyncio
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.gateway.doors import opened

pytestmark = pytest.mark.skipif(find_spec("schemathesis") is None, reason="schemathesis is not installed")


async def test_whatever_the_description_allows_has_the_reply_that_it_tells(tmp_path: Path) -> None:
    async with opened() as (server, _):
        arguments = ["run", f"{server.http_url}/v1/openapi.json", "--max-examples", "15", "--generation-deterministic"]
        arguments += ["--phases", "fuzzing,stateful"]
        # What the schema lets through may be no number, no join or an unmet condition; watches do not end.
        arguments += ["--exclude-checks", "positive_data_acceptance", "--exclude-path", "/v1/watch", "--no-color"]
        fuzzer = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "schemathesis.cli", *arguments, stdout=asyncio.subprocess.PIPE, cwd=tmp_path
        )
        said, _ = await fuzzer.communicate()
    assert fuzzer.returncode == 0, said.decode()
    assert b"Tested: 19" in said, said.decode()
