"""Calls that one worker of a server passes on to another one, which has what they need."""
