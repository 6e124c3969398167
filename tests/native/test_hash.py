"""The hash of the native core's tables, and the tuples that it makes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pequod import open as open_store
from tests.native.core import hot

_PYTHONS_OWN = """
import random
import sys
from pequod.native import _hot
assert sys.hash_info.algorithm == "siphash13"
for size in range(1, 300):
    data = random.randbytes(size)
    assert _hot.hash_of(data, (0, 0)) == hash(data) % 2**64, data
"""
_OF_A_PROCESS = "from pequod.native import _hot; print(_hot.hash_of(b'p|ann|'))"


def _ran(code: str, **variables: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=os.environ | variables, check=True, capture_output=True, text=True).stdout


def test_a_hash_with_the_secret_0_is_that_of_python_whose_seed_is_0() -> None:
    _ran(_PYTHONS_OWN, PYTHONHASHSEED="0")


def test_no_two_processes_hash_alike_so_that_no_client_can_choose_keys_that_collide() -> None:
    # Also where Python's own hash is the same in each.
    assert len({_ran(_OF_A_PROCESS, PYTHONHASHSEED="0") for _ in range(3)}) == 3


def test_each_bit_of_a_key_and_of_the_secret_changes_the_hash() -> None:
    key = bytes(16)
    flipped = [(1 << bit).to_bytes(16, "little") for bit in range(128)]
    secrets = [(1 << bit, 0) for bit in range(64)] + [(0, 1 << bit) for bit in range(64)]
    hashes = [hot.hash_of(other, (0, 0)) for other in flipped] + [hot.hash_of(key, secret) for secret in secrets]
    assert len({hot.hash_of(key, (0, 0)), *hashes}) == 257


def test_rows_have_no_hash_as_they_hold_lists() -> None:
    with open_store() as store:
        store.put("p|ann", "1")
        with pytest.raises(TypeError, match="unhashable"):
            hash(store.scan("p|", "p}"))
