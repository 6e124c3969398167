"""What rows of a lake say: the native hash is that of NumPy, and buffers that do not fit each other are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")
contents = pytest.importorskip("pequod_lake.contents")
from tests.native.core import hot  # noqa: E402 - after what may skip

_NAME = 0xFEDCBA9876543210
_TEXTS = st.lists(st.none() | st.binary(max_size=40), min_size=1, max_size=20)


def _sums(count: int) -> Any:
    return np.arange(count, dtype=np.uint64)


def _nulls(values: list[Any]) -> Any:
    return np.array([value is None for value in values], np.uint8) if None in values else None


def _numpy(sums: Any, values: Any, nulls: Any) -> Any:
    hashes = contents._mixed(values + np.uint64(_NAME))
    return sums + (hashes if nulls is None else np.where(nulls != 0, np.uint64(0), hashes))


@given(_TEXTS, st.integers(0, 3))
def test_texts_have_the_hashes_that_numpy_gives_them(texts: list[bytes | None], skipped: int) -> None:
    some = texts[skipped:] or texts
    array = pa.array(texts, pa.binary())[len(texts) - len(some) :]
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(some) + 1]
    sums = _sums(len(some))
    hot.add_texts(sums, ends, data, _NAME, _nulls(some))
    wanted = _numpy(_sums(len(some)), contents._texts(ends.astype(np.int64), data), _nulls(some))
    assert sums.tolist() == wanted.tolist()


@given(st.lists(st.none() | st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=20))
def test_numbers_have_the_hashes_that_numpy_gives_them(numbers: list[int | None]) -> None:
    values = np.array([one or 0 for one in numbers], np.int64).view(np.uint64)
    sums = _sums(len(numbers))
    hot.add_numbers(sums, values, _NAME, _nulls(numbers))
    assert sums.tolist() == _numpy(_sums(len(numbers)), values, _nulls(numbers)).tolist()
    mixed = (contents._mixed(sums), contents._mixed(sums ^ contents._PLACE))
    assert hot.content_sums(sums) == tuple(int(one.sum(dtype=np.uint64)) for one in mixed)


@pytest.mark.parametrize(
    ("ends", "data", "nulls"),
    [
        ([0, 1], b"ab", None),
        ([0, 1, 3], b"ab", None),
        ([0, 2, 1], b"ab", None),
        ([-1, 1, 2], b"ab", None),
        ([0, 1, 2], None, None),
        ([0, 1, 2], b"ab", b"\0"),
    ],
)
def test_texts_that_are_not_in_their_data_are_refused(ends: list[int], data: bytes | None, nulls: bytes | None) -> None:
    with pytest.raises(ValueError, match="different numbers of rows"):
        hot.add_texts(_sums(2), np.array(ends, np.int32), data, _NAME, nulls)


@pytest.mark.parametrize(("count", "nulls"), [(1, None), (3, None), (2, b"\0\0\0")])
def test_numbers_of_another_count_are_refused(count: int, nulls: bytes | None) -> None:
    with pytest.raises(ValueError, match="different numbers of rows"):
        hot.add_numbers(_sums(2), _sums(count), _NAME, nulls)
