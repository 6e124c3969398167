"""Several processes of one machine as one server: planned, started, watched, started again."""
