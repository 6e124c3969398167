"""Generate the synchronous calls from the asynchronous ones.

    python pequod/interface/generate.py            write the files
    python pequod/interface/generate.py --check    fail if a committed file is another

    async def get(self, key):                            def get(self, key):
        ...                                         ->       return self._wait(self._calls.get(key))
    async def keys_iter(self, first):                    def keys_iter(self, first):
        async for rows in self._chunks(first):      ->       for rows in self._iterate(self._calls._chunks(first)):

An iterator keeps its body, so that threads meet once a chunk and not once a row. Signatures and docstrings stay. The
result is committed, so that editors, type checkers and readers see plain code. It runs by its path, since the package
around it cannot be imported while a generated file is broken.
"""

from __future__ import annotations

import ast
import difflib
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
RUFF: Final = Path(sys.executable).with_name("ruff")
#: The module that defines a class, and the one that is generated from it.
MODULES: Final = {
    "pequod/interface/keys.py": "pequod/interface/sync_keys.py",
    "pequod/interface/asynchronous.py": "pequod/interface/synchronous.py",
    "pequod/client/backfills.py": "pequod/client/sync_backfills.py",
}
CONTEXT: Final = {"__aenter__": "__enter__", "__aexit__": "__exit__"}

_MODULE: Final = '''"""{title}, for callers that wait, from any thread.

Generated from {source} by `make interface`.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Generator
from contextlib import closing
{imports}
from {module} import {names}
from pequod.interface.waiting import Waiter
'''
_FIRST: Final = '''
class {name}:
    """{title}"""

    __slots__ = ("_calls", "_iterate", "_wait")

    def __init__(self, calls: {original}, waiter: Waiter) -> None:
        self._calls = calls
        self._wait = waiter.run
        self._iterate = waiter.iterate
'''
#: A class whose asynchronous twin has another one as its base.
_FURTHER: Final = '''
class {name}({base}):
    """{title}"""

    __slots__ = ()
    _calls: {original}
'''


def generated(source: str) -> str:
    """Return the synchronous module of an asynchronous one."""
    tree = ast.parse((ROOT / source).read_text())
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    defined = [node for node in classes if node.name.startswith("Async")]
    imports = [_waiting_import(node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    title, *_ = (ast.get_docstring(defined[0]) or "").split(" whose")
    module = ast.parse(
        _MODULE.format(
            title=title,
            source=source,
            module=source.removesuffix(".py").replace("/", "."),
            names=", ".join(node.name for node in classes),
            imports="\n".join(ast.unparse(node) for node in imports[1:]),
        )
    )
    for node in defined:
        (base,) = [*(ast.unparse(base) for base in node.bases), ""][:1]
        is_first = not base.startswith("Async")
        about = (
            f"{title} whose callers wait; they may be in any thread." if node is defined[0] else ast.get_docstring(node)
        )
        module.body += ast.parse(
            (_FIRST if is_first else _FURTHER).format(
                name=_waiting_name(node.name),
                # What it does not define itself is abstract, and its base is of another module.
                base=_waiting_name(f"{base}, ABC" if node is defined[0] else base),
                title=_waiting_name(about or ""),
                original=node.name,
            )
        ).body
    for made, original in zip(module.body[-len(defined) :], defined, strict=True):
        assert isinstance(made, ast.ClassDef), "classes end the module"
        _add_methods(made, original)
    text = ast.unparse(ast.fix_missing_locations(module))
    # Imports that only the asynchronous bodies need go, and loops that only yield become `yield from`.
    return _ruff("format", _ruff("check", text, "--quiet", "--fix-only", "--unsafe-fixes", "--select", "F401,I,UP028"))


def _waiting_import(node: ast.Import | ast.ImportFrom) -> ast.Import | ast.ImportFrom:
    """Return the import of what is generated from the names of an import; if there is no such module, the import."""
    module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
    target = MODULES.get(f"{module.replace('.', '/')}.py")
    if target is None:
        return node
    made = target.removesuffix(".py").replace("/", ".")
    return ast.ImportFrom(made, [ast.alias(_waiting_name(name.name)) for name in node.names], 0)


def _waiting_name(text: str) -> str:
    """Return the names of synchronous classes in the place of those of asynchronous ones."""
    return re.sub(r"\bAsync(?=[A-Z])(?!Generator)", "", text)


def _add_methods(made: ast.ClassDef, original: ast.ClassDef) -> None:
    """Add the methods that wait for those of an asynchronous class."""
    for node in original.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (node.name in CONTEXT or node.name[0] != "_"):
            waiting = _waiting(node)
            made.body.append(waiting)
            if any(ast.unparse(decorator) == "abstractmethod" for decorator in waiting.decorator_list):
                made.bases = made.bases or [ast.Name("ABC")]


def _waiting(node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.FunctionDef:
    """Return the method that waits for an asynchronous one."""
    decorators = [decorator for decorator in node.decorator_list if isinstance(decorator, ast.Name)]
    returns = ast.unparse(node.returns) if node.returns else "None"
    document, call = node.body[:1], f"self._calls.{node.name}"
    if any(decorator.id == "overload" for decorator in decorators):
        body = document
    elif node.name in CONTEXT or returns.startswith("AsyncGenerator"):
        body = [_Waiting().visit(statement) for statement in node.body]
    elif any(decorator.id == "property" for decorator in decorators):
        decorators, body = decorators[:1], [*document, *ast.parse(f"return {call}").body]
    elif decorators:
        # Of its own in each client.
        body = document
    else:
        arguments = [argument.arg for argument in node.args.args[1:]]
        arguments += [f"{argument.arg}={argument.arg}" for argument in node.args.kwonlyargs]
        waited = f"self._wait({call}({', '.join(arguments)}))"
        body = [*document, *ast.parse(waited if returns == "None" else f"return {waited}").body]
    (waiting,) = ast.parse(
        f"def {CONTEXT.get(node.name, node.name)}() -> {_waiting_name(returns).removeprefix('Async')}: ..."
    ).body
    assert isinstance(waiting, ast.FunctionDef), "it was parsed from one"
    waiting.args, waiting.body, waiting.decorator_list = node.args, body, [*decorators]
    return waiting


class _Waiting(ast.NodeTransformer):
    """Takes the async out of statements; what they iterate, of the asynchronous client, is waited for."""

    def visit_Await(self, node: ast.Await) -> ast.expr:
        return node.value

    def visit_AsyncWith(self, node: ast.AsyncWith) -> ast.AST:
        return self.generic_visit(ast.With(items=node.items, body=node.body))

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AST:
        return self.generic_visit(ast.For(target=node.target, iter=node.iter, body=node.body, orelse=node.orelse))

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name("closing", node.ctx) if node.id == "aclosing" else node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and ast.unparse(node.func).startswith("self._"):
            node.func.value = ast.parse("self._calls", mode="eval").body
            return ast.Call(ast.parse("self._iterate", mode="eval").body, [node], [])
        return node


def _ruff(command: str, text: str, *options: str) -> str:
    done = subprocess.run(
        [RUFF, command, *options, "--stdin-filename", ROOT / "pequod" / "generated.py", "-"],
        input=text,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def main(arguments: list[str]) -> int:
    """Write the generated files, or check that the committed ones are the same."""
    is_current = True
    for source, target in MODULES.items():
        path, text = ROOT / target, generated(source)
        if arguments != ["--check"]:
            path.write_text(text)
        elif text != path.read_text():
            is_current = False
            there = path.read_text().splitlines(keepends=True)
            sys.stdout.writelines(difflib.unified_diff(there, text.splitlines(keepends=True), target, "generated"))
    if not is_current:
        sys.stdout.write("run `make interface` and commit\n")
    return 0 if is_current else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
