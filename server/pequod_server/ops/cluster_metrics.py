"""What Prometheus reads of the cluster that a server belongs to; docs/cluster.md lists it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from pequod_server.cluster.member import Member
from pequod_server.ops.scraped import ScrapedCollector


class ClusterCollector(ScrapedCollector):
    """Tells what a server is in its cluster, which map it goes by, and who is there."""

    def __init__(self, member: Member) -> None:
        self._member = member

    def collect(self) -> Iterator[Metric]:
        """Yield the figures."""
        state, entry = self._member.state, self._member.entry
        labels = ["id", "roles", "group", "zone", "state"]
        this = GaugeMetricFamily("pequod_cluster_member", "This server in its cluster; always 1.", labels=labels)
        this.add_metric([entry.id, "+".join(sorted(entry.roles)), entry.group, entry.zone, entry.state], 1)
        yield this
        yield GaugeMetricFamily(
            "pequod_cluster_map_version", "The version of the newest map that the server knows.", state.map.version
        )
        yield GaugeMetricFamily(
            "pequod_cluster_map_taken_in_version", "The version of the map that the server goes by.", entry.map_version
        )
        servers = GaugeMetricFamily(
            "pequod_cluster_servers", "The servers of the cluster that this one knows.", labels=["role", "state"]
        )
        counts = Counter((role, server.state) for server in state.servers for role in server.roles)
        for (role, server_state), count in sorted(counts.items()):
            servers.add_metric([role, server_state], count)
        yield servers
