"""The table of kinds: the .proto and the native core say the same, and a batch of any kinds is checked by it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pequod.commands.columns import bounds_of, has_reads, has_writes, needs, starts
from pequod.commands.kinds import ARGUMENT_COUNTS, COUNT, GET, KINDS, NUMBER_COUNTS, PUT, RANGES, REMOVE, WRITES
from pequod.native import core

ROOT = Path(__file__).parents[2]
ANY_KINDS = st.lists(st.sampled_from([kind.code for kind in KINDS])).map(bytes)


def test_the_contract_lists_the_kinds_with_their_arguments_and_numbers() -> None:
    contract = (ROOT / "proto/pequod/v1/pequod.proto").read_text()
    row = r"^//   (\d) ([A-Z_]+) +arguments: ([a-z, ]+?)(?: {2,}numbers: ([a-z, ]+?))?(?: {2,}.*)?$"
    told = [
        (int(code), name, tuple(arguments.split(", ")), tuple(numbers.split(", ")) if numbers else ())
        for code, name, arguments, numbers in re.findall(row, contract, re.MULTILINE)
    ]
    assert told == [(kind.code, kind.name, kind.arguments, kind.numbers) for kind in KINDS]


@pytest.mark.skipif(core is None, reason="the native core is not built, or PEQUOD_PURE is set")
def test_the_native_core_has_the_same_table() -> None:
    assert core is not None
    assert (
        tuple(
            (kind.code, len(kind.arguments), len(kind.numbers), kind.is_of_range, kind.is_write, kind.gives.value)
            for kind in KINDS
        )
        == core.KINDS
    )


def test_codes_are_one_after_the_other() -> None:
    assert [kind.code for kind in KINDS] == list(range(1, len(KINDS) + 1))


@given(ANY_KINDS)
def test_needs_are_those_of_the_single_kinds(kinds: bytes) -> None:
    found = needs(kinds)
    assert found == (starts(kinds, ARGUMENT_COUNTS)[-1], starts(kinds, NUMBER_COUNTS)[-1], None)
    assert has_writes(kinds) == any(kind in WRITES for kind in kinds)
    assert has_reads(kinds) == any(kind not in WRITES for kind in kinds)


@given(ANY_KINDS, st.integers(0, 255).filter(lambda code: not 1 <= code <= len(KINDS)), ANY_KINDS)
def test_what_is_no_kind_is_named(before: bytes, code: int, behind: bytes) -> None:
    assert needs(before + bytes([code]) + behind).unknown == code


def test_a_command_looks_at_its_key_or_its_range() -> None:
    for code in (GET, PUT, REMOVE):
        assert code not in RANGES
        assert bounds_of(code, b"a", b"z") == (b"a", b"a\0")
    assert bounds_of(COUNT, b"a", b"z") == (b"a", b"z")
    assert bounds_of(COUNT, b"a", b"") == (b"a", None)
