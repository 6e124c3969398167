"""The calls of every client: one definition, with a server or without.

    AsyncCalls   asynchronous.py   the definition: names, arguments, docstrings, what is checked and converted
       ^  ^
       |  +-- AsyncClient, AsyncEmbedded    how a server and how an engine in the process carry the calls out
       |
    Calls        synchronous.py    generated from it by `make interface`: each call waits for the same call there
       ^
       +-- Client, Embedded

A function that takes any client says so by `Calls` or `AsyncCalls`; one that takes any session, by `Session` or
`AsyncSession`, which have the same calls.
"""

from pequod.interface.asynchronous import AsyncCalls, AsyncSession
from pequod.interface.commands import Commands
from pequod.interface.synchronous import Calls, Session

__all__ = ["AsyncCalls", "AsyncSession", "Calls", "Commands", "Session"]
