"""The calls of `pequod.v1`: small handlers that decode, ask the engine and encode, and what they share."""
