"""The documentation is true: examples run and print what they show, settings and links are there."""

import inspect
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from pequod_bench.process import started_server
from pequod_server import ServerConfig

from pequod.cli.serve import serve

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "grammar/README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]


def test_the_examples_of_the_api_page_print_what_they_show() -> None:
    page = (ROOT / "docs/api.md").read_text()
    examples = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", page, re.DOTALL)
    assert len(examples) == page.count("```python") == 5
    with started_server() as (target, _):
        for code, expected in examples:
            command = [sys.executable, "-W", "error", "-c", code.replace("127.0.0.1:7744", target)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            assert done.stdout == expected, done.stderr


def test_every_setting_is_a_flag_with_the_same_default_and_documented() -> None:
    flags = inspect.signature(serve).parameters
    page = (ROOT / "docs/configuration.md").read_text()
    for setting in fields(ServerConfig):
        assert flags[setting.name].default == setting.default, setting.name
        assert f"`--{setting.name.replace('_', '-')}" in page, setting.name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert "://" in link or (page.parent / link).exists(), link


def test_architecture_names_what_is_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    engine = "\n".join(path.read_text() for path in (ROOT / "pequod/engine").glob("*.py"))
    for name in set(re.findall(r"`(?:[A-Z]\w+\.)?(_?[a-z]\w+)`", text)) - {"pull", "push", "snapshot", "remove"}:
        assert re.search(rf"\b{name}\b", engine) or name in {"intervaltree", "explain", "pequod"}, name
    for module in re.findall(r"\b(\w+\.py)\b", text):
        assert (ROOT / "pequod/engine" / module).exists(), module
