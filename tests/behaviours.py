"""From a behaviour to its tests: each test's name is a sentence, and each file's first line says what it is about.

python tests/behaviours.py                   write docs/architecture/tests.md: what each file of tests is about
python tests/behaviours.py half-open slot    print the tests whose sentence, or file, has all of these words
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs/architecture/tests.md"
_HEAD: Final = """# Where each behaviour is tested

Each file of tests is about one thing, and says which; the name of each test in it is a sentence. To find the test of a
behaviour, ask for its words:

    make behaviours WORDS="half-open slot"

It prints the tests whose sentence, or whose file's line below, has all of the words. `make behaviours` writes this page
anew, from the first lines of the files; a test holds it. How the suite is built is in
[CONTRIBUTING](../../CONTRIBUTING.md).
"""


class Behaviour(NamedTuple):
    """What one test holds."""

    #: The name of the test, as words.
    sentence: str
    #: Of the file, from the root of the repository.
    path: str
    line: int


class Module(NamedTuple):
    """A file of tests."""

    path: str
    #: What it is about: the first paragraph of its docstring, in one line; empty if it has none.
    about: str
    behaviours: list[Behaviour]


@cache
def modules() -> Sequence[Module]:
    """Return the files of tests, in the order of their paths."""
    return [_module(file) for file in sorted((ROOT / "tests").rglob("test_*.py"))]


def _module(file: Path) -> Module:
    tree = ast.parse(file.read_text("utf-8"))
    path = file.relative_to(ROOT).as_posix()
    about = " ".join((ast.get_docstring(tree) or "").split("\n\n")[0].split())
    found = [
        Behaviour(node.name.removeprefix("test_").replace("_", " "), path, node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]
    return Module(path, about, sorted(found, key=lambda one: one.line))


def search(words: Sequence[str]) -> list[tuple[Module, list[Behaviour]]]:
    """Return the tests that have all of some words in their sentence, their path or the line of their file."""
    wanted = [_plain(word) for word in words]
    found = []
    for module in modules():
        around = _plain(f"{module.path} {module.about}")
        hits = [
            one for one in module.behaviours if all(word in around or word in _plain(one.sentence) for word in wanted)
        ]
        if hits:
            found.append((module, hits))
    return found


def _plain(text: str) -> str:
    """Return a text as it is compared: names of tests have neither capitals nor signs."""
    return "".join(character if character.isalnum() else " " for character in text.lower())


def page() -> str:
    """Return the text of the page."""
    lines, folder = [_HEAD], ""
    for module in modules():
        where, _, name = module.path.rpartition("/")
        if where != folder:
            folder = where
            lines.append(f"\n## {folder}\n\n| file | what it is about |\n|---|---|\n")
        lines.append(f"| {name} | {module.about.replace('|', chr(92) + '|')} |\n")
    return "".join(lines)


def main(words: Sequence[str]) -> int:
    """Write the page, or print what has the words; return the exit code."""
    if not words:
        PAGE.write_text(page(), "utf-8")
        print(f"{PAGE.relative_to(ROOT)}: written")
        return 0
    found = search(words)
    for module, behaviours in found:
        print(f"{module.path}: {module.about}")
        for one in behaviours:
            print(f"  {one.line:4}  {one.sentence}")
    if not found:
        print(f"no test has all of the words {' '.join(words)}: try fewer, or other ones", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
