"""PySpark's daemon, which has imported what its workers import: they are forked from it, by the dozen.

A worker by itself takes half a second of CPU to import pandas and gRPC.
"""

import pandas as pd  # noqa: F401 -- for the workers
import pyarrow as pa  # noqa: F401
import pyspark.worker  # noqa: F401
import pyspark_pequod.reader
import pyspark_pequod.source
import pyspark_pequod.stream
import pyspark_pequod.writer  # noqa: F401
from pyspark.daemon import manager

import pequod.client  # noqa: F401

if __name__ == "__main__":
    manager()
