"""The Go page is true: its commands and its program are run, and print what it shows. The client's code is tidy."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Final

import pytest

from pequod.refusals import REFUSALS
from tests.forked import started_server
from tests.golang.building import run_go
from tests.golang.conftest import CLIENT

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs/go.md"
#: Its tools are built once, which takes minutes on a busy machine.
pytestmark = [pytest.mark.timeout(1200), pytest.mark.usefixtures("go")]


def _blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_the_program_of_the_page_prints_what_it_shows(tmp_path: Path) -> None:
    (program,), (before, after) = _blocks("go"), _blocks("console")
    (expected,) = re.findall(r"^```go\n.*?^```\n\n```\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    with started_server() as (target, _):
        _run(before, tmp_path)
        (tmp_path / "main.go").write_text(program.replace("127.0.0.1:7744", target))
        assert _run(after, tmp_path) == expected
        run_go(tmp_path, "vet", ".")


def _run(commands: str, folder: Path) -> str:
    """Run commands as the page shows them; return what they print."""
    said = ""
    for line in commands.splitlines():
        prompt, program, *words = shlex.split(line.replace("../pequod/proto/go", str(CLIENT)))
        assert (prompt, program) == ("$", "go")
        said += run_go(folder, *words)
    return said


def test_the_calls_of_the_page_are_those_of_the_client() -> None:
    told = PAGE.read_text().partition("## Calls\n")[2].partition("\n\n- ")[0]
    documented = set(re.findall(r"`([A-Z]\w+)`", told))
    shown = run_go(CLIENT, "doc", "-short", "Client")
    methods = set(re.findall(r"^func \(\w+ \*Client\) ([A-Z]\w+)", shown, re.MULTILINE))
    assert documented == methods - {"At", "Close", "Invoke", "NewStream", "Session", "Token"}


def test_every_reason_of_the_servers_has_a_name() -> None:
    names = set(re.findall(r'Reason = "(\w+)"', (CLIENT / "reasons.go").read_text()))
    assert {kind.__name__ for kind in REFUSALS} <= names


def test_its_generated_code_is_that_of_the_contract_and_its_code_is_tidy() -> None:
    command = ["make", "--no-print-directory", "go-check"]
    # Its tools come from Go's proxy, as its packages do.
    done = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
