"""The documentation is true: examples run and print what they show, settings, commands and links are there."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import typer.main
from google.protobuf import json_format
from google.protobuf.message_factory import GetMessageClass
from pequod_grammar import parse
from pequod_lake import LakeSchema
from pequod_proto import pequod_pb2
from pequod_server import ServerConfig
from pequod_server.backing.mapping import parse_mappings
from pequod_server.config import written
from pequod_server.joins import install_joins
from pequod_server.settings import load
from pequod_server.wire.standard import SERVICE
from typer.testing import CliRunner

from pequod.cli.app import app
from pequod.engine import Engine
from tests.forked import started_server

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "bench/README.md",
    ROOT / "grammar/README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
#: The fenced blocks that tests run, by page; a block without a kind shows what the one before it prints.
RUN = {
    "docs/cli.md": {"console"},  # tests/cli/test_cli_page.py
    "README.md": {"python", "console", "html"},  # tests/cli/test_readme.py, tests/console/test_browser.py
    "grammar/README.md": {"cachejoin", "rows", "refused"},  # tests/grammar/test_grammar.py
    "docs/api.md": {"python"},
    "docs/backing.md": {"toml", "python"},
    "docs/changing-joins.md": {"python"},
    "docs/cluster.md": {"toml"},  # tests/cluster/test_static.py
    "docs/configuration.md": {"console"},
    "docs/consistency.md": {"python"},
    "docs/deployment.md": {"sql", "toml"},  # tests/backing/test_roles.py
    "docs/home-feed.md": {"python"},
    "docs/go.md": {"console", "go"},  # tests/golang/test_page.py
    "docs/http.md": {"console", "html"},  # tests/gateway/test_page.py, tests/console/test_browser.py
    "docs/lake.md": {"toml", "python"},
    "docs/recipes.md": {"python"},
    "docs/security.md": {"toml"},  # tests/server/test_security_guard.py
    "docs/when-a-scan-is-empty.md": {"console"},  # tests/cli/test_empty_page.py
    "docs/when-etcd-is-lost.md": {"console"},  # tests/cluster/test_lost_page.py
    "docs/spark.md": {"python"},  # tests/spark/test_docs.py
    "docs/tutorials/django/README.md": {"console"},  # tests/tutorials
    "docs/tutorials/fastapi/README.md": {"console"},  # the same
    "docs/types.md": {"python"},
    "docs/typescript.md": {"typescript"},  # tests/typescript/test_page.py
    "docs/views.md": {"python", "toml"},  # tests/views/versioned/test_page.py
}
#: How the blocks begin that cannot be run, or that show what is run elsewhere on the page.
NOT_RUN = (
    "t|<user>",
    "source .venv",
    "pip install",
    "Spark cannot start",
    "def read(",
    ">>> from pequod_spark",
    ">>> hours",
    ">>> from pyspark_pequod",  # the same is done in tests/spark/test_source.py
    "$ spark-submit",
    ">>> feed",  # the same is done in tests/spark/test_stream.py
    ">>> from pyspark.sql import SparkSession",  # the same is done in tests/spark/test_connect.py
    ">>> counts",  # the same
    "$ pequod spark load",  # the same is done in tests/spark/test_load.py
    "$ pequod backing install",  # the same is done in tests/backing
)


@pytest.mark.parametrize("name", ["api", "changing-joins", "consistency", "home-feed", "recipes", "types"])
def test_the_examples_of_a_page_print_what_they_show(name: str) -> None:
    page = (ROOT / f"docs/{name}.md").read_text()
    examples = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", page, re.DOTALL)
    assert len(examples) == page.count("```python") > 1
    with started_server() as (target, _):
        for code, expected in examples:
            with redirect_stdout(StringIO()) as printed:
                exec(code.replace("127.0.0.1:7744", target), {"__name__": "__main__"})
            assert printed.getvalue() == expected, code


def test_the_mappings_of_the_backing_page_are_some() -> None:
    page = (ROOT / "docs/backing.md").read_text()
    texts = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert [len(parse_mappings(text)) for text in texts] == [2, 1]


@pytest.mark.parametrize("name", ["backing", "lake"])
def test_the_example_of_a_page_prints_what_it_shows(name: str) -> None:
    page = (ROOT / f"docs/{name}.md").read_text()
    ((code, expected),) = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", page, re.DOTALL)
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.stdout == expected, done.stderr


def test_the_schema_of_the_lake_page_is_one() -> None:
    page = (ROOT / "docs/lake.md").read_text()
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert [table.name for table in LakeSchema.parse(text).tables] == ["posts"]


def test_the_settings_of_the_deployment_page_are_settings(tmp_path: Path) -> None:
    page = (ROOT / "docs/deployment.md").read_text()
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    file = tmp_path / "pequod.toml"
    file.write_text(text)
    settings = load(file)
    assert {name for name, origin in settings.origins.items() if origin == str(file)} == tomllib.loads(text).keys()


@pytest.mark.usefixtures("default_settings")
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


@pytest.mark.usefixtures("default_settings")
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
            timeout=180,
            check=False,
        )
        assert done.stdout == expected, command
    assert len(sessions) == 3


def _named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=_named)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for link in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        path, _, heading = link.partition("#")
        if "://" in link:
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.is_file(), link
        assert target.is_relative_to(ROOT), link
        headings = re.findall(r"^#+ (.*)", target.read_text(), re.MULTILINE) if heading else []
        # What a code host and the site make of a heading.
        slugs = {re.sub(r"[^\w -]", "", text).lower().replace(" ", "-") for text in headings}
        assert not heading or heading in slugs, link


@pytest.mark.parametrize("page", PAGES, ids=_named)
def test_every_block_is_run_by_a_test(page: Path) -> None:
    before = ""
    for kind, text in re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        known = RUN.get(_named(page), set())
        assert kind in known or before in known or text.startswith(NOT_RUN), text
        before = kind


def _not_run(page: Path) -> list[str]:
    blocks = re.findall(r"^```\w*\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [text for text in blocks if text.startswith(NOT_RUN)]


@pytest.mark.parametrize("page", PAGES, ids=_named)
def test_what_is_not_run_can_be_said(page: Path) -> None:
    for text in _not_run(page):
        if text.startswith("t|"):
            assert parse(text)
        elif text.startswith("def "):
            compile(text, str(page), "exec")
        elif text.startswith(">>>"):
            lines = re.findall(r"^>>> (.*)$", text, re.MULTILINE)
            exec("\n".join(line for line in lines if line.startswith("from ")), {})
            compile("\n".join(lines), str(page), "exec")
        else:
            for line in text.splitlines():
                _say(line.removeprefix("$ "))


@cache
def _pequod() -> Any:
    """Return the command, whose parts are made once."""
    return typer.main.get_command(app)


def _say(line: str) -> None:
    """See that a command of ours has such options, and that an extra that is to be installed is there."""
    program, *words = shlex.split(line)
    if program == "pequod":
        _parse(_pequod(), words)
    elif program == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        wanted = re.findall(r"\[([\w,]+)\]", words[-1])
        assert wanted
        assert set(wanted[0].split(",")) <= set(extras), line


def test_what_is_said_to_grpcurl_is_a_call_of_ours() -> None:
    page = (ROOT / "docs/operations.md").read_text()
    said = re.findall(r"^    grpcurl -plaintext -d '(.*)' \S+ pequod\.v1\.Pequod/(\w+)$", page, re.MULTILINE)
    assert said
    for request, name in said:
        method = pequod_pb2.DESCRIPTOR.services_by_name["Pequod"].methods_by_name[name]
        assert json_format.Parse(request, GetMessageClass(method.input_type)()).ByteSize()


@pytest.mark.parametrize("page", PAGES, ids=_named)
def test_the_commands_in_indented_blocks_can_be_said(page: Path) -> None:
    joined_lines = re.sub(r"\\\n +", "", page.read_text())
    outside_fences = re.sub(r"^```.*?^```$", "", joined_lines, flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for line in re.findall(r"^    (?:\$ )?((?:pequod|make) .*)", outside_fences, re.MULTILINE):
        command = re.split(r"  +| \| | &$", line)[0]
        program, *words = shlex.split(command)
        if program == "make":
            assert words[0] in targets, line
        else:
            _parse(_pequod(), words)


def _parse(command: Any, words: list[str], parent: Any = None) -> None:
    """Read the words of a command line as `pequod` does, without doing anything."""
    with command.make_context("pequod", words, parent) as context:
        words = [*context._protected_args, *context.args]
        if hasattr(command, "resolve_command") and words:
            _, child, rest = command.resolve_command(context, words)
            _parse(child, rest, context)


def test_the_site_has_every_page_and_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    for page in PAGES:
        folder = page.parent if page.name == "README.md" else page.with_suffix("")
        html = (tmp_path / folder.relative_to(ROOT) / "index.html").read_text()
        assert not re.search(r"""(src|href)="[^"]*\.md[#"]""", html), page
        assert not re.search(r"""<(script|link|img)[^>]* (src|href)="(https?:)?//""", html), "fetched from elsewhere"
        for link in re.findall(r"\]\(([^)#]+)", page.read_text()):
            path = (page.parent / link).resolve()
            if "://" not in link and path.suffix != ".md":
                assert (tmp_path / path.relative_to(ROOT)).read_bytes() == path.read_bytes()
    tour = (tmp_path / "index.html").read_text()
    assert '<span class="k">check</span> <span class="nc">s</span>' in tour, "a join has no colours"
    assert '<svg class="picture" ' in tour, "the picture has not the colours of the page"
    assert '<code><span class="whole">t|ann|</span></code>' in tour, "a key may break at the end of a line"
    assert (tmp_path / "docs/extra.css").is_file()


def test_the_probe_of_the_operations_page_asks_for_the_service() -> None:
    page = (ROOT / "docs/operations.md").read_text()
    assert re.findall(r"grpc: \{port: (\d+), service: ([\w.]+)\}", page) == [
        (ServerConfig().listen.rpartition(":")[2], SERVICE)
    ]
