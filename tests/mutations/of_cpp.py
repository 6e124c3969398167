"""The mutations of a text in C++, as clang-format lays it out.

Binary operators stand between spaces there, and a line ends a statement. Comments, texts, directives and what is said
at compile time are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tests.mutations.mutation import Mutation

_LEFT_ALONE: Final = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|^[ \t]*#[^\n]*|static_assert\([^;]*;"
    r"|\btemplate <[^\n]*|\bconstexpr\b[^\n;]*",
    re.MULTILINE | re.DOTALL,
)
#: What stands for an operator between two spaces.
_OPERATORS: Final = {
    "<": ("<=", "bound"),
    "<=": ("<", "bound"),
    ">": (">=", "bound"),
    ">=": (">", "bound"),
    "==": ("!=", "comparison"),
    "!=": ("==", "comparison"),
    "&&": ("||", "connective"),
    "||": ("&&", "connective"),
    "+": ("-", "arithmetic"),
    "-": ("+", "arithmetic"),
    "+=": ("-=", "arithmetic"),
    "-=": ("+=", "arithmetic"),
}
_OPERATOR: Final = re.compile(r"(?<= )(<=|>=|==|!=|&&|\|\||\+=|-=|<|>|\+|-)(?=[ \n])")
_NUMBER: Final = re.compile(r"(?<![\w.])\d+(?![\w.])")
_WORD: Final = re.compile(r"\breturn (true|false);|\b(continue|break);")
_WORDS: Final = {"true": "false", "false": "true", "continue": "break", "break": "continue"}
_CONDITION: Final = re.compile(r"\b(if|while) \(")
#: What is called, or gets a value that it had before.
_NAME: Final = r"(?!return|delete|else|case)(?:[\w.\[\]:]|->)+"
#: A line that is a call, an assignment to what there is, or a step; and one that leaves if a condition holds.
_STATEMENT: Final = re.compile(rf"(?<=[;{{}}]\n)[ ]+(?:{_NAME}(?:\([^\n;]*\)| [-+|&]?= [^\n;]+)|(?:\+\+|--)[^\n;]+);\n")
_GUARD: Final = re.compile(r"(?<=[;{}]\n)[ ]+if \([^\n;]*\) (?:return|continue|break)[^\n;]*;\n(?![ ]*else)")


def mutations_of(text: str) -> Iterator[Mutation]:
    """Yield all mutations of a text."""
    seen = _blanked(text)
    for found in _OPERATOR.finditer(seen):
        wrong, kind = _OPERATORS[found[1]]
        yield Mutation(found.start(1), found.end(1), wrong, kind)
    for found in _NUMBER.finditer(seen):
        yield Mutation(found.start(), found.end(), str(int(found[0]) + 1), "number")
    for found in _WORD.finditer(seen):
        group = 1 if found[1] else 2
        yield Mutation(found.start(group), found.end(group), _WORDS[found[group]], "word")
    for found in _CONDITION.finditer(seen):
        last = _closing(seen, found.end() - 1)
        if ";" not in seen[found.end() : last]:
            yield Mutation(found.end(), last, f"!({text[found.end() : last]})", "condition")
    for pattern, kind in ((_STATEMENT, "statement"), (_GUARD, "guard")):
        for found in pattern.finditer(seen):
            yield Mutation(found.start(), found.end(), "", kind)


def _blanked(text: str) -> str:
    """Return the text with another sign in the place of each that is left alone."""
    return _LEFT_ALONE.sub(lambda found: re.sub(r"[^\n]", "_", found[0]), text)


def _closing(text: str, opening: int) -> int:
    """Return where the bracket is closed that is opened there."""
    depth = 0
    for found in re.compile(r"[()]").finditer(text, opening):
        depth += 1 if found[0] == "(" else -1
        if not depth:
            return found.start()
    raise AssertionError("brackets are paired")
