"""The conformance script, run by the TypeScript client against a real server; and what is generated of it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pequod.refusals import REFUSALS
from tests.forked import started_server
from tests.typescript.node import FOLDER, ROOT, compiled, run_node

CASES = ROOT / "tests/conformance/cases.json"


@pytest.fixture
def target() -> Iterator[str]:
    with started_server() as (target, _):
        yield target


async def test_the_typescript_client_gets_what_the_script_says(target: str) -> None:
    count = len(json.loads(CASES.read_text())["cases"])
    code, said = await run_node(compiled() / "test/conformance.js", target, CASES)
    assert (code, said) == (0, f"{count} of {count} cases\n")


async def test_a_case_that_differs_fails_the_runner(target: str, tmp_path: Path) -> None:
    put = {"call": "put", "args": {"key": "a", "value": "1"}}
    wrong: list[dict[str, Any]] = [
        {"name": "another value", "steps": [put, {"call": "get", "args": {"key": "a"}, "reply": "2"}]},
        {"name": "no error", "steps": [{**put, "error": {"code": "NOT_FOUND"}}]},
        {"name": "another type", "steps": [{"call": "count", "reply": False}]},
        {"name": "too few rows", "steps": [put, {"call": "scan", "reply": []}]},
    ]
    path = tmp_path / "cases.json"
    path.write_text(json.dumps({"version": 1, "cases": wrong}))
    code, said = await run_node(compiled() / "test/conformance.js", target, path)
    assert code == 1
    assert [line.partition(": ")[0] for line in said.splitlines()] == [*(one["name"] for one in wrong), "0 of 4 cases"]


def test_the_methods_of_commands_and_the_names_of_errors_are_those_of_the_tables(tmp_path: Path) -> None:
    subprocess.run([sys.executable, FOLDER / "commands.py", tmp_path], check=True)
    for name in ("commands.ts", "reasons.ts"):
        assert (FOLDER / "src/generated" / name).read_text() == (tmp_path / name).read_text(), "run: make typescript"
    assert set(re.findall(r'"(\w+)"', (tmp_path / "reasons.ts").read_text())) > {kind.__name__ for kind in REFUSALS}
