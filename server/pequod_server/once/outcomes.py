"""Outcomes of writes that have request ids, as bytes that are kept in memory, on disk and in databases.

    check of the write, 4 bytes | status, 1 byte | sum, or the present value of a key
    check of the write, 4 bytes | TransactionReply without its header

In memory and on disk several stand one behind the other, each with a head: the number of its command, 4 bytes, and its
size, 4 bytes. A request id is the id of a batch, 12 bytes, and such a number; one that was made for a single write is
taken apart in the same way. The native core makes the same bytes (pequod/native/outcomes.cpp).

>>> from pequod.commands.kinds import ADD
>>> add = once_of(bytes(16), ADD, b"likes|1", b"1")
>>> add.outcome(add.kept(b"7"))
b'7'
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from struct import Struct
from typing import Final, Generic, NamedTuple, TypeVar
from zlib import crc32

from pequod_proto import pequod_pb2 as pb

from pequod.answers.transacted import Transacted
from pequod.commands.kinds import ABSENT, GIVES, OK, UNMET, Gives
from pequod.errors import BadRequestError
from pequod.language.conditions import MET, Met, Unmet
from pequod.language.transactions import Transaction
from pequod.transaction_messages import transacted_of, transaction_reply, transaction_request

#: The bytes of a request id, and those of it that are the id of a batch.
ID_BYTES: Final = 16
BATCH_ID_BYTES: Final = 12
#: Before each of several outcomes: the number of its command, and its size.
HEAD: Final = Struct(">II")
#: The head of a write that is checked: its kind and number, and the sizes of its first two arguments, which say where
#: one ends and the next begins.
_CHECKED: Final = Struct(">BQII")
#: The status of a condition that held; OK goes with a sum.
_MET: Final = 255
_CHECK_BYTES: Final = 4

#: The outcome of a command with an id: a value or None, or whether a condition held.
Decided = bytes | Met | Unmet | None
T = TypeVar("T")


class Once(NamedTuple, Generic[T]):
    """A write that is done once, and how its outcome is kept."""

    request_id: bytes
    #: Tells the write from others that are sent with the same id by mistake.
    check: bytes
    to_bytes: Callable[[T], bytes]
    of_bytes: Callable[[bytes], T]

    def kept(self, outcome: T) -> bytes:
        """Return an outcome as it is kept."""
        return self.check + self.to_bytes(outcome)

    def outcome(self, kept: bytes) -> T:
        """Return the outcome of the first time.

        Raises:
            BadRequestError: It is that of another write.
        """
        if kept[:_CHECK_BYTES] != self.check:
            raise BadRequestError("this request id was sent with another write: make a new id for each write")
        return self.of_bytes(kept[_CHECK_BYTES:])


def refuse_id(request_id: bytes) -> None:
    """Pass if a request id has the length of one, or there is none.

    Raises:
        BadRequestError: It has another length.
    """
    if request_id and len(request_id) != ID_BYTES:
        raise BadRequestError(f"a request id has {ID_BYTES} bytes, and this one has {len(request_id)}")


def id_at(batch_id: bytes, position: int) -> bytes:
    """Return the request id of a command of a batch."""
    return batch_id + position.to_bytes(ID_BYTES - BATCH_ID_BYTES)


def with_head(request_id: bytes, outcome: bytes) -> bytes:
    """Return an outcome as it stands among others."""
    return b"".join((request_id[BATCH_ID_BYTES:], len(outcome).to_bytes(4), outcome))


def in_order(outcomes: bytes, start: int = 0) -> Iterator[tuple[bytes, bytes]]:
    """Yield the outcomes that stand one behind the other from a place on, each behind the end of its request id."""
    while start < len(outcomes):
        number, size = HEAD.unpack_from(outcomes, start)
        start += HEAD.size
        yield number.to_bytes(ID_BYTES - BATCH_ID_BYTES), outcomes[start : start + size]
        start += size


def once_of(
    request_id: bytes, kind: int, key: bytes, second: bytes, third: bytes = b"", number: int = 0
) -> Once[Decided]:
    """Return the write of a command, whose arguments and number are those of batches."""
    head = _CHECKED.pack(kind, number, len(key), len(second))
    check = crc32(b"".join((head, key, second, third))).to_bytes(_CHECK_BYTES)
    return Once(request_id, check, _bytes_of, _decided if GIVES[kind] is Gives.MET else _value)


def once_of_transaction(transaction: Transaction) -> Once[Transacted]:
    """Return the write of a transaction."""
    request = transaction_request(transaction._replace(request_id=b""))
    check = crc32(request.SerializeToString(deterministic=True)).to_bytes(_CHECK_BYTES)
    reply = partial(transaction_reply, transaction)
    return Once(
        transaction.request_id,
        check,
        lambda done: reply(done).SerializeToString(),
        lambda kept: transacted_of(transaction, pb.TransactionReply.FromString(kept)),
    )


def _bytes_of(outcome: Decided) -> bytes:
    match outcome:
        case bytes():
            return bytes((OK,)) + outcome
        case None | Unmet(value=None):
            return bytes((ABSENT,))
        case Unmet(value=bytes() as value):
            return bytes((UNMET,)) + value
        case _:
            return bytes((_MET,))


def _value(kept: bytes) -> Decided:
    return kept[1:] if kept[0] == OK else None


def _decided(kept: bytes) -> Decided:
    status, value = kept[0], kept[1:]
    return MET if status == _MET else Unmet(value if status == UNMET else None)
