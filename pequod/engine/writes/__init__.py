"""Writes: from a change of base data, of loaded data or of the joins to everything that depends on it."""
