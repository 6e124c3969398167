"""Random calls have the same replies, statuses and details on both transports; `make differ` makes more of them."""

import pytest

from pequod.native.http2 import why_absent
from tests.server.differing import compare

pytestmark = pytest.mark.skipif(why_absent() is not None, reason="there is no native transport")


async def test_random_calls_end_alike_on_both_transports() -> None:
    seen = await compare(400, seed=3)
    codes = {what.split()[1] for what in seen}
    assert {"OK", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED", "DEADLINE_EXCEEDED"} <= codes
