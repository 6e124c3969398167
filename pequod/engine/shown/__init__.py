"""What people are shown of an engine: statistics, explanations, and where a range may be cut."""
