"""Who issues tokens: a small server of keys, as identity providers have one, and the tokens that it signs."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

ISSUER = "https://login.example.org/realms/company"
AUDIENCE = "pequod"
ROLES = """
[roles.web]
read = ["p|"]
write = ["p|"]

[roles.operator]
admin = [""]
"""


class Issuer:
    """Signs tokens, and tells its public keys, if it answers."""

    def __init__(self) -> None:
        self._key: ECKey | RSAKey = ECKey.generate_key("P-256", {"kid": "first", "use": "sig"})
        self.published: list[ECKey | RSAKey] = [self._key]
        self.fetches = 0
        self.status = 200
        self.url = ""

    def rotate(self, name: str, *, keeps: bool = False) -> None:
        """Sign with another key from now on; publish the others no more, or keep them."""
        self._key = RSAKey.generate_key(2048, {"kid": name, "use": "sig"})
        self.published = [*(self.published if keeps else ()), self._key]

    @property
    def keys(self) -> str:
        return json.dumps({"keys": [key.as_dict(private=False) for key in self.published]})

    def token(self, *, lasts_s: float = 600, **claims: Any) -> str:
        """Sign a token; claims of None are left out."""
        now = int(time.time())
        said = {"iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + lasts_s, "groups": "web"} | claims
        algorithm = "ES256" if isinstance(self._key, ECKey) else "RS256"
        header = {"alg": algorithm, "kid": self._key.kid}
        return jwt.encode(header, {name: value for name, value in said.items() if value is not None}, self._key)

    async def answer(self, _request: web.Request) -> web.Response:
        self.fetches += 1
        return web.Response(status=self.status, text=self.keys, content_type="application/json")


@asynccontextmanager
async def issuing() -> AsyncIterator[Issuer]:
    """Run somebody who issues tokens."""
    issuer = Issuer()
    application = web.Application()
    application.router.add_get("/keys", issuer.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    issuer.url = f"http://127.0.0.1:{runner.addresses[0][1]}/keys"
    try:
        yield issuer
    finally:
        await runner.cleanup()


def access_text(keys: str, claim: str = '"groups"', more: str = "") -> str:
    """Return an access file whose roles an issuer names."""
    return f"""{ROLES}
[issuers.company]
issuer = "{ISSUER}"
audience = "{AUDIENCE}"
keys = "{keys}"
roles = {claim}
{more}
"""
