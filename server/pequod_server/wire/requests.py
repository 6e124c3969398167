"""Reading the one request of a call: when there is a place for it, and held once.

    call -> RequestReader waits for a place -> bytes -> message -> observer, limits, guard, service -> reply -> written

gRPC by itself reads at once, however many calls begin, and holds bytes, message and reply until the call has ended. Its
handlers of streams of requests read when they are asked to; on the wire there is no difference. Until a request is
read, flow control keeps all but the beginning of it with the client. A reply that is not small counts against the
memory for messages until its client has taken it; calls that yield their replies count those by themselves. A function
that hands a reply on lets go of it before it asks for the next one, which may wait for memory.
"""

from __future__ import annotations

import inspect
from contextlib import ExitStack, aclosing
from typing import Any

import grpc
from grpc import aio

from pequod.errors import BadRequestError, LimitExceededError
from pequod_server.memory.admission import COPIES, SMALL_BYTES, Admission
from pequod_server.wire.handlers import (
    COUNTED_PATHS,
    Context,
    Continuation,
    Handler,
    Wrapped,
    method_of,
    when_ended,
    written,
)


class RequestReader(aio.ServerInterceptor):
    """Reads the requests of our service's calls that have one.

    Put it before all other interceptors: the others see handlers of one request.
    """

    def __init__(self, admission: Admission) -> None:
        self._reading = Wrapped(lambda _method, handler: _read_first(handler, admission))
        self._writing = Wrapped(lambda _method, handler: _written(handler))

    async def intercept_service(self, continuation: Continuation, details: grpc.HandlerCallDetails) -> Handler | None:
        """Take over reading and writing for the method that a call goes to."""
        handler = await continuation(details)
        if handler is None or not details.method.startswith(COUNTED_PATHS):
            return handler
        if handler.request_streaming:
            return self._writing.around(details.method, handler)
        return self._reading.around(details.method, handler)


def _written(handler: Handler) -> Handler:
    """Return a handler that writes the replies which one of a stream of requests yields, if it yields them."""
    behaviour, make = method_of(handler)
    if not inspect.isasyncgenfunction(behaviour):
        return handler

    async def generate(requests: object, context: Context) -> None:
        async with aclosing(behaviour(requests, context)) as replies:
            async for reply in replies:
                await written(context, reply)
                del reply

    return make(generate, handler.request_deserializer, handler.response_serializer)


def _read_first(handler: Handler, admission: Admission) -> Handler:
    behaviour, _ = method_of(handler)
    deserialize, serialize = handler.request_deserializer, handler.response_serializer
    assert deserialize is not None, "requests are messages"
    assert serialize is not None, "replies are messages"

    async def read(context: Context) -> Any:
        try:
            data = await admission.read(context.peer(), context.read)
        except LimitExceededError as error:
            return error
        return BadRequestError("the call has no request") if data is aio.EOF else deserialize(data)

    async def reply_to(_requests: object, context: Context) -> bytes:
        reply = await behaviour(await read(context), context)
        # None where the call has been ended with a status: gRPC then sends nothing else.
        if reply is None:
            return b""
        # A client may take its time, and gRPC keeps the bytes alone. It sends them together with the status: to write
        # them here would take client and server a sixth more CPU.
        data = serialize(reply)
        if len(data) > SMALL_BYTES:
            taken = ExitStack()
            taken.enter_context(admission.taken(COPIES * len(data)))
            when_ended(lambda _: taken.close())
        return data

    async def generate(_requests: object, context: Context) -> None:
        async with aclosing(behaviour(await read(context), context)) as replies:
            async for reply in replies:
                await written(context, serialize(reply))
                del reply

    if inspect.isasyncgenfunction(behaviour):
        return grpc.stream_stream_rpc_method_handler(generate)
    return grpc.stream_unary_rpc_method_handler(reply_to)
