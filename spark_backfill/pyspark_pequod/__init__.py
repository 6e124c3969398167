"""The Spark data source `pequod`: ranges of a server as DataFrames, and DataFrames into a server.

Spark looks for modules whose names begin with `pyspark_` and takes their `DefaultSource`, so there is nothing to
register: `spark.read.format("pequod")` works where this is installed. `register(spark)` takes a session's settings.
docs/architecture/spark.md has the files.
"""

from pyspark_pequod.looking_up import lookup
from pyspark_pequod.source import DefaultSource, register

__all__ = ["DefaultSource", "lookup", "register"]
