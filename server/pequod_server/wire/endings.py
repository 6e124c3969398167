"""Where calls end with a status: one wrapper around the handlers of all services.

    handler raises CallEnded or a PequodError -> frames on the way -> Endings empties them -> status -> gRPC

A handler never aborts by itself: gRPC keeps the error of an abort with the call, the error its traceback, the traceback
its frames, and the frames the request and the context, which references the call. Only the cyclic collector finds such
a cycle, and `tame_collector` lets it examine most objects only after millions of new ones. So a refusal is an exception
of our own that ends here. The frames that any exception went through are emptied, since one of them may reference the
exception itself.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from contextlib import aclosing
from traceback import clear_frames
from typing import Any

import grpc
from grpc import aio

from pequod.engine import PequodError
from pequod_server.wire.errors import status_of
from pequod_server.wire.handlers import CallEnded, Context, Continuation, Handler, Wrapped, end_with, method_of


class Endings(aio.ServerInterceptor):
    """Ends the calls whose handlers raise CallEnded; no exception keeps what a handler held.

    Put it before all interceptors whose handlers may raise; the observer before it sees the status in the context.
    """

    def __init__(self) -> None:
        self._ending = Wrapped(lambda _method, handler: _ending(handler))

    async def intercept_service(self, continuation: Continuation, details: grpc.HandlerCallDetails) -> Handler | None:
        """Wrap the method of a call."""
        handler = await continuation(details)
        return None if handler is None else self._ending.around(details.method, handler)


def _ending(handler: Handler) -> Handler:
    behaviour, make = method_of(handler)
    if inspect.isasyncgenfunction(behaviour):

        async def generate(request: object, context: Context) -> AsyncIterator[Any]:
            try:
                async with aclosing(behaviour(request, context)) as replies:
                    async for reply in replies:
                        yield reply
                        del reply
                return
            except (CallEnded, PequodError) as end:
                _forget(end)
                status = end.status if isinstance(end, CallEnded) else status_of(end)
            except BaseException as error:
                _forget(error)
                raise
            await end_with(context, status)

        ended: Any = generate
    elif inspect.iscoroutinefunction(behaviour):

        async def reply_to(request: object, context: Context) -> Any:
            try:
                return await behaviour(request, context)
            except (CallEnded, PequodError) as end:
                _forget(end)
                status = end.status if isinstance(end, CallEnded) else status_of(end)
            except BaseException as error:
                _forget(error)
                raise
            return await end_with(context, status)

        ended = reply_to
    else:
        return handler
    return make(ended, handler.request_deserializer, handler.response_serializer)


def _forget(error: BaseException) -> None:
    """Empty the frames that an exception went through, and those of the exceptions that caused it.

    Their tracebacks still have the lines, which gRPC logs.
    """
    seen: set[int] = set()
    left: BaseException | None = error
    while left is not None and id(left) not in seen:
        seen.add(id(left))
        clear_frames(left.__traceback__)
        left = left.__cause__ or left.__context__
