"""What Prometheus reads of the databases behind the server; docs/backing.md lists it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pequod_server.database.databases import Databases
from pequod_server.database.loader import Loader
from pequod_server.ops.scraped import ScrapedCollector

_COUNTERS: Final = (
    ("flights", "Loads from the database."),
    ("ranges", "Ranges that were loaded."),
    ("rows", "Rows that were loaded."),
    ("changes", "Changes that the feed told."),
    ("changes_applied", "Changes that were in loaded ranges."),
    ("reloads", "Times that ranges were forgotten since changes may have been missed."),
    ("writes", "Writes that went through to the database."),
)


class LoaderCollector(ScrapedCollector):
    """Tells how feeds are and what was asked of databases; where there are several, by their names."""

    def __init__(self, databases: Databases) -> None:
        self._databases = databases

    def collect(self) -> Iterator[Metric]:
        """Yield the figures."""
        names = ["database"] if any(loader.name for loader in self._databases.all) else []
        families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
        for loader in self._databases.all:
            for kind, name, text, figure in _figures(loader):
                family = families.setdefault(name, kind(f"pequod_backing_{name}", text, labels=names))
                family.add_metric([loader.name] if names else [], figure)
        yield from families.values()


def _figures(loader: Loader) -> Iterator[tuple[type[GaugeMetricFamily | CounterMetricFamily], str, str, float]]:
    """Yield kind, name, description and figure of each metric of a database that is known."""
    status, statistics = loader.status, loader.statistics()
    for name, text, figure in (
        ("up", "Whether the feed stands.", float(status.state == "ok")),
        ("age_seconds", "Seconds since the feed was last known to have told everything.", statistics.age_s),
        ("position", "How far the feed has come, in the database's own unit.", statistics.position),
        ("lag", "What the database has beyond that, where it is known.", statistics.lag),
        ("loaded_ranges", "Ranges that are loaded.", statistics.loaded_ranges),
    ):
        if figure is not None:
            yield GaugeMetricFamily, name, text, figure
    yield CounterMetricFamily, "feed_failures", "Times that the feed broke.", status.failure_count
    text = "Rows of the database that have no key under their mapping."
    yield CounterMetricFamily, "unpackable_rows", text, status.unpackable_count
    for field, text in _COUNTERS:
        yield CounterMetricFamily, field, text, getattr(loader.counters, field)
