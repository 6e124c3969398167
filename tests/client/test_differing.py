"""Random calls have the same replies, statuses and details by both transports of clients; `make differ` makes more."""

import pytest

from pequod.native.http2 import why_absent
from tests.client.differing import compare

pytestmark = pytest.mark.skipif(why_absent() is not None, reason="there is no native transport")


@pytest.mark.parametrize("is_backed", [False, True])
async def test_random_calls_end_alike_by_both_transports(*, is_backed: bool) -> None:
    seen = await compare(400, seed=5, is_backed=is_backed)
    codes = {what.split()[1] for what in seen}
    assert {"OK", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED", "DEADLINE_EXCEEDED"} <= codes
