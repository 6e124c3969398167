"""Writes that are done once, though a client sends them twice: their ids, and the outcomes that go with these."""
