"""The whole program of docs/views.md over a store with many masters prints what it shows; commands read its file."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner

from pequod.cli.app import app

_PAGE: Final = (Path(__file__).parents[3] / "docs" / "views.md").read_text().partition("### A whole program")[2]


def test_the_whole_program_prints_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ((code, expected, views),) = re.findall(
        r"```python\n(.*?)```\n\n```\n(.*?)```.*?```toml\n(.*?)```", _PAGE, re.DOTALL
    )
    for _ in range(2):
        command = [sys.executable, "-W", "error", "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
        assert done.stdout == expected, done.stderr
    (tmp_path / "views.toml").write_text(views)
    monkeypatch.chdir(tmp_path)
    read = CliRunner().invoke(app, ["versioned", "read", "views.toml", "assigned_to", "kim"])
    assert (read.exit_code, read.output) == (0, '7 {"title": "The door sticks", "status": "open"}\n')
    assert CliRunner().invoke(app, ["versioned", "read", "views.toml", "assigned_to", "ann"]).exit_code == 1
    checked = CliRunner().invoke(app, ["versioned", "check", "views.toml"])
    assert (checked.exit_code, "0 wrong" in checked.output) == (0, True)
