"""Pequod: an ordered key-value cache that keeps computed data fresh by itself.

>>> from pequod import Client
>>> with Client("127.0.0.1:7744") as client:  # doctest: +SKIP
...     client.add_join("t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>")
...     client.put("s|ann|bob", "1")
...     client.put("p|bob|0000000100", "Hi")
...     client.scan("t|ann|", "t|ann}")
[(b't|ann|0000000100|bob', b'Hi')]
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pequod.client import AsyncClient, Client
    from pequod.embedded import open as open  # noqa: A004 - pequod.open
    from pequod.embedded import open_async
    from pequod.freshness import ANY, LATEST, Token, after, max_age
    from pequod.interface.transaction_parts import Add, Count, Get, Put, Remove, Scan, absent, present, value_of
    from pequod.language.conditions import IF_ABSENT, IF_PRESENT, Met, Unmet, if_value
    from pequod.language.numbers import decode_f64, decode_i64, encode_f64, encode_i64
    from pequod.language.ranges import prefix_end
    from pequod.written import token_of

__version__ = "0.1.0"
# Not `open`: `from pequod import *` must leave the one that opens files alone.
__all__ = [
    "ANY",
    "IF_ABSENT",
    "IF_PRESENT",
    "LATEST",
    "Add",
    "AsyncClient",
    "Client",
    "Count",
    "Get",
    "Met",
    "Put",
    "Remove",
    "Scan",
    "Token",
    "Unmet",
    "__version__",
    "absent",
    "after",
    "decode_f64",
    "decode_i64",
    "encode_f64",
    "encode_i64",
    "if_value",
    "max_age",
    "open_async",
    "prefix_end",
    "present",
    "token_of",
    "value_of",
]


def __getattr__(name: str) -> object:
    """Import the engine, or the clients and gRPC with them, when they are first asked for: the commands start soon."""
    if name == "prefix_end":
        from pequod.language.ranges import prefix_end  # noqa: PLC0415 - as said

        return prefix_end
    if name in ("decode_f64", "decode_i64", "encode_f64", "encode_i64"):
        from pequod.language import numbers  # noqa: PLC0415 - as said

        return getattr(numbers, name)
    if name in ("IF_ABSENT", "IF_PRESENT", "Met", "Unmet", "if_value"):
        from pequod.language import conditions  # noqa: PLC0415 - as said

        return getattr(conditions, name)
    if name in ("Add", "Count", "Get", "Put", "Remove", "Scan", "absent", "present", "value_of"):
        from pequod.interface import transaction_parts  # noqa: PLC0415 - as said

        return getattr(transaction_parts, name)
    if name == "token_of":
        from pequod.written import token_of  # noqa: PLC0415 - as said

        return token_of
    if name in ("ANY", "LATEST", "Token", "after", "max_age"):
        from pequod import freshness  # noqa: PLC0415 - as said

        return getattr(freshness, name)
    if name in ("AsyncClient", "Client"):
        from pequod import client  # noqa: PLC0415 - as said

        return getattr(client, name)
    if name in ("open", "open_async"):
        from pequod import embedded  # noqa: PLC0415 - as said

        return getattr(embedded, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
