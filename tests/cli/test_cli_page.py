"""The page about the command line shows what is printed, and leaves no command out."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from pequod.cli.app import app
from pequod.cli.exits import ExitCode
from tests.cli.test_readme import BLOCK, ROOT, commands, run, target

__all__ = ["target"]

PAGE = (ROOT / "docs/cli.md").read_text("utf-8")
SECONDS = re.compile(r"in [0-9.]+ s")


def printed_by(command: str, target: str) -> str:
    """Run a command: here if it is `pequod` alone, which takes a tenth of the time, else as a shell does.

    The tour of the README has all its commands run by a shell. `dump` writes to the standard output of the process.
    """
    words = list(shlex.shlex(command, posix=True, punctuation_chars=True))
    if words[0] != "pequod" or "dump" in words or "$" in command or any(set(word) <= set("();<>|&") for word in words):
        return run(["bash", "-c", command], target)
    result = CliRunner().invoke(app, shlex.split(command)[1:], env={"PEQUOD_TARGET": target}, prog_name="pequod")
    return result.output.strip("\n")


def test_the_sessions_are_as_the_page_shows_them(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    page = PAGE.replace("/tmp/rows", str(tmp_path))
    shown = 0
    for kind, text in BLOCK.findall(page):
        if kind == "console":
            for command, output in commands(text):
                printed = printed_by(command, target)
                assert SECONDS.sub("in - s", printed) == SECONDS.sub("in - s", output.rstrip("\n")), command
                shown += 1
    assert shown > 20


def test_every_exit_code_is_on_the_page() -> None:
    table = PAGE.partition("### Exit codes")[2].partition("\n\n##")[0]
    codes = [int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)]
    assert codes == sorted({int(code) for code in ExitCode})


def test_every_command_is_on_the_page() -> None:
    root: Any = typer.main.get_command(app)
    for name, command in root.commands.items():
        assert f"pequod {name}" in PAGE, name
        if name in ("join", "config", "token", "backing", "cluster"):
            for part in command.commands:
                assert f"pequod {name} {part}" in PAGE, (name, part)
