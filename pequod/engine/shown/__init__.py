"""The views of an engine for people: statistics, explanations, and the keys at which a range may be cut."""
