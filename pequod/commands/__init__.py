"""Commands: what a batch of them may hold, as every part of the product goes by it; nothing here knows of an engine."""
