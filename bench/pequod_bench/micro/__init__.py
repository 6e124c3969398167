"""Single operations of the engine, the wire and the client."""
