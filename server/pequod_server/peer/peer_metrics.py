"""What Prometheus reads of the computes of a home; docs/cluster.md lists it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pequod_server.ops.scraped import ScrapedCollector
from pequod_server.peer.peers import PeerService

_COUNTERS: Final = (
    ("messages", "Messages of feeds."),
    ("changes", "Changes that feeds told."),
    ("size_bytes", "Bytes of keys and values in them."),
    ("reloads", "Times that a compute was told to read ranges again."),
    ("loads", "Loads of computes."),
    ("loaded_rows", "Rows that they were given."),
)


class PeerCollector(ScrapedCollector):
    """Tells which computes follow a home, and what they were told."""

    def __init__(self, peers: PeerService) -> None:
        self._peers = peers

    def collect(self) -> Iterator[Metric]:
        """Yield the figures."""
        relay = self._peers.origin.relay
        yield GaugeMetricFamily("pequod_peer_feeds", "Feeds of computes.", len(self._peers.feeds))
        text = "Bounds of the ranges that computes are subscribed to, two for each alone."
        yield GaugeMetricFamily("pequod_peer_subscription_bounds", text, len(relay.wants))
        text = "Memory for the latest changes, which feeds resume from."
        yield GaugeMetricFamily("pequod_peer_kept_bytes", text, relay.size_bytes)
        lag = GaugeMetricFamily("pequod_peer_lag_events", "Events that a feed has not told yet.", labels=["peer"])
        for feed in self._peers.feeds.values():
            lag.add_metric([feed.peer], relay.lag(feed.subscriber))
        yield lag
        counters = self._peers.counters()
        for field, text in _COUNTERS:
            name = "pequod_peer_bytes" if field == "size_bytes" else f"pequod_peer_{field}"
            yield CounterMetricFamily(name, text, getattr(counters, field))
