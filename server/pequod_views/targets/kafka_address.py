"""Where views in Kafka are.

kafka://one:9092,two:9092/ledger       brokers, and the topic of parts; without a name it is pequod_views
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from pequod.addresses import fault_of
from pequod_views.errors import ViewFileError

_LEDGER: Final = "pequod_views"
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,200}").fullmatch
_PORT: Final = 9092
_MEMBERS: Final = {"ca", "mechanism"}
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True)
class KafkaAddress:
    """Brokers, how to be known to them, and the topic of the ledger."""

    brokers: tuple[str, ...]
    ledger: str
    user: str
    password: str
    #: Of SASL; None without a user.
    mechanism: str | None
    #: A file of certificates that sign those of the brokers; None: the connection is not encrypted.
    ca: str | None

    @property
    def shown(self) -> str:
        """The address without its password, for messages."""
        return f"kafka://{','.join(self.brokers)}/{self.ledger}"


def parse_address(database: str) -> KafkaAddress:
    """Return what an address names.

    >>> parse_address("kafka://one:9092,two/live").brokers
    ('one:9092', 'two:9092')

    Raises:
        ViewFileError: It is malformed.
    """
    try:
        parts = urlsplit(database)
        members = parse_qs(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise _malformed(str(error)) from error
    if unknown := sorted(set(members) - _MEMBERS):
        raise _malformed(f"{unknown[0]!r} is no setting of it; there are {', '.join(sorted(_MEMBERS))}")
    account, _, hosts = parts.netloc.rpartition("@")
    brokers = tuple(one if re.search(r":\d+$", one) else f"{one}:{_PORT}" for one in hosts.split(","))
    if not hosts or any(one.startswith(":") for one in brokers):
        raise _malformed("it names no broker; write kafka://HOST:9092")
    if odd := [one for one in brokers if fault_of(one)]:
        raise _malformed(f"{odd[0]!r} is no broker; write kafka://HOST:9092")
    ledger = unquote(parts.path.strip("/")) or _LEDGER
    if not is_topic(ledger):
        raise _malformed(f"{ledger!r} is no name of a topic")
    user, _, password = account.partition(":")
    if user and not password:
        raise _malformed("the user has no password; write kafka://USER:PASSWORD@HOST:9092")
    mechanism = members.get("mechanism", ["PLAIN"])[0]
    if mechanism not in _MECHANISMS:
        raise _malformed(f"{mechanism!r} is no mechanism; there are {', '.join(_MECHANISMS)}")
    return KafkaAddress(
        brokers,
        ledger,
        unquote(user),
        unquote(password),
        mechanism if user else None,
        members["ca"][0] if "ca" in members else None,
    )


def is_topic(name: str) -> bool:
    """Return whether Kafka takes a name for a topic."""
    return bool(_TOPIC(name)) and name not in {".", ".."}


def _malformed(reason: str) -> ViewFileError:
    return ViewFileError("database", f"the address of Kafka: {reason}")
