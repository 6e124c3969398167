"""The calls that write: to the engine, or through it to the databases that own the keys."""

from __future__ import annotations

from pequod_proto import pequod_pb2 as pb

from pequod.commands.kinds import ADD, EXPIRE, PUT, PUT_IF, PUT_TTL, REMOVE, REMOVE_IF
from pequod.errors import BadRequestError, InvalidTtlError
from pequod.language.conditions import Unmet
from pequod.language.deadlines import KEEP
from pequod.transaction_messages import transaction_of, transaction_reply
from pequod_server.calls.served import ServedEngine
from pequod_server.wire.bounds import range_of
from pequod_server.wire.handlers import Context


class WriteCalls:
    """Answers Put, Remove, WriteIf, Transaction, Add, Expire, MultiPut and RemoveRange."""

    def __init__(self, served: ServedEngine) -> None:
        self._served = served
        self._executor = served.executor

    async def put(self, request: pb.PutRequest, _context: Context) -> pb.PutReply:
        """Write one base key, for ever or for some time."""
        ttl_ms = _ttl_of(request)
        _, token = await self._executor.answer(PUT_TTL if ttl_ms else PUT, request.key, request.value, ttl_ms)
        return pb.PutReply(header=self._served.header(written=token))

    async def remove(self, request: pb.RemoveRequest, _context: Context) -> pb.RemoveReply:
        """Remove one base key."""
        removed, token = await self._executor.answer(REMOVE, request.key)
        return pb.RemoveReply(header=self._served.header(written=token), removed=removed)

    async def write_if(self, request: pb.WriteIfRequest, _context: Context) -> pb.WriteIfReply:
        """Write or remove one base key under a condition."""
        key, number, expected, once = request.key, request.condition, request.expected, request.request_id
        if request.HasField("value"):
            ttl_ms = _ttl_of(request)
            call = self._executor.answer(
                PUT_IF, key, request.value, number, third=expected, ttl_ms=ttl_ms, request_id=once
            )
        else:
            call = self._executor.answer(REMOVE_IF, key, expected, number, request_id=once)
        outcome, token = await call
        present = outcome.value if isinstance(outcome, Unmet) else None
        return pb.WriteIfReply(header=self._served.header(written=token), met=bool(outcome), present=present)

    async def transaction(self, request: pb.TransactionRequest, _context: Context) -> pb.TransactionReply:
        """Compare base keys, and run one of two lists of commands, all or none."""
        demand = self._served.demand(request)
        transaction = transaction_of(request)
        done, token = await self._executor.transact(transaction, demand)
        reply = transaction_reply(transaction, done)
        reply.header.CopyFrom(self._served.header(written=token))
        return reply

    async def add(self, request: pb.AddRequest, _context: Context) -> pb.AddReply:
        """Add a number to one base key."""
        total, token = await self._executor.answer(ADD, request.key, request.delta, request_id=request.request_id)
        return pb.AddReply(header=self._served.header(written=token), value=total)

    async def expire(self, request: pb.ExpireRequest, _context: Context) -> pb.ExpireReply:
        """Set the deadline of one base key, or take it away."""
        is_there, token = await self._executor.answer(EXPIRE, request.key, number=request.ttl_ms)
        return pb.ExpireReply(header=self._served.header(written=token), was_there=is_there)

    async def multi_put(self, request: pb.MultiPutRequest, _context: Context) -> pb.MultiPutReply:
        """Write many base keys, all or none, for ever or for some time."""
        keys, values = request.keys[:], request.values[:]
        if len(keys) != len(values):
            raise BadRequestError(f"each key needs one value: there are {len(keys)} keys and {len(values)} values")
        self._served.refuse_many(len(keys))
        token = await self._executor.put_all(keys, values, _ttl_of(request))
        return pb.MultiPutReply(header=self._served.header(written=token))

    async def remove_range(self, request: pb.RemoveRangeRequest, _context: Context) -> pb.RemoveRangeReply:
        """Remove the base keys of a range; other calls have their turn between two parts of it."""
        if not request.HasField("first") and not request.prefix:
            raise BadRequestError("name the range by first or prefix; an empty first is the very first key")
        removed, token = await self._executor.remove_range(*range_of(request))
        return pb.RemoveRangeReply(header=self._served.header(written=token), removed=removed)


def _ttl_of(request: pb.PutRequest | pb.WriteIfRequest | pb.MultiPutRequest) -> int:
    """Return the time to live that a write gives its key, as batches have it.

    Raises:
        InvalidTtlError: The write keeps the deadline that is there, and sets one.
    """
    if not request.keep_ttl:
        return request.ttl_ms
    if request.ttl_ms:
        raise InvalidTtlError(
            f"{request.ttl_ms} ms", "a write sets a deadline or keeps the one that is there, not both"
        )
    return KEEP
