"""Scans of a range in chunks, over the servers of a cluster.

The owner of the first key answers all of it. If it goes away, the next server continues after the last chunk, at a
state that has at least what the chunks before have shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

from pequod_proto import pequod_pb2 as pb

from pequod.client.cluster.calls import leaving
from pequod.client.cluster.node import Node
from pequod.client.cluster.routes import Routed, latest_of
from pequod.client.retry import advance, pause_s
from pequod.client.tracing import caller_trace
from pequod.errors import BackingStaleError, BackingUnavailableError, PequodError, TokenLostError, UnavailableError


async def chunks_of(
    cluster: Routed, request: pb.ScanRequest, note: Callable[[pb.Header], None]
) -> AsyncGenerator[pb.ScanReply]:
    """Yield the chunks of a scan.

    Args:
        note: Notes the state that a chunk shows.

    Raises:
        UnavailableError: No server answers, or none can continue from what the last chunk has shown.
    """
    clock = asyncio.get_running_loop().time
    first, shown, pauses = request.first, b"", 0
    deadline = clock() + cluster.timeout_s
    tried: set[Node] = set()
    has_more = True
    while has_more:
        node = next_node(cluster, first, tried)
        call = node.connection.stub().Scan(request, metadata=caller_trace())
        try:
            while has_more:
                with node.connection.failures():
                    async with asyncio.timeout_at(deadline):
                        chunk = await leaving(node, call.read())
                if not isinstance(chunk, pb.ScanReply):
                    return
                note(chunk.header)
                shown = chunk.header.token
                yield chunk
                has_more = advance(request, chunk)
                deadline, pauses = clock() + cluster.timeout_s, 0
                tried = set()
        except TokenLostError as error:
            if not shown or request.freshness.after != shown:
                raise
            reason = "its server went away in the middle of a scan, and no other has its state; scan again"
            raise UnavailableError(cluster.target, reason) from error
        except (BackingUnavailableError, BackingStaleError) as error:
            tried.add(node)
            _refuse_if_last(cluster, request, tried, error)
        except UnavailableError as error:
            if not has_more:
                return
            tried.add(node)
            if shown:
                # Fresher than what the caller has asked for, and has got.
                request.freshness.after = shown
            if next_node(cluster, first, tried) in tried:
                pauses += 1
                wait_s = pause_s(pauses)
                if pauses > cluster.retries or clock() + wait_s >= deadline:
                    raise error from None
                tried.clear()
                await asyncio.sleep(wait_s)
        finally:
            call.cancel()


def _refuse_if_last(cluster: Routed, request: pb.ScanRequest, tried: set[Node], error: PequodError) -> None:
    """Raise the error of a server that cannot load what a scan needs, if no other may have it."""
    if request.freshness.latest or next_node(cluster, request.first, tried) in tried:
        raise error from None


def next_node(cluster: Routed, key: bytes, tried: set[Node]) -> Node:
    """Return the best node for a read that is not in ``tried``, one that is if there is no other."""
    assert cluster.routes is not None, "calls wait for the map"
    nodes = cluster.routes.readers(key)
    if not nodes:
        raise UnavailableError(cluster.target, "no server of it answers reads", is_unapplied=True)
    left = [node for node in nodes if node not in tried]
    if not tried and (best := cluster.routes.reader(key)) is not None and not best.is_away:
        return best
    return next((node for node in left if not node.is_away), None) or latest_of(left or nodes)
