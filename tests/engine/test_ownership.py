"""Who may change what: the ledger and the contexts by their own methods, whoever they belong to."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pequod_server
import pytest

import pequod
import pequod.engine

#: What a context is, by its class alone; ``last_used`` is for reads to write.
LIFE = {
    "aggregate_states", "expires_s", "first", "is_fresh", "is_live", "is_whole", "last", "log", "log_bytes", "lower",
    "ranges", "ready_until_s", "row_bytes", "stale_since_s", "state_bytes", "upper",
}  # fmt: skip
CONTEXTS = ("context", "dropped", "present", "stale", "timeline", "upstream")
CHANGING = {"add", "append", "clear", "extend", "insert", "pop", "remove", "setdefault", "update"}


def _changed(path: Path) -> Iterator[tuple[ast.Attribute, int]]:
    """Yield what a module assigns to, deletes, or calls a changing method of, where that is an attribute."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign | ast.Delete):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
            targets = [node.func.value]
        for target in targets:
            for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                owned = part.value if isinstance(part, ast.Subscript) else part
                if isinstance(owned, ast.Attribute):
                    yield owned, owned.lineno


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


@pytest.mark.parametrize("package", [pequod, pequod_server])
def test_only_the_ledger_changes_its_numbers(package: object) -> None:
    found = [
        f"{path.name}:{line}"
        for path in Path(package.__path__[0]).rglob("*.py")  # type: ignore[attr-defined]
        for owned, line in _changed(path)
        if _name(owned.value) in ("ledger", "_ledger")
    ]
    assert not found


def test_only_a_context_changes_its_life() -> None:
    found = [
        f"{path.name}:{line}"
        for path in Path(pequod.engine.__path__[0]).rglob("*.py")
        for owned, line in _changed(path)
        if owned.attr in LIFE and _name(owned.value) in CONTEXTS
    ]
    # `Context.depend_on` and `Context.die` speak of another context.
    assert not [place for place in found if not place.startswith("contexts.py")]
