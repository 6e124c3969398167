"""The form of an access file: its tables, their members, and the type of each."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final, Self
from urllib.parse import urlsplit

from pequod_installed.names import how_to_install
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from pequod.addresses import is_local
from pequod.errors import SettingError
from pequod.language.spec import DELIMITER
from pequod_server.access.grants import Quotas, Right, Role
from pequod_server.setting_kinds import size_of
from pequod_server.settings import reason_of, unknown_name

_STRICT: Final = ConfigDict(extra="forbid", frozen=True, strict=True)
#: The one scheme of URLs that nobody on the way can change.
_SCHEME: Final = "https"


def _place(value: str) -> str:
    if "://" not in value:
        return value
    url = urlsplit(value)
    if url.scheme != _SCHEME and not (url.scheme == "http" and is_local(f"{url.hostname}:0")):
        raise PydanticCustomError("place", "must be a file, or an https URL: who is on the way could change the keys")
    if not url.hostname or url.username or url.password:
        raise PydanticCustomError("place", "must be a file, or an https URL with a host, and without user and password")
    return value


Count = Annotated[int, Field(ge=0)]
Claim = Annotated[str, Field(min_length=1)]
Claims = Annotated[list[Claim], Field(min_length=1)]


class QuotasText(BaseModel):
    """How much the callers of a role may use together."""

    model_config = _STRICT
    calls_per_s: Annotated[float, Field(gt=0, le=1e9)] | None = None
    watches: Count | None = None
    keys: Count | None = None
    bytes: Annotated[int, BeforeValidator(size_of), Field(ge=0)] | None = None


class RoleText(BaseModel):
    """The rights of a role, as prefixes of keys, and its quotas."""

    model_config = _STRICT
    read: list[str] = []
    write: list[str] = []
    join: list[str] = []
    admin: list[str] = []
    feed: list[str] = []
    quotas: QuotasText | None = None

    @model_validator(mode="after")
    def _check_quotas(self) -> Self:
        """Refuse quotas that nothing could hold to."""
        if self.quotas is None:
            return self
        if self.feed:
            raise PydanticCustomError("quotas", "quotas are for clients, and a role with `feed` is for servers")
        if self.quotas.keys is None and self.quotas.bytes is None:
            return self
        delimiter = DELIMITER.decode()
        inside = [prefix for prefix in self.write if prefix.partition(delimiter)[2]]
        if inside or not self.write:
            text = 'quotas of keys and bytes need `write` on whole tables, such as "p|" or "acme."'
            raise PydanticCustomError("quotas", text + (f"; {inside[0]!r} is a part of one" if inside else ""))
        return self

    def granted(self, name: str) -> Role:
        """Return the role."""
        quotas = None if self.quotas is None else Quotas(**self.quotas.model_dump())
        return Role(name, {right: [prefix.encode() for prefix in getattr(self, right)] for right in Right}, quotas)


class HolderText(BaseModel):
    """The holder of a token or a certificate."""

    model_config = _STRICT
    role: str


class TokenText(HolderText):
    """A token, by its hash."""

    sha256: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$")]


class IssuerText(BaseModel):
    """An issuer whose tokens are taken."""

    model_config = _STRICT
    issuer: Annotated[str, Field(min_length=1)]
    audience: Annotated[str, Field(min_length=1)]
    keys: Annotated[str, Field(min_length=1), AfterValidator(_place)]
    ca: str = ""
    roles: Claim | Claims
    leeway_s: Annotated[int, Field(ge=0, le=300)] = 30
    refresh_s: Annotated[float, Field(ge=10)] = 300.0

    @property
    def claim(self) -> tuple[str, ...]:
        """The claim that names roles, and those that it is in."""
        return (self.roles,) if isinstance(self.roles, str) else tuple(self.roles)

    def source(self, folder: Path) -> str:
        """Return where the keys are; files are meant from a folder."""
        return self.keys if "://" in self.keys else str(folder / self.keys)

    def authority(self, folder: Path) -> Path | None:
        """Return the file of the authority of the URL; None: the system knows it."""
        return folder / self.ca if self.ca else None


class AccessText(BaseModel):
    """An access file."""

    model_config = _STRICT
    roles: dict[str, RoleText] = {}
    tokens: dict[str, TokenText] = {}
    certificates: dict[str, HolderText] = {}
    issuers: dict[str, IssuerText] = {}


#: The settings of the tables of each kind, such as those of `[roles.web]`.
_TABLES: Final[dict[str, type[BaseModel]]] = {
    "roles": RoleText,
    "tokens": TokenText,
    "certificates": HolderText,
    "issuers": IssuerText,
}


def read_text(path: Path) -> AccessText:
    """Read an access file, whose holders have roles of the file.

    Raises:
        SettingError: It cannot be read, or is not right; the text says where.
    """
    try:
        text = AccessText.model_validate(tomllib.loads(path.read_text("utf-8")))
    except OSError as error:
        raise SettingError("access_file", f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingError("access_file", f"{path}: is not UTF-8: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingError("access_file", f"{path}: is not TOML: {error}") from error
    except ValidationError as error:
        # The values are left out: a token in the place of a hash must not come into a log.
        faults = map(_fault, error.errors(include_input=False))
        raise SettingError("access_file", f"{path}: {'; '.join(faults)}") from None
    for kind, holders in (("tokens", text.tokens), ("certificates", text.certificates)):
        for name, holder in holders.items():
            if holder.role not in text.roles:
                raise SettingError("access_file", f"{path}: {kind}.{name}.role: there is no role {holder.role!r}")
    if text.issuers and find_spec("joserfc") is None:
        raise SettingError("access_file", f"{path}: issuers need joserfc: {how_to_install('jwt')}")
    return text


def _fault(detail: ErrorDetails) -> str:
    place = [str(part) for part in detail["loc"]]
    if detail["type"] == "extra_forbidden":
        return f"{'.'.join(place)}: {unknown_name('setting', place[-1], _known_in(place[:-1]))}"
    if detail["type"] == "missing":
        return f"{'.'.join(place)}: is missing"
    if detail["type"] == "string_pattern_mismatch":
        return f"{'.'.join(place)}: must be 64 hexadecimal digits, the SHA-256 of the token"
    return f"{'.'.join(place)}: {reason_of(detail)}"


def _known_in(place: list[str]) -> Iterable[str]:
    """Return the names that a table of the file may have: `roles.web.quotas` has those of quotas."""
    match place:
        case [kind, _] if kind in _TABLES:
            return _TABLES[kind].model_fields
        case ["roles", _, "quotas"]:
            return QuotasText.model_fields
        case _:
            return AccessText.model_fields
