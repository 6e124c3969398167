"""What Prometheus reads of the groups of keys that a server works for most."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from pequod.escapes import escaped
from pequod_server.heat.meter import HeatMeter
from pequod_server.ops.collectors import ScrapedCollector

#: Groups come and go; more would be many time series.
_GROUPS: Final = 5


class HeatCollector(ScrapedCollector):
    """Tells how busy the process is, and which groups of keys it works for most."""

    def __init__(self, meter: HeatMeter) -> None:
        self._meter = meter

    def collect(self) -> Iterator[Metric]:
        """Yield the figures."""
        text = "The cores that the process keeps busy, of late."
        yield GaugeMetricFamily("pequod_heat_cores", text, self._meter.cores)
        text = "What the hottest groups of keys take of a core, of late."
        groups = GaugeMetricFamily("pequod_heat_group_cores", text, labels=["group"])
        for one in self._meter.groups()[:_GROUPS]:
            groups.add_metric([escaped(one.group)], one.cores)
        yield groups
