"""The table of kinds: the .proto and the native core say the same, and a batch of any kinds is checked by it."""

from __future__ import annotations

import ast
import re
from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pequod_proto.pequod_pb2 import ExecuteRequest

from pequod.commands.columns import bounds_of, commands, has_reads, has_writes, needs, range_arguments, reads, starts
from pequod.commands.kinds import (
    ARGUMENT_COUNTS,
    ARGUMENTS_MAX,
    COUNT,
    GET,
    KIND_OF,
    KINDS,
    NAMES,
    NUMBER_COUNTS,
    NUMBERS_MAX,
    PUT,
    RANGES,
    REMOVE,
    WRITES,
    CommandKind,
    Gives,
)
from pequod.engine import Engine, Rows
from pequod.engine.answer import VERBS, Answer, answer
from pequod.language.conditions import MET, Unmet
from pequod.native import core, parse_batch

ROOT = Path(__file__).parents[2]
ANY_KINDS = st.lists(st.sampled_from([kind.code for kind in KINDS])).map(bytes)


def test_the_contract_lists_the_kinds_with_their_arguments_and_numbers() -> None:
    contract = (ROOT / "proto/pequod/v1/pequod.proto").read_text()
    row = r"^// +(\d+) ([A-Z_]+) +arguments: ([a-z, ]+?)(?: {2,}numbers: ([a-z_, ]+?))?(?: {2,}.*)?$"
    told = [
        (int(code), name, tuple(arguments.split(", ")), tuple(numbers.split(", ")) if numbers else ())
        for code, name, arguments, numbers in re.findall(row, contract, re.MULTILINE)
    ]
    assert told == [(kind.code, kind.name, kind.arguments, kind.numbers) for kind in KINDS]


def test_the_native_core_calls_its_kinds_by_the_same_codes() -> None:
    header = (ROOT / "pequod/native/kinds.hpp").read_text()
    (names,) = re.findall(
        r"^enum Kind : unsigned char \{\s+GET = 1,\s+(.*?),?\s+\};$", header, re.MULTILINE | re.DOTALL
    )
    assert dict(enumerate(["GET", *re.split(r",\s+", names)], 1)).items() <= NAMES.items(), "others are run by Python"
    (gives,) = re.findall(r"^enum class Gives : unsigned char \{ (.*?) \};$", header, re.MULTILINE)
    assert gives.split(", ") == [one.name for one in sorted(Gives, key=lambda one: one.value)]
    assert f"constexpr size_t ARGUMENTS_MAX = {ARGUMENTS_MAX};" in header
    assert f"constexpr size_t NUMBERS_MAX = {NUMBERS_MAX};" in header


@pytest.mark.skipif(core is None, reason="the native core is not built, or PEQUOD_PURE is set")
def test_the_native_core_takes_kinds_of_the_table_and_no_others() -> None:
    for code in range(256):
        kind = KIND_OF.get(code)
        request = ExecuteRequest(kinds=bytes([code]))
        if kind is not None:
            request.arguments.extend([b"a", b"b", b"c"][: len(kind.arguments)])
            request.numbers.extend([7] * len(kind.numbers))
        batch = parse_batch(request.SerializeToString(), 1, 1, 1)
        assert (batch is not None) is (kind is not None), code
        if batch is not None and kind is not None:
            second = b"b" if len(kind.arguments) > 1 else b""
            third = b"c" if len(kind.arguments) == 3 else b""
            ttl_ms = 7 if len(kind.numbers) > 1 else 0
            assert batch.command() == (code, b"a", second, 7 if kind.numbers else 0, third, ttl_ms)


def test_codes_of_kinds_ascend() -> None:
    codes = [kind.code for kind in KINDS]
    assert codes == sorted(KIND_OF)
    assert len(codes) == len(KINDS)


@given(ANY_KINDS)
def test_needs_are_those_of_the_single_kinds(kinds: bytes) -> None:
    found = needs(kinds)
    assert found == (starts(kinds, ARGUMENT_COUNTS)[-1], starts(kinds, NUMBER_COUNTS)[-1], None)
    assert has_writes(kinds) == any(kind in WRITES for kind in kinds)
    assert has_reads(kinds) == any(kind not in WRITES for kind in kinds)


@given(ANY_KINDS, st.integers(0, 255).filter(lambda code: code not in KIND_OF), ANY_KINDS)
def test_what_is_no_kind_is_named(before: bytes, code: int, behind: bytes) -> None:
    assert needs(before + bytes([code]) + behind).unknown == code


def test_a_command_looks_at_its_key_or_its_range() -> None:
    for code in (GET, PUT, REMOVE):
        assert code not in RANGES
        assert bounds_of(code, b"a", b"z") == (b"a", b"a\0")
    assert bounds_of(COUNT, b"a", b"z") == (b"a", b"z")
    assert bounds_of(COUNT, b"a", b"") == (b"a", None)


@given(ANY_KINDS)
def test_the_way_through_columns_is_that_of_the_table(kinds: bytes) -> None:
    arguments = [b"%d" % at for at in range(needs(kinds).argument_count)]
    begins = starts(kinds, ARGUMENT_COUNTS)
    found = list(commands(kinds, arguments))
    for position, kind, *given_arguments in found:
        own = arguments[begins[position] : begins[position + 1]]
        assert given_arguments == [*own, b""][:2]
        assert kind == kinds[position]
    assert list(reads(iter(found))) == [
        (position, bounds_of(kind, first, second)) for position, kind, first, second in found if kind not in WRITES
    ]
    for position, _, first, second in found:
        assert next(commands(kinds, arguments, position, begins[position]))[2:] == (first, second)


def test_a_range_is_the_same_range_as_arguments() -> None:
    assert range_arguments(b"a", None) == (b"a", b"")
    assert range_arguments(b"a", b"b") == (b"a", b"b")
    first, last = range_arguments(b"a", b"")
    assert first >= last > b"", "an empty end is none, so that an empty range has another"


#: What a command of each kind gives, if the key is there and if it is not.
SHOWN: dict[Gives, tuple[Answer, Answer]] = {
    Gives.VALUE: (b"1", None),
    Gives.NOTHING: (None, None),
    Gives.WAS_THERE: (True, False),
    Gives.ROWS: (Rows([b"a|1"], [b"1"]), Rows([], [])),
    Gives.COUNT: (1, 0),
    Gives.MET: (MET, Unmet(None)),
    Gives.REMAINING: (inf, None),
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_engine_answers_each_kind_with_what_the_table_says_that_it_gives(kind: CommandKind) -> None:
    arguments = {"key": b"a|1", "value": b"2", "first": b"a|", "last": b"a}", "expected": b"1", "delta": b"4"}
    first, second, third = [*(arguments[name] for name in kind.arguments), b"", b""][:3]
    number = 3 if "condition" in kind.numbers else 0
    there, absent = Engine(), Engine()
    there.put(b"a|1", b"1")
    answers = tuple(answer(engine, kind.code, first, second, number, 0.0, third) for engine in (there, absent))
    assert answers == ((b"5", b"4") if kind.name == "ADD" else SHOWN[kind.gives])
    if kind.name != "EXPIRE":
        assert (there.revision > 1 or absent.revision > 0) is kind.is_write, "writes change something"


def test_the_engine_answers_the_kinds_of_the_table_and_no_others() -> None:
    assert VERBS.keys() == KIND_OF.keys()


#: Who names a kind, and what for; all others go by the columns of the table.
NAMED = {
    "pequod/commands/kinds.py": "the table",
    "pequod/engine/answer.py": "what each kind does",
    "pequod/interface/commands.py": "callers add commands",
    "pequod/client/columns.py": "a reply of values alone is taken apart by the shortest way",
    "server/pequod_server/access/quotas.py": "quotas count writes by what they may add",
    "server/pequod_server/backing/repeated.py": "writes of the same effect have the same check",
    "server/pequod_server/calls/feed.py": "the first rows of a watch",
    "server/pequod_server/calls/reads.py": "calls of one command",
    "pequod/language/transactions.py": "what transactions take",
    "pequod/engine/transacting.py": "writes are laid over what is read",
    "server/pequod_server/calls/scanning.py": "chunks",
    "server/pequod_server/calls/warming.py": "what is hot is counted, so that all of it is there",
    "server/pequod_server/calls/writes.py": "calls of one command",
    "server/pequod_server/steps/executor.py": "MultiGet",
    "server/pequod_server/steps/native.py": "reads that are looked at ahead",
    "server/pequod_server/steps/steps.py": "reads that are looked at ahead",
}


def named_kinds(path: Path) -> set[str]:
    """Return which kinds of commands a module imports, or names by their module."""
    tree = ast.parse(path.read_text())
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "pequod.commands.kinds"
        for alias in node.names
    }
    qualified = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "kinds"
    }
    return (imported | qualified) & set(NAMES.values())


def test_few_modules_name_a_kind() -> None:
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in ("pequod", "server")
        for path in (ROOT / folder).rglob("*.py")
        if named_kinds(path)
    }
    assert found | {"pequod/commands/kinds.py"} == NAMED.keys()
