"""Twip on a server, in the engine of this process, and on clusters."""
