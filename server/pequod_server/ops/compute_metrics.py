"""What Prometheus reads of the computes of a home; docs/operations.md lists it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pequod_server.homes.home.feeding import FeedCounters, PeerFeed
from pequod_server.homes.home.service import PeerService
from pequod_server.ops.scraped import ScrapedCollector

#: Of each compute; those of computes that are gone have an empty label, so that their sum never falls.
_BY_PEER: Final = (
    ("messages", "messages", "Messages of feeds."),
    ("changes", "changes", "Changes that feeds told."),
    ("bytes", "size_bytes", "Bytes of keys and values in them."),
    ("reloads", "reloads", "Times that a compute was told to read ranges again."),
)
_OF_ALL: Final = (
    ("loads", "Loads of computes."),
    ("loaded_rows", "Rows that they were given."),
)
_GONE: Final = ""


class PeerCollector(ScrapedCollector):
    """Tells which computes follow a home, and what they were told."""

    def __init__(self, peers: PeerService) -> None:
        self._peers = peers
        #: By the name of the compute.
        self._subscriptions: Counter[str] = Counter()

    async def refresh(self) -> None:
        """Count what each compute is subscribed to."""
        self._subscriptions.clear()
        for one in (await self._peers.following()).peers:
            self._subscriptions[one.id or one.address] += one.subscriptions or 0

    def collect(self) -> Iterator[Metric]:
        """Yield the figures."""
        relay = self._peers.origin.relay
        # A compute that comes back may have two feeds for a moment.
        feeds: defaultdict[str, list[PeerFeed]] = defaultdict(list)
        for feed in self._peers.feeds.values():
            feeds[feed.id or feed.peer].append(feed)
        yield GaugeMetricFamily("pequod_peer_feeds", "Feeds of computes.", len(self._peers.feeds))
        text = "Bounds of the ranges that computes are subscribed to, two for each alone."
        yield GaugeMetricFamily("pequod_peer_subscription_bounds", text, len(relay.wants))
        text = "Memory for the latest changes, which feeds resume from."
        yield GaugeMetricFamily("pequod_peer_kept_bytes", text, relay.size_bytes)
        lag = GaugeMetricFamily("pequod_peer_lag_events", "Events that a feed has not told yet.", labels=["peer"])
        text = "Ranges that a compute is subscribed to; those that touch are one."
        subscriptions = GaugeMetricFamily("pequod_peer_subscriptions", text, labels=["peer"])
        for peer, some in feeds.items():
            lag.add_metric([peer], max(relay.lag(feed.subscriber) for feed in some))
            subscriptions.add_metric([peer], self._subscriptions[peer])
        yield lag
        yield subscriptions
        yield from self._counters(feeds)

    def _counters(self, feeds: dict[str, list[PeerFeed]]) -> Iterator[Metric]:
        by_peer = {_GONE: self._peers.gone}
        for peer, some in feeds.items():
            by_peer[peer] = FeedCounters()
            for feed in some:
                by_peer[peer].add(feed.counters)
        for name, field, text in _BY_PEER:
            family = CounterMetricFamily(f"pequod_peer_{name}", text, labels=["peer"])
            for peer, counters in by_peer.items():
                family.add_metric([peer], getattr(counters, field))
            yield family
        for field, text in _OF_ALL:
            yield CounterMetricFamily(f"pequod_peer_{field}", text, getattr(self._peers.gone, field))
