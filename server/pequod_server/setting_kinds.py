"""The kinds of settings: how each is read from text, its bounds, and what help calls it.

>>> size_of("4MiB"), parse_memory_limit("75%")
(4194304, 0.75)
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, ByteSize, Field, TypeAdapter
from pydantic_core import PydanticCustomError

from pequod.addresses import fault_of, is_origin

KIB: Final = 1 << 10
MIB: Final = 1 << 20
_SIZE: Final = re.compile(r"\s*\d+(\.\d+)?\s*([kmg]i?)?b?\s*", re.IGNORECASE)
_ADDRESS: Final = re.compile(r"(\[[0-9a-fA-F:.%\w]+\]|[^\s:\[\]/]+):(\d{1,5})")
_SIZES: Final = TypeAdapter(ByteSize)
_SHARE: Final = re.compile(r"(\d+(?:\.\d+)?)%")
_PRIORITY: Final = re.compile(r"([^\s=,]+)=(-?\d{1,6}|pinned)")
#: A lower limit is useless: the tables of a few joins alone need this.
MEMORY_LIMIT_MIN: Final = MIB
#: More cores than that are several machines.
WORKERS_MAX: Final = 256


class Metavar(str):
    """The name of a value in help and documentation, such as SIZE."""

    __slots__ = ()


def size_of(value: object) -> object:
    """Read a size that is text, such as "4MiB"; the type of its field refuses anything else."""
    if isinstance(value, str) and not _SIZE.fullmatch(value):
        raise PydanticCustomError("size", 'must be a size in bytes, such as 65536, "64KiB" or "4MiB"')
    return int(_SIZES.validate_python(value)) if isinstance(value, str) else value


def number_of(value: object) -> object:
    """Read numbers from variables and flags, which are text; the field's type refuses anything else."""
    if isinstance(value, str):
        for number in (int, float):
            with suppress(ValueError):
                return number(value)
    return value


def _address(value: str) -> str:
    match = _ADDRESS.fullmatch(value)
    if match is None or int(match[2]) > 65535:
        raise PydanticCustomError("address", "must be HOST:PORT with a port from 0 to 65535, such as 127.0.0.1:7744")
    return value


def _origins(value: str) -> str:
    if not all(one == "*" or is_origin(one) for one in value.split()):
        raise PydanticCustomError("origins", "must be *, or origins with spaces between, such as https://example.org")
    return value


def table_names(setting: str) -> list[bytes]:
    """Return the names of tables that a setting lists, with commas between them."""
    return [name.strip().encode() for name in setting.split(",") if name.strip()]


def parse_memory_limit(value: str) -> int | float | None:
    """Return bytes, a share of the machine's memory, or None for no limit.

    >>> parse_memory_limit("4GiB"), parse_memory_limit("75%"), parse_memory_limit("none")
    (4294967296, 0.75, None)
    """
    if value == "none":
        return None
    if match := _SHARE.fullmatch(value):
        share = float(match[1]) / 100
        if not 0 < share <= 1:
            raise PydanticCustomError("memory", "must be a share from 1% to 100%")
        return share
    if not _SIZE.fullmatch(value) or (size := int(_SIZES.validate_python(value))) < MEMORY_LIMIT_MIN:
        text = 'must be a size of 1MiB or more, such as "4GiB", a share of the memory, such as "75%", or "none"'
        raise PydanticCustomError("memory", text)
    return size


def _memory_limit(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if isinstance(value, str):
        parse_memory_limit(value)
    return value


def parse_priorities(value: str) -> dict[str, int | None]:
    """Return the priorities by join, None for pinned ones.

    >>> parse_priorities("t=1 karma=pinned")
    {'t': 1, 'karma': None}
    """
    found: dict[str, int | None] = {}
    for part in value.split():
        match = _PRIORITY.fullmatch(part)
        if match is None:
            raise PydanticCustomError("priorities", "must be joins with whole numbers or pinned: t=1 karma=pinned")
        found[match[1]] = None if match[2] == "pinned" else int(match[2])
    return found


def parse_relays(value: str) -> dict[str, list[str]]:
    """Return the addresses of relays by home groups.

    >>> parse_relays("a=10.0.1.1:7744,10.0.1.2:7744 b=10.0.1.3:7744")
    {'a': ['10.0.1.1:7744', '10.0.1.2:7744'], 'b': ['10.0.1.3:7744']}
    """
    found: dict[str, list[str]] = {}
    for part in value.split():
        group, _, listed = part.partition("=")
        addresses = listed.split(",")
        if not group or not listed:
            text = "{part} must be a home group and the addresses of its relays: a=10.0.1.1:7744,10.0.1.2:7744"
            raise PydanticCustomError("relays", text, {"part": part})
        if group in found:
            raise PydanticCustomError("relays", "the home group {group} is there twice", {"group": group})
        for one in addresses:
            if fault := fault_of(one):
                raise PydanticCustomError("relays", "{group}: {fault}", {"group": group, "fault": fault})
        found[group] = addresses
    return found


def _relays(value: str) -> str:
    parse_relays(value)
    return value


def parse_addresses(value: str) -> list[str]:
    """Return the addresses of a list.

    >>> parse_addresses("10.0.0.1:7744, 10.0.0.2:7744")
    ['10.0.0.1:7744', '10.0.0.2:7744']
    """
    found = [one.strip() for one in value.split(",")] if value else []
    if any(fault_of(one) for one in found):
        raise PydanticCustomError("addresses", "must be addresses of servers: 10.0.0.1:7744,10.0.0.2:7744")
    return found


def _addresses(value: str) -> str:
    parse_addresses(value)
    return value


def _priorities(value: str) -> str:
    parse_priorities(value)
    return value


def _roles(value: str) -> str:
    if not set(value.split()) <= {"home", "compute"}:
        raise PydanticCustomError("roles", "must be home, compute, or both: home compute")
    return value


def _workers(value: str) -> str:
    if value != "auto" and not (re.fullmatch(r"[1-9]\d{0,2}", value) and int(value) <= WORKERS_MAX):
        raise PydanticCustomError("workers", f"must be a number from 1 to {WORKERS_MAX}, or auto: one for each core")
    return value


def _file(value: object) -> object:
    """Read an empty text as no file, as `written` writes it."""
    return None if value == "" else value


def _paths(value: object) -> object:
    """Split a list of files, in one text as in PATH."""
    return [part for part in value.split(os.pathsep) if part] if isinstance(value, str) else value


Address = Annotated[str, AfterValidator(_address), Metavar("HOST:PORT")]
OptionalAddress = Annotated[str, AfterValidator(lambda value: value and _address(value)), Metavar("HOST:PORT")]
Lakes = Annotated[str, Metavar("LAKE ...")]
Origins = Annotated[str, AfterValidator(_origins), Metavar("ORIGIN ...")]
Size = Annotated[int, BeforeValidator(size_of), Field(strict=True, ge=1, lt=1 << 31), Metavar("SIZE")]
SizeOrShare = Annotated[int, BeforeValidator(size_of), Field(strict=True, ge=0, lt=1 << 31), Metavar("SIZE")]
Number = Annotated[int, BeforeValidator(number_of), Field(strict=True, ge=1, lt=1 << 31), Metavar("N")]
Seconds = Annotated[
    float, BeforeValidator(number_of), Field(strict=True, ge=0, allow_inf_nan=False), Metavar("SECONDS")
]
File = Annotated[Path | None, BeforeValidator(_file), Metavar("FILE")]
Folder = Annotated[Path | None, BeforeValidator(_file), Metavar("DIR")]
Fsync = Annotated[Literal["always", "everysec", "never"], Metavar("WHEN")]
Milliseconds = Annotated[
    float, BeforeValidator(number_of), Field(strict=True, ge=0, allow_inf_nan=False), Metavar("MS")
]
BackingMode = Annotated[Literal["write-around", "write-through", "look-aside"], Metavar("MODE")]
BackingFeed = Annotated[Literal["slot", "notify"], Metavar("FEED")]
ClusterRoles = Annotated[str, AfterValidator(_roles), Metavar("ROLE ...")]
ClusterRelays = Annotated[str, AfterValidator(_relays), Metavar("RELAYS")]
Addresses = Annotated[str, AfterValidator(_addresses), Metavar("HOST:PORT,...")]
Port = Annotated[int, BeforeValidator(number_of), Field(strict=True, ge=0, le=65535), Metavar("PORT")]
Weight = Annotated[float, BeforeValidator(number_of), Field(strict=True, gt=0, le=1000), Metavar("N")]
Workers = Annotated[
    str,
    BeforeValidator(lambda value: str(value) if type(value) is int else value),
    AfterValidator(_workers),
    Metavar("N"),
]
Transport = Annotated[Literal["auto", "native", "grpcio"], Metavar("TRANSPORT")]
LogFormat = Annotated[Literal["console", "json"], Metavar("FORMAT")]
LogLevel = Annotated[Literal["debug", "info", "warning", "error"], Metavar("LEVEL")]
MemoryLimit = Annotated[str, BeforeValidator(_memory_limit), Metavar("LIMIT")]
Priorities = Annotated[str, AfterValidator(_priorities), Metavar("JOIN=N ...")]
Files = Annotated[tuple[Path, ...], BeforeValidator(_paths), Metavar("FILE")]
