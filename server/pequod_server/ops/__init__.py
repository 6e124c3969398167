"""What operators see and keep: log, metrics, traces, the states of the process."""
