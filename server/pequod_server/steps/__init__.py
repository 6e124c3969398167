"""Batches of commands: from the columns of a request to the columns of its reply."""
