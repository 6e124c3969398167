"""The Spark data source `pequod_lake`: tables of a lake as DataFrames, as fresh as an option says.

Spark looks for modules whose names begin with `pyspark_` and takes their `DefaultSource`, so there is nothing to
register: `spark.read.format("pequod_lake")` works where this is installed. docs/lake.md has the options.
"""

from pyspark_pequod_lake.source import DefaultSource

__all__ = ["DefaultSource"]
