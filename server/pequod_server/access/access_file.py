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
"""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from time import monotonic
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pequod.errors import SettingError, UnauthenticatedError
from pequod.machine import stamp_of
from pequod_server.access.grants import Right, Role

log = logging.getLogger("pequod.server")

#: The file is looked at again by the first call or batch that comes this long after the last look.
LOOK_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Credential:
    """The token of a caller or, without one, the names of its certificate."""

    #: The SHA-256 of the token.
    digest: bytes | None
    names: tuple[str, ...] = ()

    @classmethod
    def of_token(cls, token: str) -> Credential:
        """Return the credential of a bearer token."""
        return cls(sha256(token.encode("utf-8", "surrogateescape")).digest())


class AccessRules:
    """The content of an access file at one moment."""

    __slots__ = ("_certificates", "_tokens")

    def __init__(self, tokens: Mapping[bytes, Role], certificates: Mapping[str, Role]) -> None:
        #: By digest.
        self._tokens = tokens
        self._certificates = certificates

    def role_of(self, credential: Credential) -> Role:
        """Return the role of a caller.

        Raises:
            UnauthenticatedError: The token is not known, or there is none and no name of the certificate is.
        """
        if credential.digest is not None:
            return self._role_of_token(credential.digest)
        roles = {self._certificates[name] for name in credential.names if name in self._certificates}
        if len(roles) == 1:
            return roles.pop()
        if roles:
            raise UnauthenticatedError("the names of the client certificate stand for several roles; send a token")
        if credential.names:
            names = ", ".join(credential.names)
            raise UnauthenticatedError(
                f"the server knows none of the certificate's names ({names}), and no token was sent; an operator "
                "can add either to the access file"
            )
        raise UnauthenticatedError("the server wants a token; give `token` to the client, or set PEQUOD_TOKEN")

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

    def __init__(self, path: Path) -> None:
        """Read the file.

        Raises:
            SettingError: It cannot be read, or is not right.
        """
        self._path = path
        self._stamp = stamp_of(self._path)
        self._rules = read_rules(self._path)
        self._next_look_s = monotonic() + LOOK_S

    def rules(self) -> AccessRules:
        """Return the rules that are in force; after a change another object."""
        now = monotonic()
        if now >= self._next_look_s:
            self._next_look_s = now + LOOK_S
            stamp = stamp_of(self._path)
            if stamp != self._stamp:
                self.reload()
        return self._rules

    def reload(self) -> None:
        """Read the file now."""
        # Looked at before it is read: what changes meanwhile is read at the next look.
        self._stamp = stamp_of(self._path)
        try:
            self._rules = read_rules(self._path)
        except SettingError as error:
            log.error("%s; the rules read before stay in force", error)  # noqa: TRY400 - no defect of ours
        else:
            log.info("access_file %s: read", self._path)


def read_rules(path: Path) -> AccessRules:
    """Read an access file.

    Raises:
        SettingError: It cannot be read, or is not right; the text says where.
    """
    try:
        content = _File.model_validate(tomllib.loads(path.read_text("utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingError("access_file", f"{path}: {error}") from error
    except ValidationError as error:
        # The values are left out: a token in the place of a hash must not come into a log.
        faults = (f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors(include_input=False))
        raise SettingError("access_file", f"{path}: {'; '.join(faults)}") from None
    roles = {name: role.granted(name) for name, role in content.roles.items()}
    tokens: dict[bytes, Role] = {}
    for kind, holders in (("tokens", content.tokens), ("certificates", content.certificates)):
        for name, holder in holders.items():
            if holder.role not in roles:
                raise SettingError("access_file", f"{path}: {kind}.{name}.role: there is no role {holder.role!r}")
    for name, token in content.tokens.items():
        digest = bytes.fromhex(token.sha256)
        if digest in tokens:
            raise SettingError("access_file", f"{path}: tokens.{name}.sha256: another token has the same")
        tokens[digest] = roles[token.role]
    return AccessRules(tokens, {name: roles[holder.role] for name, holder in content.certificates.items()})


_STRICT: Final = ConfigDict(extra="forbid", frozen=True, strict=True)


class _Role(BaseModel):
    model_config = _STRICT
    read: list[str] = []
    write: list[str] = []
    join: list[str] = []
    admin: list[str] = []
    feed: list[str] = []

    def granted(self, name: str) -> Role:
        return Role(name, {right: [prefix.encode() for prefix in getattr(self, right)] for right in Right})


class _Holder(BaseModel):
    model_config = _STRICT
    role: str


class _Token(_Holder):
    sha256: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$")]


class _File(BaseModel):
    model_config = _STRICT
    roles: dict[str, _Role] = {}
    tokens: dict[str, _Token] = {}
    certificates: dict[str, _Holder] = {}
