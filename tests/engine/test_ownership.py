"""Only the methods of the ledger and of a context change them, also if the object belongs to another one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pequod_server
import pytest

import pequod
import pequod.engine
from pequod.engine import Engine
from pequod.engine.memory.eviction import VALUE_STEP

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


def test_what_the_shell_tells_the_ledger_is_in_the_statistics() -> None:
    engine = Engine(memory_limit=1 << 30)
    engine.ledger.note_process(5)
    engine.ledger.limit_process(7)
    engine.ledger.change_watches(3)
    memory = engine.statistics().memory
    assert (memory.process_bytes, memory.process_limit_bytes, memory.watch_bytes) == (5, 7, 3)


def test_a_large_value_is_weighed_sooner() -> None:
    engine = Engine(memory_limit=1 << 30)
    engine.put(b"x|1", b"1")
    due = engine.ledger.weigh_at
    engine.put(b"x|2", b"x" * (VALUE_STEP * 10))
    assert engine.ledger.weigh_at == due - 10
