"""The documentation is true: examples run and print what they show, settings and links are there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pequod_bench.process import started_server
from pequod_server import ServerConfig
from pequod_server.config import written
from pequod_server.joins import install_joins
from pequod_server.settings import load
from typer.testing import CliRunner

from pequod.cli.app import app
from pequod.engine import Engine

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
    assert len(examples) == page.count("```python") > 1
    with started_server() as (target, _):
        for code, expected in examples:
            command = [sys.executable, "-W", "error", "-c", code.replace("127.0.0.1:7744", target)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            assert done.stdout == expected, done.stderr


def test_the_example_of_the_backing_page_prints_what_it_shows() -> None:
    page = (ROOT / "docs/backing.md").read_text()
    ((code, expected),) = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", page, re.DOTALL)
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == expected, done.stderr


def test_every_setting_is_in_the_table_with_its_default() -> None:
    page = (ROOT / "docs/configuration.md").read_text()
    table = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", page, re.MULTILINE))
    defaults = {name: written(name, field.default) or "none" for name, field in ServerConfig.model_fields.items()}
    assert table == defaults


def test_every_setting_is_a_flag_whose_help_tells_the_default() -> None:
    text = CliRunner().invoke(app, ["serve", "--help"], terminal_width=300).stdout
    for name, field in ServerConfig.model_fields.items():
        default = {"": None, "true": "on", "false": "off"}.get(shown := written(name, field.default), shown)
        end = f" [default: {default}]" if default else ""
        flag = f"--{name.replace('_', '-')}"
        assert re.search(rf"{flag}\b.*  {re.escape(f'{field.description}{end}')}$", text, re.MULTILINE), name


def test_the_sample_file_has_every_setting_with_its_default() -> None:
    file = ROOT / "docs/pequod.toml"
    settings = load(file)
    without = {name for name, field in ServerConfig.model_fields.items() if field.default is None}
    assert {name for name, origin in settings.origins.items() if origin != str(file)} == without
    assert set(re.findall(r"^# (\w+) = ", file.read_text(), re.MULTILINE)) == without
    assert settings.config.model_copy(update={"joins": ""}) == ServerConfig()
    engine = Engine()
    install_joins(engine, settings.config)
    assert [join.name for join in engine.joins()] == ["t", "karma"]


def test_the_console_of_the_configuration_page_shows_what_is_printed() -> None:
    page = (ROOT / "docs/configuration.md").read_text()
    (console,) = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    sessions = [part.split("\n", 1) for part in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for command, expected in sessions:
        done = subprocess.run(
            ["bash", "-c", f"{command} 2>&1"],
            env={"PATH": path},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.stdout == expected, command
    assert len(sessions) == 3


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
