"""The mutations of a text in Python, by its syntax tree.

Asserts, annotations, decorators, texts, messages of errors and what only types see are left alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from tests.mutations.mutation import Mutation

_COMPARED: Final[dict[type[ast.cmpop], tuple[str, str, str]]] = {
    ast.Lt: ("<", "<=", "bound"),
    ast.LtE: ("<=", "<", "bound"),
    ast.Gt: (">", ">=", "bound"),
    ast.GtE: (">=", ">", "bound"),
    ast.Eq: ("==", "!=", "comparison"),
    ast.NotEq: ("!=", "==", "comparison"),
    ast.Is: ("is", "is not", "comparison"),
    ast.IsNot: ("is not", "is", "comparison"),
    ast.In: ("in", "not in", "comparison"),
    ast.NotIn: ("not in", "in", "comparison"),
}
_COMPUTED: Final[dict[type[ast.operator], tuple[str, str]]] = {ast.Add: ("+", "-"), ast.Sub: ("-", "+")}
_LEFT_ALONE: Final = (ast.Assert, ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom)


def mutations_of(text: str) -> Iterator[Mutation]:
    """Yield all mutations of a text."""
    yield from _Walk(text).walk(ast.parse(text))


class _Walk:
    def __init__(self, text: str) -> None:
        self._text = text
        #: Where each line begins, in bytes, in which a tree counts; house style has hardly a sign of two.
        self._lines = [0, *accumulate(len(line.encode()) for line in text.splitlines(keepends=True))]
        self._bytes = text.encode()

    def walk(self, node: ast.AST) -> Iterator[Mutation]:
        if isinstance(node, _LEFT_ALONE) or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)):
            return
        yield from self._here(node)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "bases", "type_params"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from self.walk(child)

    def _here(self, node: ast.AST) -> Iterator[Mutation]:
        match node:
            case ast.Compare():
                places = [node.left, *node.comparators]
                for left, operator, right in zip(places, node.ops, places[1:], strict=False):
                    yield from self._between(left, right, *_COMPARED[type(operator)])
            case ast.BoolOp():
                words = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
                for left, right in zip(node.values, node.values[1:], strict=False):
                    yield from self._between(left, right, *words, "connective")
            case ast.BinOp() if type(node.op) in _COMPUTED:
                yield from self._between(node.left, node.right, *_COMPUTED[type(node.op)], "arithmetic")
            case ast.Constant(value=bool(value)):
                yield self._whole(node, str(not value), "word")
            case ast.Constant(value=int(value)):
                yield self._whole(node, str(value + 1), "number")
            case ast.If() | ast.While() | ast.IfExp():
                if not (
                    isinstance(node.test, ast.Constant)
                    or any(isinstance(one, ast.NamedExpr) for one in ast.walk(node.test))
                ):
                    yield self._whole(node.test, f"(not ({self._of(node.test)}))", "condition")
            case ast.Continue():
                yield self._whole(node, "break", "word")
            case ast.Break():
                yield self._whole(node, "continue", "word")
            case ast.AugAssign() | ast.Expr(value=ast.Call()) | ast.Delete():
                yield self._whole(node, "pass", "statement")
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                yield self._whole(node, "pass", "statement")

    def _between(self, left: ast.AST, right: ast.AST, right_word: str, wrong: str, kind: str) -> Iterator[Mutation]:
        """Yield the change of the operator that stands between two parts."""
        first, last = self._place(left)[1], self._place(right)[0]
        between = self._text[first:last]
        if (at := between.find(right_word)) >= 0:
            yield Mutation(first + at, first + at + len(right_word), wrong, kind)

    def _whole(self, node: ast.AST, wrong: str, kind: str) -> Mutation:
        return Mutation(*self._place(node), wrong, kind)

    def _of(self, node: ast.AST) -> str:
        first, last = self._place(node)
        return self._text[first:last]

    def _place(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        first = self._lines[node.lineno - 1] + node.col_offset
        last = self._lines[node.end_lineno - 1] + node.end_col_offset
        return len(self._bytes[:first].decode()), len(self._bytes[:last].decode())
