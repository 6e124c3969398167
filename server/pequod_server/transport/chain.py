"""From a call to its handler, through interceptors, where no server of gRPC's does it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import grpc
from grpc import aio

#: Returns the handler of a call; None: there is no such method.
Find: TypeAlias = "Callable[[Any], Awaitable[Any]]"


class CallDetails(NamedTuple):
    """A call, as interceptors see it."""

    method: str
    invocation_metadata: tuple[tuple[str, str | bytes], ...]


def chained(interceptors: Sequence[aio.ServerInterceptor], handlers: Sequence[grpc.GenericRpcHandler]) -> Find:
    """Return what finds handlers, of several that know a method the first; more handlers may be added later.

    Args:
        interceptors: The first of them is called first.
    """

    async def found_by_name(details: Any) -> Any:
        for handler in handlers:
            # A handler asks `details` for no more than the method and the metadata.
            if (found := handler.service(details)) is not None:
                return found
        return None

    find: Find = found_by_name
    for interceptor in reversed(interceptors):
        find = _intercepted(interceptor, find)
    return find


def _intercepted(interceptor: aio.ServerInterceptor, find: Find) -> Find:
    async def intercepted(details: Any) -> Any:
        return await interceptor.intercept_service(find, details)

    return intercepted
