"""What Prometheus reads of the levels of freshness that reads asked for; docs/operations.md lists it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric

from pequod_server.freshness.questions import WAIT_ENDS, LevelCounters
from pequod_server.ops.scraped import ScrapedCollector


class LevelCollector(ScrapedCollector):
    """Tells what reads asked for, how long they waited, and what could not be had."""

    def __init__(self, counters: LevelCounters) -> None:
        self._counters = counters

    def collect(self) -> Iterator[Metric]:
        """Yield the figures."""
        counters = self._counters
        reads = CounterMetricFamily(
            "pequod_level_reads", "Calls and batches by the level of freshness of their reads.", labels=["level"]
        )
        for level, count in counters.reads.items():
            reads.add_metric([level], count)
        yield reads
        refusals = CounterMetricFamily("pequod_level_refusals", "Levels that could not be had.", labels=["reason"])
        for reason, count in counters.refusals.items():
            refusals.add_metric([reason], count)
        yield refusals
        yield CounterMetricFamily(
            "pequod_level_questions", "Questions to the database about its present place.", counters.questions
        )
        buckets = zip(WAIT_ENDS, accumulate(counters.waits), strict=True)
        yield HistogramMetricFamily(
            "pequod_level_wait_seconds",
            "Time that reads waited for their level, without those that waited for nothing.",
            buckets=[("+Inf" if end == math.inf else repr(end), count) for end, count in buckets],
            sum_value=counters.wait_s,
        )
