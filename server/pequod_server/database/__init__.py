"""The database behind the engine: what reads lack is loaded, changes are taken in, writes go through."""
