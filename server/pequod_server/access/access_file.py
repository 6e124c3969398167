"""The access file: who callers are and which rights they have.

[roles.web]
read = ["t|", "p|"]                  # prefixes of keys; "" is every key
write = ["p|", "s|"]
join = ["t|"]
admin = [""]
feed = ["p|"]                        # for servers that compute from these keys

[tokens.frontend]
role = "web"
sha256 = "64 hexadecimal digits"     # of the token, which only its holder knows

[certificates."web.example.org"]     # a common name or alternative name of a client certificate
role = "web"

And `issuers`, whose tokens name roles themselves: see issuers.py.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from time import monotonic, time
from typing import Final, NamedTuple

from pequod.errors import SettingError, UnauthenticatedError
from pequod.machine import stamp_of
from pequod_server.access.access_text import AccessText, read_text
from pequod_server.access.grants import Right, Role
from pequod_server.access.issuers import Issuer, is_like_a_jwt, unverified
from pequod_server.access.key_sets import KeyFile, KeySource, KeyUrl

log = logging.getLogger("pequod.server")

#: The file is looked at again by the first call or batch that comes this long after the last look.
LOOK_S: Final = 1.0


#: How many judgements of issuers' tokens are kept.
_JUDGED_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Credential:
    """The token of a caller or, without one, the names of its certificate."""

    #: The SHA-256 of the token.
    digest: bytes | None
    names: tuple[str, ...] = ()
    #: The token itself, if an issuer may have made it.
    token: str | None = field(default=None, repr=False)

    @classmethod
    def of_token(cls, token: str) -> Credential:
        """Return the credential of a bearer token."""
        return cls(digest_of(token), token=token if is_like_a_jwt(token) else None)


def digest_of(token: str) -> bytes:
    """Return by what a token is known."""
    return sha256(token.encode("utf-8", "surrogateescape")).digest()


def token_as(trusted: str, role: str) -> str:
    """Return the token of a worker that calls another one for a caller with a role; see `Access`."""
    return sha256(f"{trusted} {role}".encode()).hexdigest()


class Tenure(NamedTuple):
    """A role, and when the caller has to be looked at again, in seconds of the wall clock."""

    role: Role
    end_s: float = math.inf


class AccessRules:
    """The content of an access file, and the keys of its issuers, at one moment."""

    __slots__ = ("_certificates", "_issuers", "_judged", "_tokens", "roles")

    def __init__(
        self,
        roles: Mapping[str, Role],
        tokens: Mapping[bytes, Role],
        certificates: Mapping[str, Role],
        issuers: Mapping[str, Issuer],
    ) -> None:
        #: By name.
        self.roles = roles
        #: By digest.
        self._tokens = tokens
        self._certificates = certificates
        #: By the claim `iss`.
        self._issuers = issuers
        #: The roles of judged tokens of issuers, by digest; the oldest is first.
        self._judged: dict[bytes, Tenure] = {}

    def renewed(self) -> AccessRules:
        """Return the same rules, which know nothing of tokens: keys of issuers have changed."""
        return AccessRules(self.roles, self._tokens, self._certificates, self._issuers)

    def tenure_of(self, credential: Credential, now_s: float) -> Tenure:
        """Return the role of a caller, and for how long.

        Args:
            now_s: The time of the wall clock.

        Raises:
            UnauthenticatedError: The token is not known or not right, or there is none and no name of the certificate
                is known.
        """
        if credential.digest is not None:
            if credential.token is not None and self._issuers and credential.digest not in self._tokens:
                return self._tenure_by_issuer(credential.token, credential.digest, now_s)
            return Tenure(self._role_of_token(credential.digest))
        roles = {self._certificates[name] for name in credential.names if name in self._certificates}
        if len(roles) == 1:
            return Tenure(roles.pop())
        if roles:
            raise UnauthenticatedError("the names of the client certificate stand for several roles; send a token")
        if credential.names:
            names = ", ".join(credential.names)
            raise UnauthenticatedError(
                f"the server knows none of the certificate's names ({names}), and no token was sent; an operator "
                "can add either to the access file"
            )
        raise UnauthenticatedError(
            "the server wants a token; give `token` to the client, set PEQUOD_TOKEN for a command, name a file by "
            "--backing-token for a server that computes from it, or send the header `Authorization: Bearer TOKEN` "
            "with an HTTP request"
        )

    def source_lacking(self, credential: Credential) -> KeySource | None:
        """Return which keys have to be read anew before a token can be judged; None: none."""
        if credential.token is None or credential.digest in self._tokens or credential.digest in self._judged:
            return None
        with suppress(UnauthenticatedError):
            said = unverified(credential.token)
            issuer = self._issuers.get(said.issuer)
            if issuer is not None and issuer.keys.find(said.key) is None:
                return issuer.keys
        return None

    def _tenure_by_issuer(self, token: str, digest: bytes, now_s: float) -> Tenure:
        known = self._judged.get(digest)
        if known is not None and now_s < known.end_s:
            return known
        issuer = self._issuers.get(unverified(token).issuer)
        if issuer is None:
            raise UnauthenticatedError("the token is of an issuer that the access file does not name")
        judged = issuer.judge(token, now_s)
        claim = ".".join(issuer.roles)
        named = [name for name in dict.fromkeys(judged.roles) if name in self.roles]
        if not named:
            raise UnauthenticatedError(
                f"the claim {claim} of the token of {issuer.name} names no role of the access file"
            )
        if len(named) > 1:
            raise UnauthenticatedError(
                f"the claim {claim} of the token of {issuer.name} names several roles ({', '.join(named)}); make a "
                "role of the access file that has what they have, and name it alone"
            )
        if len(self._judged) >= _JUDGED_MAX:
            del self._judged[next(iter(self._judged))]
        found = self._judged[digest] = Tenure(self.roles[named[0]], judged.end_s)
        return found

    def _role_of_token(self, digest: bytes) -> Role:
        # The token is compared with all of them to the end, so that the time taken betrays nothing.
        found = None
        for known, role in self._tokens.items():
            if compare_digest(known, digest):
                found = role
        if found is None:
            raise UnauthenticatedError("the server does not know this token; it may have been withdrawn")
        return found


class Access:
    """An access file that is read again when it changes; a file that is wrong leaves the rules as they were."""

    def __init__(self, path: Path, *, owns_data: bool = True, trusted: str = "") -> None:
        """Read the file.

        Args:
            trusted: A token that stands for every right, and is not in the file: the other workers' of this server.
            owns_data: Whether base data is the server's own, so that it can be counted there.

        Raises:
            SettingError: It cannot be read, or is not right.
        """
        self._path = path
        self._owns_data = owns_data
        self._trusted = trusted
        #: Tells the time of the wall, by which tokens of issuers end.
        self.clock: Callable[[], float] = time
        #: The keys of issuers, by where they are and how they are got: those of another file stay if it names them too.
        self._sources: dict[tuple[object, ...], KeySource] = {}
        self._stamp = stamp_of(self._path)
        self._rules = self._read()
        self._next_look_s = monotonic() + LOOK_S

    async def start(self) -> None:
        """Fetch the keys of issuers; what cannot be had is said in the log, and tried again."""
        await asyncio.gather(*(source.start() for source in self._sources.values()))

    async def close(self) -> None:
        """End what fetches keys."""
        ending = [task for source in self._sources.values() if (task := source.drop()) is not None]
        await asyncio.gather(*ending, return_exceptions=True)

    async def prepare(self, credential: Credential) -> None:
        """Read the keys of an issuer anew if a token names one that is not there."""
        source = self.rules().source_lacking(credential)
        if source is not None:
            await source.seek()

    def rules(self) -> AccessRules:
        """Return the rules that are in force; after a change another object."""
        now = monotonic()
        if now >= self._next_look_s:
            self._next_look_s = now + LOOK_S
            stamp = stamp_of(self._path)
            if stamp != self._stamp:
                self._reload()
            for source in self._sources.values():
                source.look()
        return self._rules

    def reload(self) -> None:
        """Read the file now, and the keys of issuers."""
        self._reload()
        for source in self._sources.values():
            source.renew()

    def _reload(self) -> None:
        # Looked at before it is read: what changes meanwhile is read at the next look.
        self._stamp = stamp_of(self._path)
        try:
            self._rules = self._read()
        except SettingError as error:
            log.error("%s; the rules read before stay in force", error)  # noqa: TRY400 - no defect of ours
        else:
            log.info("access_file %s: read", self._path)

    def _read(self) -> AccessRules:
        before = self._sources
        wanted: dict[tuple[object, ...], KeySource] = {}

        def keys(source: str, ca: Path | None, refresh_s: float) -> KeySource:
            place = (source, ca, refresh_s)
            found = before.get(place) or wanted.get(place) or _source(source, ca, refresh_s, self._keys_changed)
            wanted[place] = found
            return found

        rules = read_rules(self._path, keys, self._trusted)
        counted = [name for name, role in rules.roles.items() if role.quotas is not None and role.quotas.are_of_data]
        if counted and not self._owns_data:
            place = f"{self._path}: roles.{counted[0]}.quotas"
            text = "keys and bytes cannot be counted here: a database or other servers have the data; bound them there"
            raise SettingError("access_file", f"{place}: {text}")
        self._sources = wanted
        for gone in before.keys() - wanted.keys():
            before[gone].drop()
        return rules

    def _keys_changed(self) -> None:
        self._rules = self._rules.renewed()


#: Makes the keys of an issuer: where they are, the authority of that place, and how often they are read anew.
MakeKeys = Callable[[str, Path | None, float], KeySource]


def _source(source: str, ca: Path | None, refresh_s: float, changed: Callable[[], None]) -> KeySource:
    if "://" in source:
        return KeyUrl(source, ca, refresh_s, changed)
    return KeyFile(Path(source), changed)


def read_rules(path: Path, keys: MakeKeys | None = None, trusted: str = "") -> AccessRules:
    """Read an access file.

    Args:
        keys: Makes the keys of its issuers; they are made anew without it.
        trusted: See `Access`.

    Raises:
        SettingError: It cannot be read, or is not right; the text says where.
    """
    text = read_text(path)
    roles = {name: role.granted(name) for name, role in text.roles.items()}
    tokens: dict[bytes, Role] = {}
    for name, token in text.tokens.items():
        digest = bytes.fromhex(token.sha256)
        if digest in tokens:
            raise SettingError("access_file", f"{path}: tokens.{name}.sha256: another token has the same")
        tokens[digest] = roles[token.role]
    if trusted:
        tokens[digest_of(trusted)] = Role("worker", dict.fromkeys(Right, (b"",)))
        tokens |= {digest_of(token_as(trusted, name)): role for name, role in roles.items()}
    certificates = {name: roles[holder.role] for name, holder in text.certificates.items()}
    make = keys or (lambda source, ca, refresh_s: _source(source, ca, refresh_s, lambda: None))
    return AccessRules(roles, tokens, certificates, _issuers(path, text, make))


def _issuers(path: Path, text: AccessText, make: MakeKeys) -> dict[str, Issuer]:
    found: dict[str, Issuer] = {}
    for name, one in text.issuers.items():
        if one.issuer in found:
            raise SettingError("access_file", f"{path}: issuers.{name}.issuer: another issuer is the same")
        try:
            keys = make(one.source(path.parent), one.authority(path.parent), one.refresh_s)
        except (OSError, ValueError) as error:
            raise SettingError("access_file", f"{path}: issuers.{name}.keys: {error}") from error
        found[one.issuer] = Issuer(name, one.issuer, one.audience, keys, one.claim, one.leeway_s)
    return found
