"""The tree stays readable: short files and functions, one class for each name, plain words."""

import ast
import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ["pequod", "grammar", "proto", "server", "spark_backfill", "bench", "tests", "docs"]

FILE_LINES_MAX = 400
#: Without signature and docstring.
FUNCTION_LINES_MAX = 60
#: Longer functions, and why each is one function.
LONG_FUNCTIONS = {
    "server/pequod_server/batches/batch.py run": "the hot loop of the server",
    "tests/backing/test_intake.py test_a_commit_is_visible_as_a_whole_to_every_kind_of_read": "one story",
    "tests/backing/test_intake.py test_commits_loads_and_reloads_in_any_order_leave_what_the_database_has": "one story",
}
#: Names of two classes, and why each is right on its side.
SHARED_NAMES = {
    "DefaultSource": "the name that Spark looks for in each module of a data source",
}
#: Phrases that make readers guess: who, what or how many is meant?
RIDDLES = re.compile(r"\b(tells? whether|what of it is|so many|somebody|whoever)\b", re.IGNORECASE)
#: What is read for riddles.
PROSE = [
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "grammar",
    "spark_backfill",
    "pequod",
    "bench",
    "docs",
    "server",
    "proto",
]


@dataclass(frozen=True)
class Source:
    """What is looked at in a file: a thousand syntax trees would keep the garbage collector busy for seconds."""

    line_count: int
    #: Functions and classes by name: of those the lines, of these the line at which they begin.
    functions: list[tuple[str, int]]
    classes: list[tuple[str, int]]


@cache
def sources() -> dict[str, Source]:
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if "_pb2" not in path.name]
    return {path.relative_to(ROOT).as_posix(): read_source(path.read_text()) for path in sorted(paths)}


def read_source(text: str) -> Source:
    found = Source(text.count("\n"), [], [])
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.functions.append((node.name, body_lines(node)))
        elif isinstance(node, ast.ClassDef):
            found.classes.append((node.name, node.lineno))
    return found


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert function.end_lineno is not None
    first = function.body[ast.get_docstring(function) is not None :]
    return function.end_lineno - first[0].lineno + 1 if first else 0


def test_files_are_short() -> None:
    assert [name for name, source in sources().items() if source.line_count > FILE_LINES_MAX] == []


def test_functions_are_short() -> None:
    long = {
        f"{name} {function}"
        for name, source in sources().items()
        for function, lines in source.functions
        if lines > FUNCTION_LINES_MAX
    }
    assert long == LONG_FUNCTIONS.keys()


def test_no_two_classes_share_a_name() -> None:
    places = defaultdict(list)
    for name, source in sources().items():
        if not name.startswith("tests/"):
            for class_name, line in source.classes:
                places[class_name].append(f"{name}:{line}")
    shared = {name: where for name, where in places.items() if len(where) > 1}
    assert shared.keys() == SHARED_NAMES.keys(), shared


@pytest.mark.parametrize("where", PROSE)
def test_prose_names_the_actor_and_the_number(where: str) -> None:
    path = ROOT / where
    files = [path] if path.is_file() else [one for kind in ("*.md", "*.py", "*.proto") for one in path.rglob(kind)]
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in files
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if RIDDLES.search(line)
    ]
    assert found == []
