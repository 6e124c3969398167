"""The nodes of etcd, and the PostgreSQL, are those of other tests."""

from tests.backing.conftest import dsn, postgres
from tests.cluster.conftest import etcd, etcd_binary, nodes

__all__ = ["dsn", "etcd", "etcd_binary", "nodes", "postgres"]
