"""Nodes of etcd, for a cluster."""

from tests.cluster.conftest import etcd, etcd_binary, nodes

__all__ = ["etcd", "etcd_binary", "nodes"]
