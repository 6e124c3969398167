"""PySpark's daemon, which has imported what its workers import: they are forked from it, by the dozen.

A worker by itself takes half a second of CPU to import pandas and gRPC.
"""

from importlib import import_module

from pyspark.daemon import manager

for name in ("pandas", "pyarrow", "pyspark.worker", "pequod.client", "pyspark_pequod.source", "pyspark_pequod.reader"):
    import_module(name)

if __name__ == "__main__":
    manager()
