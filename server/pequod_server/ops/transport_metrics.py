"""What Prometheus reads of the transport that carries a server's calls."""

from __future__ import annotations

from collections.abc import Iterator

from grpc import aio
from prometheus_client.core import GaugeMetricFamily, Metric

from pequod_server.ops.scraped import ScrapedCollector
from pequod_server.transport.server import WireServer


class TransportCollector(ScrapedCollector):
    """Tells which transport it is; of the native one, how many connections it has, and what they hold."""

    def __init__(self, server: aio.Server) -> None:
        self._server = server

    def collect(self) -> Iterator[Metric]:
        """Yield the figures."""
        server = self._server
        name = "native" if isinstance(server, WireServer) else "grpcio"
        kind = GaugeMetricFamily("pequod_transport_info", "What carries calls.", labels=["transport"])
        kind.add_metric([name], 1)
        yield kind
        # gRPC's own transport does not tell them.
        count = len(server.connections) if isinstance(server, WireServer) else None
        held_bytes = server.budget.held_bytes if isinstance(server, WireServer) else None
        yield GaugeMetricFamily("pequod_transport_connections", "Present connections.", count)
        text = "Bytes of requests that wait, of replies that clients have not let in, and of headers."
        yield GaugeMetricFamily("pequod_transport_held_bytes", text, held_bytes)
