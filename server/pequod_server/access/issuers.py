"""Tokens that are JSON Web Tokens: whose they are, whether they are right, and the names of roles in them.

[issuers.company]
issuer = "https://login.example.org/realms/company"     # the claim `iss`
audience = "pequod"                                      # the claim `aud` is it, or has it
keys = "https://login.example.org/realms/company/certs"  # a JSON Web Key Set: a URL, or a file
roles = ["realm_access", "roles"]                        # the claim that names roles; or "groups"
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pequod.errors import UnauthenticatedError
from pequod_server.access.key_sets import KeySource

#: Algorithms with a key of two halves: a secret that a server shares with an issuer would make the server an issuer.
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
#: The longest header and name of a token that are looked at.
_HEADER_BYTES_MAX: Final = 8 << 10
_SHOWN_MAX: Final = 64


class Judged(NamedTuple):
    """A token that is right."""

    #: The names in its claim.
    roles: tuple[str, ...]
    #: When it ends to be right, in seconds of the wall clock.
    end_s: float


class Unverified(NamedTuple):
    """The claims of a token about itself, which anybody may have written."""

    issuer: str
    key: str | None


def is_like_a_jwt(token: str) -> bool:
    """Return whether a token has the three parts of one that is signed."""
    return token.count(".") == 2


def unverified(token: str) -> Unverified:
    """Return what a token says of itself.

    Raises:
        UnauthenticatedError: It is no JSON Web Token.
    """
    from joserfc.errors import JoseError  # noqa: PLC0415 - only some servers check such tokens
    from joserfc.jws import extract_compact  # noqa: PLC0415

    try:
        found = extract_compact(token.encode(), registry=_registry())
        claims = json.loads(found.payload)
    except (JoseError, ValueError, TypeError, RecursionError):
        raise UnauthenticatedError("the server does not know this token, and it is no JSON Web Token") from None
    issuer, key = claims.get("iss") if isinstance(claims, dict) else None, found.headers().get("kid")
    return Unverified(issuer if isinstance(issuer, str) else "", key if isinstance(key, str) else None)


def _registry() -> Any:
    from joserfc.jws import JWSRegistry  # noqa: PLC0415 - as said

    # Headers that nobody has to understand are left alone, as the standard has it; `crit` names those that one has to.
    registry = JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
    registry.max_header_length = _HEADER_BYTES_MAX
    return registry


@dataclass(frozen=True, slots=True)
class Issuer:
    """An issuer whose tokens a server takes."""

    #: In the access file, and in its tokens.
    name: str
    issuer: str
    audience: str
    keys: KeySource
    #: The claim that names roles, and those that it is in.
    roles: tuple[str, ...]
    leeway_s: int

    def judge(self, token: str, now_s: float) -> Judged:
        """Return what a token says, if it is right.

        Raises:
            UnauthenticatedError: It is not; the text says why, and nothing of the token but its key's id.
        """
        from joserfc import errors  # noqa: PLC0415 - as said
        from joserfc.jwt import JWTClaimsRegistry, decode  # noqa: PLC0415

        key = self._key(unverified(token).key)
        try:
            claims = decode(token, key, algorithms=ALGORITHMS, registry=_registry()).claims
            JWTClaimsRegistry(
                now=int(now_s),
                leeway=self.leeway_s,
                iss={"essential": True, "value": self.issuer},
                aud={"essential": True, "value": self.audience},
                exp={"essential": True},
            ).validate(claims)
        except errors.ExpiredTokenError:
            raise self._refusal("has expired; get a new one") from None
        except errors.MissingClaimError as error:
            raise self._refusal(f"lacks a claim: {error.claim}") from None
        except errors.InvalidClaimError as error:
            wanted = f"; it has to be for {self.audience!r}" if error.claim == "aud" else ""
            raise self._refusal(f"is not right in its claim {error.claim}{wanted}") from None
        except errors.BadSignatureError:
            raise self._refusal("has a signature that its key did not make") from None
        except errors.UnsupportedAlgorithmError:
            raise self._refusal(f"is not signed by one of {', '.join(ALGORITHMS)}") from None
        except (errors.JoseError, ValueError, TypeError, RecursionError) as error:
            raise self._refusal(f"is not right: {getattr(error, 'error', '') or type(error).__name__}") from None
        return Judged(self._named(claims), float(claims["exp"]) + self.leeway_s)

    def _key(self, name: str | None) -> Any:
        key = self.keys.find(name)
        if key is not None:
            return key
        if self.keys.fault:
            raise self._refusal("cannot be checked: the server could not read the issuer's keys, its log says why")
        if name is None:
            raise self._refusal(f"names no key, and the issuer has {'none' if self.keys.are_none else 'several'}")
        raise self._refusal(
            f"is signed with a key that the issuer does not have, or not any more: {name[:_SHOWN_MAX]!r}"
        )

    def _named(self, claims: dict[str, Any]) -> tuple[str, ...]:
        value: Any = claims
        for step in self.roles:
            value = value.get(step) if isinstance(value, dict) else None
        # One name, several with spaces between, as in `scope`, or a list.
        names = value.split() if isinstance(value, str) else value
        return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()

    def _refusal(self, what: str) -> UnauthenticatedError:
        return UnauthenticatedError(f"the token of {self.name} {what}")
