"""What Prometheus reads of the file in which a server saves its base data."""

from __future__ import annotations

import time
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pequod_server.ops.scraped import ScrapedCollector
from pequod_server.ops.snapshots import Snapshots


class SnapshotCollector(ScrapedCollector):
    """Tells how old the file is, and how many saves have failed; nothing if the settings name no file."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots

    def collect(self) -> Iterator[Metric]:
        """Yield the figures; without an age while there is no file."""
        if not self._snapshots.is_wanted:
            return
        text = "Saves of the snapshot that failed; the file before them stays."
        yield CounterMetricFamily("pequod_snapshot_failures", text, self._snapshots.failure_count)
        if self._snapshots.saved_s is not None:
            age_s = max(time.time() - self._snapshots.saved_s, 0.0)
            yield GaugeMetricFamily("pequod_snapshot_age_seconds", "Seconds since the file's data was saved.", age_s)
