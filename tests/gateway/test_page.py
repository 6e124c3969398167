"""The page about HTTP: each command with curl prints what the page shows."""

import asyncio
import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.gateway.doors import opened

PAGE = Path(__file__).parents[2] / "docs/http.md"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_every_command_of_the_page_prints_what_it_shows() -> None:
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    shown = {line[2:]: after for line, after in zip(lines, [*lines[1:], ""], strict=True) if line.startswith("$ curl")}
    async with opened() as (server, _):
        for command, expected in shown.items():
            words = shlex.split(command.replace("localhost:7780", server.http_url))
            curl = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
            said, _ = await curl.communicate()
            assert said.decode() == expected, command
    assert len(shown) > 6
