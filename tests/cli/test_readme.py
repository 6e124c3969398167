"""The five-minute tour of the README does what it says, word for word."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.forked import started_server

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    with started_server() as (address, _):
        yield address


def commands(session: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a console session, with what it prints."""
    for part in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        more = [line[2:] for line in lines[1:] if line.startswith(">")]
        yield "\n".join([lines[0], *more]), "\n".join(line for line in lines[1:] if not line.startswith(">"))


def run(command: list[str], target: str) -> str:
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PEQUOD_TARGET": target,
        "PYTHONWARNINGS": "error",
    }
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False
    )
    return done.stdout.decode().strip("\n")


def test_the_tour_is_as_the_readme_shows_it(target: str, tmp_path: Path) -> None:
    readme = README.replace("127.0.0.1:7744", target).replace("/tmp/plain", str(tmp_path))
    blocks = BLOCK.findall(readme)
    shown = 0
    for number, (kind, text) in enumerate(blocks):
        if kind == "console":
            for command, output in commands(text):
                assert run(["bash", "-c", command], target) == output, command
                shown += 1
        elif kind == "python":
            printed = run([sys.executable, "-c", text], target)
            after = re.search(r"prints `(.+?)`", readme[readme.index(text) + len(text) :])
            expected = blocks[number + 1][1].strip() if blocks[number + 1][0] == "" else after and after.group(1)
            assert printed == expected, text
            shown += 1
    assert shown > 15
