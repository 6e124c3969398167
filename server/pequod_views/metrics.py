"""What a manager tells Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pequod.errors import SettingError
from pequod_views.manager import Manager


class ManagerCollector(Collector):
    """The numbers of one manager at the moment when they are asked for."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        manager, counts = self._manager, self._manager.counts
        parts = manager.parts
        for name, text, gauge in (
            ("parts", "Parts that this manager holds.", len(parts)),
            ("parts_waiting", "Of these, parts that do not go on.", sum(bool(one.trouble) for one in parts)),
            ("drifted_rows", "Rows that `verify` found other than the server's and left.", manager.drifted_count),
            ("managers", "Managers of the same views that live.", len(manager.managers)),
            ("server_known", "1 if the server is the one that the views show.", int(not manager.server_trouble)),
            ("target_up", "1 if the target database answered last.", int(not manager.target_trouble)),
        ):
            yield GaugeMetricFamily(f"pequod_views_{name}", text, value=gauge)
        for name, text, count in (
            ("transactions", "Transactions that wrote rows or positions.", counts.transactions),
            ("changes", "Changes taken in.", counts.changes),
            ("replacements", "Parts that were replaced by what differs.", counts.replacements),
            ("target_failures", "Transactions that failed because the target was away.", counts.target_failures),
            ("server_failures", "Watches that failed because the server was away.", counts.server_failures),
            ("parts_lost", "Parts that another manager took.", counts.parts_lost),
        ):
            yield CounterMetricFamily(f"pequod_views_{name}", text, value=count)


def serve_metrics(manager: Manager, address: str) -> None:
    """Answer /metrics on HOST:PORT, in a thread, for as long as the process lives.

    Raises:
        SettingError: The address cannot be listened on.
    """
    host, _, port = address.rpartition(":")
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ManagerCollector(manager))
    try:
        start_http_server(int(port), host or "127.0.0.1", registry)
    except (ValueError, OSError, OverflowError) as error:
        raise SettingError("--metrics", f"{address!r} is not HOST:PORT of a free port: {error}") from error
