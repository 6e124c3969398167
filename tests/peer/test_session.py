"""What a compute says to a home: no message of it has more ranges than homes take."""

import time
from typing import Any, cast

from pequod_proto.contract import RANGES_MAX
from pequod_server.backing import KeyRange
from pequod_server.homes.compute.session import PeerSession


async def test_many_released_ranges_are_told_in_several_messages_each_of_which_counts() -> None:
    session = PeerSession(cast("Any", None), "127.0.0.1:1", 1, time.monotonic, 1.0)
    ranges = [KeyRange(b"%08d" % number, None) for number in range(RANGES_MAX + 1)]
    requests: Any = session._requests(None, [])
    assert (await anext(requests)).HasField("hello")
    session.release(ranges)
    # A load that begins now is behind all of these messages.
    count = session.released_count
    told = [await anext(requests) for _ in range(count)]
    assert [first for request in told for first in request.released_firsts] == [one.first for one in ranges]
    assert max(len(request.released_firsts) for request in told) <= RANGES_MAX // 2
    assert session.released_count == count
    await requests.aclose()
