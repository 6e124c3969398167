"""The nodes of etcd are those of the tests of coordinators."""

from tests.cluster.conftest import etcd, etcd_binary, nodes

__all__ = ["etcd", "etcd_binary", "nodes"]
