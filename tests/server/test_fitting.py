"""What fits into a message, and the memory that chunks of a reply take."""

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st
from pequod_server.config import ServerConfig
from pequod_server.memory.admission import COPIES, Admission
from pequod_server.wire.fitting import ROW_BYTES, fitting, pieces, row_sizes


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(0, 60))
def test_pieces_hold_all_entries_in_their_order_and_each_as_many_as_fit(sizes: list[int], bytes_max: int) -> None:
    found = list(pieces(sizes, bytes_max))
    stops = list(accumulate(count for count, _ in found))
    assert (stops[-1] if stops else 0) == len(sizes)
    for (count, taken), stop in zip(found, stops, strict=True):
        assert taken == sum(sizes[stop - count : stop])
        assert taken <= bytes_max or count == 1
        assert stop == len(sizes) or taken + sizes[stop] > bytes_max, "the next entry would have fitted, too"
    assert fitting(sizes, bytes_max) == (found[0] if found else (0, 0))


def test_keys_without_values_count_alone() -> None:
    assert list(row_sizes([b"a", b"bb"], [])) == [1 + ROW_BYTES, 2 + ROW_BYTES]
    assert list(row_sizes([b"a"], [b"1234"])) == [5 + ROW_BYTES]


async def test_a_chunk_whose_first_row_is_larger_than_its_room_is_made_again_with_room_for_it() -> None:
    admission = Admission(ServerConfig())
    chunks = admission.chunks(100)
    free = admission.free_bytes
    async with chunks.room() as room_bytes:
        assert room_bytes == 100
        assert not chunks.has_room(1000)
    async with chunks.room() as room_bytes:
        assert room_bytes == 1000
        assert admission.free_bytes == free - COPIES * 1000
        assert chunks.has_room(1000)
    async with chunks.room() as room_bytes:
        assert room_bytes == 100, "the next chunk begins anew"
    assert admission.free_bytes == free
