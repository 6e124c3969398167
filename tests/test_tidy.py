"""The tree stays readable: short files and functions, one meaning for each name, plain words."""

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
    "tests/backing/test_intake.py test_a_commit_is_visible_as_a_whole_to_every_kind_of_read": "one story",
    "tests/backing/test_intake.py test_commits_loads_and_reloads_in_any_order_leave_what_the_database_has": "one story",
}
#: The packages in which the name of a module has one meaning.
NAMED = ["server/pequod_server", "pequod/client"]
#: Names of several modules of such a package: the meaning that they share. The room says which one it is.
ROLES = {
    "columns": "data as columns: of a mapping, of a batch",
    "connection": "a connection with a server, or with the servers of a cluster",
    "due": "the rows of a database that have expired, and their deletion",
    "errors": "what goes wrong in a room",
    "joins": "the joins of the settings, or of the map",
    "loads": "loads on one side of the protocol between servers",
    "rows": "records of a database as rows",
    "schema": "the tables of a database, and whether they fit",
    "service": "a servicer of gRPC",
    "session": "the connection with a database, or with a home",
    "store": "the protocol of databases, and each of its implementations",
    "writes": "how writes are carried out",
}
#: Phrases that make readers guess: who, what or how many is meant?
RIDDLES = re.compile(r"\b(tells? whether|what of it is|so many|somebody|whoever)\b", re.IGNORECASE)
#: Words that leave out the actor or the thing where a docstring, or the comment of an attribute, begins with them.
VAGUE = re.compile(r"(\"\"\"|#: )(What|Those|Who|It)\b")
#: A promise without an actor or a thing.
NOTHING_FOR_NOBODY = re.compile(r"\b(none that nobody|None if there is none\b|those who (ask|wait))")
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
    #: What is imported by name: the module, and the name in it.
    imports: list[tuple[str, str]]


@cache
def sources() -> dict[str, Source]:
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if "_pb2" not in path.name]
    return {path.relative_to(ROOT).as_posix(): read_source(path.read_text()) for path in sorted(paths)}


def read_source(text: str) -> Source:
    found = Source(text.count("\n"), [], [], [])
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.functions.append((node.name, body_lines(node)))
        elif isinstance(node, ast.ClassDef):
            found.classes.append((node.name, node.lineno))
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.imports.extend((node.module, alias.name) for alias in node.names)
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


@pytest.mark.parametrize("folder", NAMED)
def test_a_name_of_modules_has_one_meaning(folder: str) -> None:
    places = defaultdict(list)
    for name in sources():
        if name.startswith(folder + "/"):
            places[Path(name).stem].append(name)
    shared = {stem: where for stem, where in places.items() if len(where) > 1 and stem != "__init__"}
    assert shared.keys() <= ROLES.keys(), shared


@pytest.mark.parametrize("folder", NAMED)
def test_modules_that_share_their_first_word_are_a_room(folder: str) -> None:
    groups = defaultdict(set)
    for name in sources():
        path = Path(name)
        if name.startswith(folder + "/") and not path.stem.startswith("_"):
            groups[path.parent.as_posix(), path.stem.partition("_")[0]].add(path.stem)
    crowded = {f"{room}/{word}_*": stems for (room, word), stems in groups.items() if len(stems) > 2}
    assert crowded == {}


def test_classes_that_share_a_name_are_named_with_their_modules() -> None:
    places = defaultdict(set)
    for name, source in sources().items():
        if not name.startswith("tests/"):
            for class_name, _ in source.classes:
                places[class_name].add(module_of(name))
    bare = [
        f"{name}: from {module} import {imported}"
        for name, source in sources().items()
        for module, imported in source.imports
        if module in places[imported] and package_count(places[imported]) < len(places[imported])
    ]
    assert bare == []


def module_of(path: str) -> str:
    """Return the name by which a file is imported; only the packages in `pequod` lie where their names say."""
    folder, _, rest = path.removesuffix(".py").partition("/")
    return (path.removesuffix(".py") if folder == "pequod" else rest).replace("/", ".")


def package_count(modules: set[str]) -> int:
    return len({module.partition(".")[0] for module in modules})


@pytest.mark.parametrize("where", PROSE)
def test_prose_names_the_actor_and_the_number(where: str) -> None:
    path = ROOT / where
    files = [path] if path.is_file() else [one for kind in ("*.md", "*.py", "*.proto") for one in path.rglob(kind)]
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in files
        if "node_modules" not in file.parts
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if RIDDLES.search(line)
    ]
    assert found == []


@pytest.mark.parametrize("folder", NAMED)
def test_descriptions_begin_with_the_thing_or_the_action(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in (ROOT / folder).rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if NOTHING_FOR_NOBODY.search(line) or (number > 1 and VAGUE.search(line))
    ]
    assert found == []
