"""The limit of memory of the process, and of the messages that are on their way."""
