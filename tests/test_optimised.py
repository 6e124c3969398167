"""Asserts say what must hold inside. Nothing that comes from outside is left to them: `python -O` refuses it as well.

`make test-optimised` runs the tests of the engine, the grammar and the server so.
"""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pequod_grammar
import pequod_server

import pequod

SCRIPT = """
from tests.engine.test_backfill import test_what_goes_must_have_been_there
assert False, "asserts are gone"
for operator in ("copy", "count", "sum", "avg", "min", "max"):
    test_what_goes_must_have_been_there(operator, has_another=False)
for operator in ("copy", "min"):
    test_what_goes_must_have_been_there(operator, has_another=True)
"""


def test_a_wrong_piece_is_refused_without_asserts() -> None:
    environment = os.environ | {"PYTHONOPTIMIZE": "1"}
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, timeout=120, env=environment)


def test_no_assertion_is_an_input_check() -> None:
    for package in (pequod, pequod_grammar, pequod_server):
        for path in Path(package.__path__[0]).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_bytes())):
                caught = node.type if isinstance(node, ast.ExceptHandler) else None
                names = {part.id for part in ast.walk(caught) if isinstance(part, ast.Name)} if caught else set()
                assert "AssertionError" not in names, f"{path}:{node.lineno}"  # type: ignore[attr-defined]
