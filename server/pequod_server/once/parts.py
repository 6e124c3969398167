"""Request ids on their way from one home to another: a range that moves takes along what its writes have given.

    page(b"")     -> 512 KiB of parts, next 7, more        all that are remembered
    page(next 7)  -> parts, next 9                         and those that have come since

No home knows which keys an id is of, so all ids of a home go along. Ids that both homes know are of the same writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol, runtime_checkable

from pequod_server.once.outcomes import BATCH_ID_BYTES, HEAD, ID_BYTES, in_order

#: Ids and outcomes of one page, but for its last part.
PAGE_BYTES: Final = 512 * 1024
#: Rows of one page of a database, and parts of one message.
PAGE_ROWS: Final = 5000


class IdPart(NamedTuple):
    """Outcomes of writes with ids of one batch."""

    #: The request id of the first of them.
    id: bytes
    #: One behind the other; see `pequod_server.once.outcomes`.
    outcomes: bytes
    #: How long ago they were.
    age_ms: int


def is_part(part_id: bytes, outcomes: bytes, _age_ms: int = 0) -> bool:
    """Return whether outcomes stand one behind the other, that of the id before all others."""
    at = count = 0
    while len(outcomes) - at >= HEAD.size:
        _, size = HEAD.unpack_from(outcomes, at)
        at += HEAD.size + size
        count += 1
    is_first = len(part_id) == ID_BYTES and outcomes[: ID_BYTES - BATCH_ID_BYTES] == part_id[BATCH_ID_BYTES:]
    return count > 0 and at == len(outcomes) and is_first


def one_by_one(parts: Iterable[IdPart], keep_s: float) -> Iterator[tuple[bytes, int, bytes]]:
    """Yield each id of parts that are not too old, with how many milliseconds ago it was, and its outcome."""
    for part in parts:
        if part.age_ms <= keep_s * 1000:
            for end, outcome in in_order(part.outcomes):
                yield part.id[:BATCH_ID_BYTES] + end, part.age_ms, outcome


class IdPage(NamedTuple):
    """Some of the ids that are remembered."""

    parts: Sequence[IdPart]
    #: Names what comes after them; opaque, and known where the page is from.
    next: bytes
    #: Whether there is more now.
    has_more: bool = False


class Remembered(Protocol):
    """The request ids of a home."""

    async def page(self, since: bytes) -> IdPage:
        """Return a page of ids.

        Args:
            since: `IdPage.next` of the page before; empty: from the first on.

        Ensures:
            The pages up to one that has no more hold all ids of writes that were done before the first of them was
            asked for. Some may come twice.

        Raises:
            BackingUnavailableError: The database does not answer.
            SchemaError: It has no table for ids.
        """
        ...

    async def take(self, parts: Sequence[IdPart]) -> None:
        """Remember ids of another home; raises as `page`."""
        ...


@runtime_checkable
class Remembering(Protocol):
    """A store that remembers request ids, in the transactions of their writes."""

    @property
    def request_ids(self) -> Remembered:
        """The ids."""
        ...
