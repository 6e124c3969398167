"""Who callers are, what they may do, and the listening port."""
