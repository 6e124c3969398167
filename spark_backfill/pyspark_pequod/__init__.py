"""The Spark data source `pequod`: ranges of a server as DataFrames, and DataFrames into a server.

Spark looks for modules whose names begin with `pyspark_` and takes their `DefaultSource`, so there is nothing to
register: `spark.read.format("pequod")` works where this is installed. `register(spark)` takes a session's settings.

source.py   DefaultSource: options in, readers and writers out
options.py    the options, checked: how to reach the server, the pattern, how to read and write
narrowing.py  the ranges of keys that the options name
columns.py    rows as Arrow batches, keys taken apart into slot columns
reader.py     batch reads, a task for each part
packing.py    columns -> keys and values, checked
writer.py     writes of batches and streams
stream.py     streaming reads: a watch beside the query
loading.py    bulk loads: shuffled by key, written in order
"""

from pyspark_pequod.source import DefaultSource, register

__all__ = ["DefaultSource", "register"]
