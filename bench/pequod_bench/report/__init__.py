"""What a benchmark found: latencies, tables, progress."""
