"""What Prometheus reads of backfills; docs/operations.md lists it."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pequod.engine import Engine
from pequod_server.ops.scraped import ScrapedCollector


class BackfillCollector(ScrapedCollector):
    """Tells what backfills have loaded, and what those under way take."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        """Yield the figures."""
        backfills = self._engine.backfills
        total = backfills.loaded
        yield CounterMetricFamily("pequod_backfill_rows", "Rows that backfills have loaded.", total.row_count)
        yield CounterMetricFamily("pequod_backfill_ranges", "Ranges that backfills have loaded.", total.range_count)
        text = "Pieces of backfills that were materialised before they came."
        yield CounterMetricFamily("pequod_backfill_pieces_skipped", text, total.skipped_count)
        live = GaugeMetricFamily("pequod_backfills_open", "Backfills under way.", labels=["join"])
        record = GaugeMetricFamily(
            "pequod_backfill_record_bytes", "Memory for what changed since backfills under way began.", labels=["join"]
        )
        by_join: dict[str, list[int]] = {}
        for backfill in backfills:
            by_join.setdefault(backfill.join.info.name, []).append(backfill.record_bytes)
        for join, sizes in by_join.items():
            live.add_metric([join], len(sizes))
            record.add_metric([join], sum(sizes))
        yield live
        yield record
