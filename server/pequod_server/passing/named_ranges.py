r"""The ranges of keys that the calls of clients read and write.

>>> ranges_of("Get", pb.GetRequest(key=b"p|bob|1"))
[(b'p|bob|1', b'p|bob|1\x00')]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from pequod_proto import pequod_pb2 as pb

from pequod.commands.columns import bounds_of, commands
from pequod.commands.kinds import WRITES
from pequod_server.wire.bounds import Bounds, last_of, range_of

#: Calls that read, and change nothing.
READS: Final = frozenset(("Get", "Ttl", "MultiGet", "Count", "Scan", "Splits", "Explain", "Watch", "WatchRanges"))
#: Reads that are answered where the group of their first key is computed.
SPREAD: Final = frozenset(("Get", "Ttl", "MultiGet", "Count", "Scan"))


def ranges_of(name: str, request: Any) -> list[Bounds] | None:
    """Return the ranges of a call; None: it is about all that the server has."""
    of = _RANGES.get(name)
    return None if of is None else of(request)


def command_ranges(kinds: bytes, arguments: Iterable[bytes]) -> Iterator[tuple[bool, Bounds]]:
    """Yield whether each command writes, and its range."""
    for _, kind, first, second in commands(kinds, list(arguments)):
        yield kind in WRITES, bounds_of(kind, first, second)


def _one(key: bytes) -> Bounds:
    return key, key + b"\0"


def _of_key(request: Any) -> list[Bounds]:
    return [_one(request.key)]


def _of_keys(request: Any) -> list[Bounds]:
    return [_one(key) for key in request.keys]


def _of_range(request: Any) -> list[Bounds]:
    return [range_of(request)]


def _of_transaction(request: pb.TransactionRequest) -> list[Bounds]:
    lists = (request.then, request.otherwise)
    commanded = (bounds for some in lists for _, bounds in command_ranges(some.kinds, some.arguments))
    return [*map(_one, request.compare_keys), *commanded]


def _of_watches(request: pb.WatchRangesRequest) -> list[Bounds]:
    return [(one.first, last_of(one)) for one in request.ranges]


def _of_subject(request: pb.ExplainRequest) -> list[Bounds]:
    """Return the range that is explained; none: a join is, which all workers have."""
    return [(request.range.first, last_of(request.range))] if request.HasField("range") else []


_RANGES: Final[dict[str, Callable[[Any], list[Bounds]]]] = {
    **dict.fromkeys(("Get", "Ttl", "Put", "Remove", "WriteIf", "Add", "Expire"), _of_key),
    **dict.fromkeys(("MultiGet", "MultiPut"), _of_keys),
    **dict.fromkeys(("Count", "Scan", "Splits", "RemoveRange"), _of_range),
    "Transaction": _of_transaction,
    "Watch": lambda request: [(request.first, last_of(request))],
    "WatchRanges": _of_watches,
    "Explain": _of_subject,
}
