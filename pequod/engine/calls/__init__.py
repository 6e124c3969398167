"""What can be asked of an engine, beside reading and writing: one class for each kind of calls."""
