"""The interface of the core is written once, in `_hot.pyi`: what is written there is there, and nothing else is."""

import ast
from pathlib import Path
from types import GetSetDescriptorType, MemberDescriptorType

import pytest

import pequod.native
from tests.native.core import hot

STUB = ast.parse((Path(pequod.native.__file__).parent / "_hot.pyi").read_text())
CLASSES = [node for node in STUB.body if isinstance(node, ast.ClassDef)]
#: What each class has that can be made, or counted, or measured, for which it need not be named.
COMMON = {"__new__", "__doc__", "__module__", "__sizeof__"}


def names_in(body: list[ast.stmt]) -> set[str]:
    names = set()
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case _:
                continue
    return names


def test_the_stub_names_what_the_module_has() -> None:
    assert names_in(STUB.body) == {name for name in vars(hot) if not name.startswith("__")}


@pytest.mark.parametrize("written", CLASSES, ids=lambda node: node.name)
def test_the_stub_names_what_a_class_has(written: ast.ClassDef) -> None:
    there = set(vars(getattr(hot, written.name))) - COMMON
    assert names_in(written.body) - {"__init__"} == there


@pytest.mark.parametrize("written", CLASSES, ids=lambda node: node.name)
def test_what_the_stub_calls_attributes_are_some(written: ast.ClassDef) -> None:
    kind = getattr(hot, written.name)
    for node in written.body:
        if isinstance(node, ast.AnnAssign):
            assert isinstance(node.target, ast.Name)
            assert isinstance(vars(kind)[node.target.id], MemberDescriptorType | GetSetDescriptorType)
