"""Collectors whose figures are there when Prometheus asks for them, and not before."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector


class ScrapedCollector(Collector):
    """A collector that is not asked when it is registered: there may be nothing to tell yet, and it may be dear."""

    async def refresh(self) -> None:
        """Collect what takes so long that others have to have their turn meanwhile; called before each scrape."""

    def describe(self) -> Iterator[Metric]:
        """Tell nothing before the first scrape."""
        return iter(())
