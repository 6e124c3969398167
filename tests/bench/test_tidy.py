"""Benchmarks keep out of the engine's insides, and what comments say of their rows is so."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import lab
import pequod_bench
import pequod_server
import pytest
from pequod_bench.micro.run import workloads

import pequod

#: "(bench row: replace)"; "Bench rows: check, first; fan-out."
_CITED = re.compile(r"[Bb]ench rows?: ([^).]*)[).]")
#: Of `os` and of named tuples, which have no other names for them.
_NOT_OURS = {"_exit", "_fields", "_replace"}
ROWS = {workload.name for workload in workloads()}


def _sources(package: object) -> list[Path]:
    (folder,) = package.__path__  # type: ignore[attr-defined]
    return sorted(Path(folder).rglob("*.py"))


@pytest.mark.parametrize("path", [*_sources(pequod_bench), *_sources(lab)], ids=lambda path: path.stem)
def test_a_benchmark_uses_no_private_name_of_what_it_measures(path: Path) -> None:
    """What is private to a module may be used in it."""
    tree = ast.parse(path.read_text("utf-8"))
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    private = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_private(node.attr)]
    own |= {node.attr for node in private if _is_own(node)} | _NOT_OURS
    used = {node.attr for node in private}
    assert used <= own
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and _takes_private(node)]
    assert "unittest" not in path.read_text("utf-8")


def _is_own(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _takes_private(node: ast.ImportFrom) -> bool:
    return any(_is_private(alias.name) for alias in node.names)


def test_rows_that_comments_cite_exist() -> None:
    cited: dict[str, set[str]] = {}
    for path in (*_sources(pequod), *_sources(pequod_server)):
        text = re.sub(r"\s*\n\s*(#:? )?", " ", path.read_text("utf-8"))
        for found in _CITED.findall(text):
            for row in found.split("; "):
                cited.setdefault(row.strip(), set()).add(path.name)
    assert {"check, incremental", "replace"} <= set(cited)
    assert not {row: files for row, files in cited.items() if row not in ROWS}
