"""What the benchmarks ask of a system: Twip's graph, operations, commands and answers, and YCSB."""
