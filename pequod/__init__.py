"""Pequod: an ordered key-value cache that keeps computed data fresh by itself.

>>> from pequod import Client
>>> with Client("127.0.0.1:7744") as client:  # doctest: +SKIP
...     client.add_join("t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>")
...     client.put("s|ann|bob", "1")
...     client.put("p|bob|0000000100", "Hi")
...     client.scan("t|ann|", "t|ann}")
[(b't|ann|0000000100|bob', b'Hi')]
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pequod import errors
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
    "errors",
    "if_value",
    "max_age",
    "open_async",
    "prefix_end",
    "present",
    "token_of",
    "value_of",
]


#: Where each name is. A module is imported when a name of it is first asked for: the commands start soon.
_MODULES: Final = {
    name: module
    for module, names in {
        "pequod.client": ("AsyncClient", "Client"),
        "pequod.embedded": ("open", "open_async"),
        "pequod.freshness": ("ANY", "LATEST", "Token", "after", "max_age"),
        "pequod.interface.transaction_parts": (
            "Add",
            "Count",
            "Get",
            "Put",
            "Remove",
            "Scan",
            "absent",
            "present",
            "value_of",
        ),
        "pequod.language.conditions": ("IF_ABSENT", "IF_PRESENT", "Met", "Unmet", "if_value"),
        "pequod.language.numbers": ("decode_f64", "decode_i64", "encode_f64", "encode_i64"),
        "pequod.language.ranges": ("prefix_end",),
        "pequod.written": ("token_of",),
    }.items()
    for name in names
}


def __getattr__(name: str) -> object:
    """Return a public name, and import its module for it."""
    if name == "errors":
        return import_module("pequod.errors")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
