"""The pages about the inside are true: their maps name every file, and the names in their text are in the code."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: The packages that a page has the map of.
MAPS = {
    "engine": ["pequod/language", "pequod/answers", "pequod/commands", "pequod/engine", "pequod/native"],
    "server": ["server/pequod_server"],
    "spark": [
        "spark_backfill/pyspark_pequod",
        "spark_backfill/pequod_spark",
        "spark_backfill/pequod_lake",
        "spark_backfill/pyspark_pequod_lake",
    ],
    "views": ["server/pequod_views"],
    "bench": ["bench/pequod_bench", "bench/pequod_workloads", "bench/lab"],
    "clients": [
        "pequod/cluster",
        "pequod/interface",
        "pequod/client",
        "pequod/wire",
        "pequod/embedded",
        "pequod/cli",
        "server/pequod_installed",
    ],
}
#: What the names of sources end with.
SOURCES = {".py", ".cpp", ".hpp"}
#: Files that need no line of a map: what a package is, and how it is started.
UNNAMED = {"__init__.py", "__main__.py"}
PAGES = [ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs/architecture").glob("*.md"))]
#: Where the classes are that texts name.
CODE = ["pequod", "grammar", "server", "spark_backfill", "bench"]
#: Words in backticks that are of the language, a library or a protocol, not names in the code.
OTHER_WORDS = {"copy", "intervaltree", "malloc", "prometheus_client", "pull", "push", "snapshot"}


def mapped(page: Path) -> list[str]:
    """Return the paths of the files in the map of a page: lines of a folder, then lines of its files."""
    paths, folder = [], ""
    for line in page.read_text().partition("## The files\n")[2].partition("\n## ")[0].splitlines():
        if found := re.match(r"    (\S+/)$", line):
            folder = found[1]
        elif found := re.match(r"      (\w+\.(?:py|cpp|hpp))\s+\S", line):
            paths.append(folder + found[1])
    return paths


@pytest.mark.parametrize("name", MAPS)
def test_a_map_names_every_file_once_and_no_other(name: str) -> None:
    there = [
        path
        for root in MAPS[name]
        for path in (ROOT / root).rglob("*")
        if path.suffix in SOURCES and path.name not in UNNAMED
    ]
    if name == "clients":
        there += [path for path in (ROOT / "pequod").glob("*.py") if path.name not in UNNAMED]
    assert sorted(mapped(ROOT / f"docs/architecture/{name}.md")) == sorted(
        path.relative_to(ROOT).as_posix() for path in there
    )


@pytest.fixture(scope="module")
def words_of_the_code() -> set[str]:
    roots = ["pequod", "grammar", "server", "spark_backfill", "bench", "proto"]
    files = [path for root in roots for kind in ("*.py", "*.proto") for path in (ROOT / root).rglob(kind)]
    ours = [path for path in files if "node_modules" not in path.parts]
    return {word for path in ours for word in re.findall(r"\w+", path.read_text())}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_names_of_a_page_are_in_the_code(page: Path, words_of_the_code: set[str]) -> None:
    text = re.sub(r"^    .*$", "", page.read_text(), flags=re.MULTILINE)
    named = re.findall(r"`((?:\w+\.)*\w+)`", text)
    words = {word for name in named if not name.endswith((".py", ".pyi", ".toml")) for word in name.split(".")}
    assert words - OTHER_WORDS - words_of_the_code == set()
    modules = {path.name for root in ("pequod", "server", "spark_backfill") for path in (ROOT / root).rglob("*.py")}
    assert {name for name in named if name.endswith(".py")} <= modules


@pytest.fixture(scope="module")
def members_of_the_code() -> dict[str, set[str]]:
    """Return the names in each class: of its methods and attributes, and those of its bases."""
    own, bases = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for root in CODE:
        for path in (ROOT / root).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    own[node.name] |= set(_members(node))
                    bases[node.name] |= {re.sub(r"\[.*", "", ast.unparse(base)).split(".")[-1] for base in node.bases}
    return {name: _inherited(name, own, bases) for name in own}


def _members(kind: ast.ClassDef) -> Iterator[str]:
    for line in kind.body:
        targets = (
            line.targets if isinstance(line, ast.Assign) else [line.target] if isinstance(line, ast.AnnAssign) else []
        )
        yield from (target.id for target in targets if isinstance(target, ast.Name))
    for node in ast.walk(kind):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                yield name
            case ast.Constant(value=str(name)):
                # Of `__slots__`, for what is native.
                yield name
            case _:
                continue


def _inherited(name: str, own: dict[str, set[str]], bases: dict[str, set[str]]) -> set[str]:
    found, todo = set[str](), [name]
    for one in todo:
        found |= own.get(one, set())
        todo += [base for base in bases.get(one, set()) if base not in todo]
    return found


@pytest.mark.parametrize("where", ["ARCHITECTURE.md", "docs", *CODE])
def test_members_of_classes_that_texts_name_are_there(where: str, members_of_the_code: dict[str, set[str]]) -> None:
    path = ROOT / where
    files = [path] if path.is_file() else [file for kind in ("*.md", "*.py") for file in path.rglob(kind)]
    wrong = [
        f"{file.relative_to(ROOT)}: {name}.{member}"
        for file in files
        for name, member in re.findall(r"(?<!`)`([A-Z]\w+)\.(\w+)(?:\(.*?\))?`(?!`)", file.read_text())
        if name in members_of_the_code and member not in members_of_the_code[name]
    ]
    assert wrong == []


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_the_paths_of_a_page_are_there(page: Path) -> None:
    for path in re.findall(r"`([\w.]+/[\w./]*)`", page.read_text()):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_functions_that_a_page_names_are_in_the_native_core(page: Path) -> None:
    for file, name in re.findall(r"`(\w+\.[ch]pp): (\w+)`", page.read_text()):
        source = (ROOT / "pequod/native" / file).read_text()
        assert re.search(rf"^(?!.*return).*\b{name}\(.*[{{,]$", source, re.MULTILINE), f"{file}: {name}"


def test_a_page_leads_through_the_native_core() -> None:
    named = re.findall(r"`(\w+)\.[ch]pp: \w+`", (ROOT / "docs/architecture/native.md").read_text())
    assert {"verbs", "telling", "state", "tables", "rows", "routes", "collect", "timeline", "batch_commands"} <= {
        *named
    }


def test_the_paths_that_the_native_core_names_are_there() -> None:
    for source in (ROOT / "pequod/native").rglob("*.[ch]pp"):
        for path in re.findall(r"(?:proto/)?\bpequod/[\w/]+\.\w+", source.read_text()):
            assert (ROOT / path).exists(), f"{source.name}: {path}"


def test_each_decision_has_a_number_of_its_own() -> None:
    numbers = re.findall(r"^### (\w+)\.", (ROOT / "docs/architecture/decisions.md").read_text(), re.MULTILINE)
    assert len(numbers) > 100
    assert [number for number in numbers if numbers.count(number) > 1] == []
