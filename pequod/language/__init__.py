"""The language of cache joins: specifications, their rules, and what follows from them alone; plain values."""
