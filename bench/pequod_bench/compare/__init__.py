"""The names by which tests of other folders know two modules of `pequod_bench.systems`."""
