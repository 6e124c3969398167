"""What operators see and keep: log, metrics, traces, snapshots, the states of the process."""
