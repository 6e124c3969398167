"""What a store in its own right costs: data on disk, durable puts, more data than memory, keys that expire."""
