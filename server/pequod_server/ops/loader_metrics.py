"""What Prometheus reads of the database behind the server; docs/backing.md lists it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pequod_server.database.loader import Loader

_COUNTERS: Final = (
    ("flights", "Loads from the database."),
    ("ranges", "Ranges that were loaded."),
    ("rows", "Rows that were loaded."),
    ("changes", "Changes that the feed told."),
    ("changes_applied", "Changes that were in loaded ranges."),
    ("reloads", "Times that ranges were forgotten since changes may have been missed."),
    ("writes", "Writes that went through to the database."),
)


class LoaderCollector(Collector):
    """Tells how the feed is and what was asked of the database."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def describe(self) -> Iterator[Metric]:
        """Tell nothing before the first scrape."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Yield the figures."""
        status = self._loader.status
        yield GaugeMetricFamily("pequod_backing_up", "Whether the feed stands.", float(status.state == "ok"))
        if status.fresh_s is not None:
            text = "Seconds since the feed was last known to have told everything."
            yield GaugeMetricFamily("pequod_backing_age_seconds", text, max(0.0, self._loader.age_s()))
        statistics = self._loader.statistics()
        for name, text, figure in (
            ("position", "How far the feed has come, in the database's own unit.", statistics.position),
            ("lag", "What the database has beyond that, where it is known.", statistics.lag),
            ("loaded_ranges", "Ranges that are loaded.", statistics.loaded_ranges),
        ):
            if figure is not None:
                yield GaugeMetricFamily(f"pequod_backing_{name}", text, figure)
        text = "Times that the feed broke."
        yield CounterMetricFamily("pequod_backing_feed_failures", text, status.failure_count)
        text = "Rows of the database that have no key under their mapping."
        yield CounterMetricFamily("pequod_backing_unpackable_rows", text, status.unpackable_count)
        for field, text in _COUNTERS:
            yield CounterMetricFamily(f"pequod_backing_{field}", text, getattr(self._loader.counters, field))
